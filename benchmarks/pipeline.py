"""The pipeline beside plain Spark, in one run: read the ratios.

    ./dev bench pipeline [-- kernels decoding … --rows 2000000 --rounds 3 --before ../old]

Each part is a module in lakeside/ with a function `run(bench)`; without names, all of them run.
"""

import argparse
import tempfile
from importlib import import_module
from pathlib import Path

from lakeside.bench import Bench
from rich.console import Console

PARTS = (
    *("whole", "kernels", "decoding", "streaming", "sinks", "assembly", "state", "freshness", "idle", "redecode"),
    *("gold", "history"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="source tree of another version, for `whole` and `gold`")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}: there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="wirelake-bench-") as folder:
        for name in chosen.parts or PARTS:
            place = Path(folder) / name
            place.mkdir()
            bench = Bench(Console(width=120), place, chosen.rows, chosen.rounds, chosen.before)
            try:
                import_module(f"lakeside.{name}").run(bench)
            finally:
                bench.close()


if __name__ == "__main__":
    main()
