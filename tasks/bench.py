"""Run all benchmarks one after the other, or those named. Run by `./dev bench [name…] [-- options]`."""

import subprocess
import sys
from pathlib import Path

import system

FOLDER = Path("benchmarks")


def main() -> int:
    words = sys.argv[1:]
    names, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    there = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    unknown = [name for name in names if name not in there]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}: there are {', '.join(there)}", file=sys.stderr)
        return 1
    system.ensure(system.FOR_BENCHMARKS)
    failed = 0
    for name in names or there:
        print(f"── {name}", flush=True)
        failed += subprocess.run([sys.executable, FOLDER / f"{name}.py", *options], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
