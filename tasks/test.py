"""Run the tests. Run by `./dev test`.

./dev test                     lint, types, then all tests with branch coverage
./dev test --long              the same, then each fuzz target for a minute and live sessions for five
./dev test tests/log -k crash  only these tests, without lint and coverage
"""

import os
import subprocess
import sys
from pathlib import Path

import system
from check import check

BIN = Path(sys.executable).parent
FUZZ_SECONDS = 60
SEQUENCES_SECONDS = 300
PROTOCOLS_COVERAGE_MIN = 95


def main() -> int:
    wanted = sys.argv[1:]
    long = "--long" in wanted
    system.ensure(system.FOR_TESTS)
    chosen = [word for word in wanted if word != "--long"]
    if chosen:
        return subprocess.run([BIN / "pytest", *chosen], check=False).returncode
    fine = check()
    print("── tests", flush=True)
    workers = str(os.cpu_count() or 1)
    # By group: one worker runs the tests that need Spark, one after the other; the others run the rest.
    tested = subprocess.run(
        [BIN / "pytest", "-n", workers, "--dist", "loadgroup", "--cov", "--cov-branch", "--cov-report=term"],
        check=False,
    )
    print(f"── coverage of protocols/, at least {PROTOCOLS_COVERAGE_MIN} %", flush=True)
    covered = subprocess.run(
        [BIN / "coverage", "report", "--include=src/wirelake/protocols/*", f"--fail-under={PROTOCOLS_COVERAGE_MIN}"],
        check=False,
    )
    fine = fine and tested.returncode == 0 and covered.returncode == 0
    if long:
        print(f"── fuzz, {FUZZ_SECONDS} s a target", flush=True)
        fuzzed = subprocess.run([sys.executable, "fuzz/run.py", str(FUZZ_SECONDS)], check=False)
        print(f"── fuzz live sessions, {SEQUENCES_SECONDS} s", flush=True)
        lived = subprocess.run([sys.executable, "fuzz/sequences.py", str(SEQUENCES_SECONDS)], check=False)
        fine = fine and fuzzed.returncode == 0 and lived.returncode == 0
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
