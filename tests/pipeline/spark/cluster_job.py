"""Run the job on a cluster, from the wheel: `cluster_job.py MASTER WHEEL DATA`. Print where executors import it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import cluster_settings, open_session


def place_of_wirelake(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    import wirelake

    for _ in batches:
        yield pa.record_batch([pa.array([wirelake.__file__])], ["place"])


if __name__ == "__main__":
    master, wheel, data = sys.argv[1:]
    small = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    session = open_session(master, "cluster", cluster_settings(master, Path(wheel)) | small)
    places = session.range(0, 2, 1, 2).mapInArrow(place_of_wirelake, "place string").collect()
    print(places[0].place, len(places), session.sparkContext.defaultParallelism, flush=True)
    job = Job(session, Path(data), JobSettings(once=True, batch_rows=1000))
    job.run()
    print(job.progress.rows, flush=True)
    session.stop()
