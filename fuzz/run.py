"""Run every fuzz target for some seconds, starting from the captured frames.

python fuzz/run.py [SECONDS] [NAME…]
"""

import subprocess
import sys
from pathlib import Path

from wirelake.protocols import registry

ROOT = Path(__file__).resolve().parent.parent
INPUT_BYTES_MAX = 4096


def seed(name: str) -> Path:
    """Write a corpus of the protocol's captured frames, of both sides."""
    folder = ROOT / "fuzz" / "corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate((ROOT / "tests" / "captures" / f"{name}.hex").read_text().splitlines()):
        if line and not line.startswith("#"):
            sender, _, rest = line.split(" ", 2)
            wire = bytes.fromhex(rest[: rest.index("{")] if "{" in rest else rest)
            (folder / f"capture-{number}").write_bytes(bytes([sender == "server"]) + wire)
    return folder


def main() -> int:
    seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
    failed = []
    for name in sys.argv[2:] or registry.BUILT_IN:
        print(f"{name}: {seconds} s", flush=True)
        command = [sys.executable, str(ROOT / "fuzz" / "codec.py"), name, f"-max_total_time={seconds}"]
        command += [f"-max_len={INPUT_BYTES_MAX}", "-rss_limit_mb=4096", "-print_final_stats=1", str(seed(name))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        runs = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        print("  " + (runs[0].split(":")[-1].strip() + " inputs" if runs else "no figures"), flush=True)
        if done.returncode:
            print(done.stdout[-4000:] + done.stderr[-4000:])
            failed.append(name)
    print("all targets held" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
