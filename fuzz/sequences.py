"""Fuzz live sessions of all protocols: valid and invalid frames in random order, while the disk fails now and then.

    python fuzz/sequences.py [SECONDS] [SEED]

The exit code is 1 if a session is left over, a traceback was logged, or memory is not released.
"""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from resilience.process import GatewayProcess
from resilience.sequences import SETTINGS, fuzz

LONG_S = 300.0


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else LONG_S
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)  # noqa: S311 (to be repeated)
    print(f"seed {seed}, {seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        gateway = GatewayProcess(Path(folder) / "data", SETTINGS)
        gateway.start()
        try:
            outcome, problems = asyncio.run(fuzz(gateway, seconds, seed))
        finally:
            gateway.stop()
    print(f"sessions: {', '.join(f'{name} {count}' for name, count in sorted(outcome.sessions.items()))}")
    print(f"full disks: {outcome.disk_failures}, connections cut or refused: {outcome.refused_connections}")
    before, after = outcome.resident_before >> 20, outcome.resident_after >> 20
    print(f"resident: {before} MiB after the warm-up, {after} MiB at the end")
    print("\n".join(problems) or "nothing left behind")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
