"""Every command and every code block of README and docs/ is run here."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from manual.blocks import PAGES, ROOT, Block, blocks, fits
from manual.machine import COMMAND_S, Machine
from wirelake.config import load
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore

PICTURES: Final = {"", "text", "mermaid"}  # languages of blocks that are nothing to run
RUN: Final = {"console", "python", "toml", "sql", "diff"}
MANNERS: Final = {"stopped", "fails", "eventually", "stays"}
NOT_RUN_MAX: Final = 5


def check_excerpt(block: Block, machine: Machine) -> None:
    assert block.text in (machine.folder / block.file).read_text(), f"{block.place}: no part of {block.file}"


def run_python(block: Block, machine: Machine) -> None:
    if block.file:
        check_excerpt(block, machine)
        return
    done = subprocess.run(
        [machine.python, "-c", machine.here(block.text)],
        cwd=machine.folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}: {done.stdout}{done.stderr}"


def run_diff(block: Block, machine: Machine) -> None:
    machine.change(block.file, block.text)


def run_toml(block: Block, machine: Machine) -> None:
    if block.file:
        if (machine.folder / block.file).exists():
            check_excerpt(block, machine)
        else:
            machine.write(block.file, block.text)
        return
    file = machine.folder / "block.toml"
    file.write_text(block.text)
    load(file, environment={})


def run_sql(block: Block, machine: Machine) -> None:
    """Run the queries on empty tables, and on those that the page has filled."""
    for lake in ("no lake", "data/lake"):
        query(LocalStore(machine.folder / lake), block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_to_run_runs(page: Path, tmp_path: Path) -> None:
    run = {"console": lambda block, machine: machine.run(block), "python": run_python, "toml": run_toml, "sql": run_sql}
    run["diff"] = run_diff
    wanted = [block for block in blocks(page) if block.language in RUN and not block.why_not_run]
    machine = Machine(tmp_path, installs=any("pip install" in block.text for block in wanted))
    try:
        for block in wanted:
            run[block.language](block, machine)
        machine.close()
    finally:
        machine.kill()


def test_every_block_is_run_or_says_why_not() -> None:
    not_run = []
    for block in (block for page in PAGES for block in blocks(page)):
        assert block.manner <= MANNERS, f"{block.place}: {block.info}"
        if block.why_not_run:
            not_run.append(block.place)
        elif block.language not in RUN:
            assert block.language in PICTURES, f"{block.place}: nothing runs {block.language}"
            assert not block.commands(), f"{block.place}: a command in a block that is not run"
    assert len(not_run) <= NOT_RUN_MAX, not_run


def test_what_is_shown_is_compared() -> None:
    assert fits(["a  1", "…", "end … of it"], ["a 1", "x", "y", "end 5 of it"])
    assert fits(["…"], [])
    assert not fits(["a", "b"], ["a"])
    assert not fits(["a"], ["a", "b"])
    assert not fits(["a … c"], ["a b d"])
