"""Run the tests. Run by `./dev test`.

./dev test                     lint, types, then all tests, with branch coverage of protocols/ and layout/
./dev test --long              the same with coverage of everything, then each fuzz target for a minute and live
                               sessions for five
./dev test tests/log -k crash  only these tests, without lint and coverage
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import delta
import scratch
import system
from check import check

BIN = Path(sys.executable).parent
FUZZ_SECONDS = 60
SEQUENCES_SECONDS = 300
COVERAGE_MIN = 95
COVERED = ("protocols", "layout")  # where every input must be thought of; tracing everything takes a fifth longer


def main() -> int:
    wanted = sys.argv[1:]
    long = "--long" in wanted
    system.ensure(system.FOR_TESTS)
    chosen = [word for word in wanted if word != "--long"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code = _run(chosen, report, long=long)
        if report.exists():
            print(describe_left_out(report.read_text()), flush=True, end="")
    return code


def _run(chosen: list[str], report: Path, *, long: bool) -> int:
    if chosen:
        return _run_pytest(f"--junitxml={report}", *chosen)
    with ThreadPoolExecutor(1) as background:  # it downloads half a gigabyte, once
        installed = background.submit(delta.ensure)
        fine = check()
    os.environ[delta.REASON] = installed.result()
    print("── tests", flush=True)
    workers = str((os.cpu_count() or 1) + 1)  # tests wait half of the time: for a process, a browser, a deadline
    # By group: one worker runs the tests that share a Spark session, another those that start Spark in processes of
    # their own. All go on with the rest, one test at a time, so they end at about the same time.
    coverage = ["--cov"] if long else [f"--cov=wirelake.{package}" for package in COVERED]
    options = ["-n", workers, "--dist", "loadgroup", *coverage, "--cov-branch", "--cov-report="]
    tested = _run_pytest(*options, f"--junitxml={report}")
    if long:
        subprocess.run([BIN / "coverage", "report"], check=False)
    for package in COVERED:
        print(f"── coverage of {package}/, at least {COVERAGE_MIN} %", flush=True)
        limits = [f"--include=src/wirelake/{package}/*", f"--fail-under={COVERAGE_MIN}"]
        fine = subprocess.run([BIN / "coverage", "report", *limits], check=False).returncode == 0 and fine
    fine = fine and tested == 0
    if long:
        print(f"── fuzz, {FUZZ_SECONDS} s a target", flush=True)
        fuzzed = subprocess.run([sys.executable, "fuzz/run.py", str(FUZZ_SECONDS)], check=False)
        print(f"── fuzz live sessions, {SEQUENCES_SECONDS} s", flush=True)
        lived = subprocess.run([sys.executable, "fuzz/sequences.py", str(SEQUENCES_SECONDS)], check=False)
        fine = fine and fuzzed.returncode == 0 and lived.returncode == 0
    return 0 if fine else 1


def _run_pytest(*options: str) -> int:
    return subprocess.run([BIN / "pytest", *options], env=scratch.environment(), check=False).returncode


def describe_left_out(report: str) -> str:
    """Return a notice of the tests that were skipped and why, from pytest's report; nothing if none was."""
    root = ElementTree.fromstring(report)  # noqa: S314 (pytest wrote it)
    reasons = Counter(skipped.get("message", "") for skipped in root.iter("skipped"))
    if not reasons:
        return ""
    lines = ["", "━━ LEFT OUT: these tests did not run, so what they check is not known to work here"]
    for reason, count in sorted(reasons.items()):
        lines.append(f"  {count} {'test' if count == 1 else 'tests'}: {reason.removeprefix('NOT TESTED: ')}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
