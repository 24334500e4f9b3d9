"""One run of the pipeline for the part `whole`, in a process of its own: with the code that PYTHONPATH names.

    python whole_run.py WARM_DATA DATA silver|gold

It warms up with one data folder, says so, waits for a line, works on the other, and says so again.
"""

import sys
from pathlib import Path
from typing import Any

from wirelake.pipeline.gold import refresh
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import open_session

CORES = 2
DRIVER_MEMORY = "2g"


def main() -> None:
    warm, data, what = sys.argv[1:]
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": DRIVER_MEMORY}
    spark = open_session(f"local[{CORES}]", "benchmark", settings)
    everything: Any = getattr(refresh, "GOLD", True)  # earlier versions take a list of what to refresh
    gold: Any = everything if what == "gold" else ()
    Job(spark, Path(warm), JobSettings(once=True), gold).run()
    print("warm", flush=True)
    sys.stdin.readline()
    job = Job(spark, Path(data), JobSettings(once=True), gold)
    job.run()
    print(f"done {job.progress.rows}", flush=True)
    sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main()
