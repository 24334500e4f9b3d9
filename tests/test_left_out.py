"""The notice at the end of `./dev test` names what was left out."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TASK = Path(__file__).parent.parent / "tasks" / "test.py"


@pytest.fixture(scope="module")
def describe_left_out() -> Callable[[str], str]:
    """Load the task by its path: its name is also that of a package of Python."""
    spec = importlib.util.spec_from_file_location("test_task", TASK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str], str] = module.describe_left_out
    return found


SKIPPING = """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_with_a_tool(number):
    pytest.skip("NOT TESTED: a thing, because its tool is missing")

def test_fine():
    pass
"""


def test_skipped_tests_are_named_with_their_reasons(tmp_path: Path, describe_left_out: Callable[[str], str]) -> None:
    (tmp_path / "test_tools.py").write_text(SKIPPING)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(tmp_path)]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    notice = describe_left_out(report.read_text())
    assert "LEFT OUT" in notice
    assert "2 tests: a thing, because its tool is missing" in notice


def test_nothing_is_said_if_all_tests_ran(describe_left_out: Callable[[str], str]) -> None:
    assert describe_left_out('<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>') == ""
