"""What a job costs that has nothing to do: the share of a core that driver, JVM and Python processes use.

The job has read a small log to its end, and waits for more. Nobody writes.
"""

import signal
import subprocess
import time

from rich.table import Table
from servers import BIN

from lakeside.bench import Bench
from lakeside.mixed_log import write_mixed_log
from lakeside.process_tree import KINDS, cpu_seconds
from wirelake.lake.progress import read_progress

RECORDS = 20_000
CAUGHT_UP_S_MAX = 120.0
SETTLE_S = 15.0  # compilers and collectors finish, and gold is refreshed
MEASURED_S = 30.0
END_S = 60.0
GOAL = 0.05  # of a core


def run(bench: Bench) -> None:
    data = bench.folder / "data"
    write_mixed_log(data, RECORDS)
    words = [str(BIN / "wirelake"), "pipeline", "run", "--data", str(data)]
    with (bench.folder / "pipeline.txt").open("w") as output:
        pipeline = subprocess.Popen(words, stdout=output, stderr=output)
        try:
            _wait(bench)
            before = cpu_seconds(pipeline.pid)
            time.sleep(MEASURED_S)
            used = cpu_seconds(pipeline.pid)
            used.subtract(before)
        finally:
            pipeline.send_signal(signal.SIGTERM)
            pipeline.wait(END_S)
    table = Table(title="an idle job, share of a core", title_justify="left")
    for heading in (*KINDS, "together", "goal"):
        table.add_column(heading, justify="right")
    share = used.total() / MEASURED_S
    judged = f"< {GOAL:.0%} {'✓' if share < GOAL else '✗'}"
    table.add_row(*(f"{used[kind] / MEASURED_S:.1%}" for kind in KINDS), f"{share:.1%}", judged)
    bench.console.print(table)


def _wait(bench: Bench) -> None:
    """Wait until the job has read everything, and a while longer."""
    deadline_s = time.monotonic() + CAUGHT_UP_S_MAX
    while time.monotonic() < deadline_s:
        progress = read_progress(bench.folder / "data")
        if progress is not None and progress.rows >= RECORDS:
            time.sleep(SETTLE_S)
            return
        time.sleep(0.2)
    told = (bench.folder / "pipeline.txt").read_text()
    raise RuntimeError(f"the job did not read {RECORDS} records within {CAUGHT_UP_S_MAX:g} s: {told}")
