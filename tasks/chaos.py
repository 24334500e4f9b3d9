"""Kill a loaded gateway again and again, and check that nothing it promised is lost. Run by `./dev chaos`.

./dev chaos                          20 rounds that end with SIGKILL, 8 with a simulated power failure
./dev chaos --rounds 100 --power 0   as many as you like of each
./dev chaos --seed 7                 the same choices again
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

import system

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from resilience.power import compiler
from resilience.rounds import Chaos

ROUNDS = 20
POWER_FAILURES = 8


def main() -> int:
    options = argparse.ArgumentParser(prog="./dev chaos", description="Crash a loaded gateway and check its promises.")
    options.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that end with SIGKILL")
    options.add_argument("--power", type=int, default=POWER_FAILURES, help="rounds that end with a power failure")
    options.add_argument("--seed", type=int, default=random.randrange(2**32))  # noqa: S311 (to be repeated)
    chosen = options.parse_args()
    system.ensure(system.FOR_CHAOS)
    if chosen.power and compiler() is None:
        print("── no C compiler on this machine: power failures are LEFT OUT", file=sys.stderr)
        chosen.power = 0
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        workshop = Path(folder) / "workshop"
        workshop.mkdir()
        chaos = Chaos(Path(folder) / "data", workshop, chosen.seed, lambda text: print(text, flush=True))
        chaos.run(chosen.rounds, chosen.power)
    print("\n".join(chaos.model.problems) or "nothing that was promised is lost")
    summary = chaos.summary
    failures = f"{summary.power_failures} power failures ({summary.unsynced} operations not yet synced)"
    print(f"{summary.kills} kills, {failures}, {summary.promised} promised, {summary.acked} acked")
    return 1 if chaos.model.problems else 0


if __name__ == "__main__":
    sys.exit(main())
