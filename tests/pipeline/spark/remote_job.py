"""Run the job on executors that have nothing but an archive: `spark-submit … remote_job.py DATA LAKE_FILE`.

Print, as JSON, what the executors see, and how many records the job processed.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wirelake.pipeline.ingest.log_copies import read_store_file
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import open_session


def looking_for(path: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import resource

        import pyarrow as pa

        import wirelake
        from wirelake.protocols import registry

        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        found = {
            "wirelake": wirelake.__file__,
            "home": os.environ["HOME"],
            "folder": os.getcwd(),  # noqa: PTH109 (as it is)
            "sees_log": Path(path).exists(),
            "protocols": list(registry.names()),
            "daemon_cpu_s": (int(daemon[11]) + int(daemon[12])) / os.sysconf("SC_CLK_TCK"),
            "worker_cpu_s": resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        }
        for _ in batches:
            yield pa.record_batch([pa.array([json.dumps(found)])], ["found"])

    return look


if __name__ == "__main__":
    data, lake_file = sys.argv[1:]
    session = open_session(name="remote")
    rows = session.range(0, 8, 1, 8).mapInArrow(looking_for(str(Path(data) / "log")), "found string").collect()
    print(json.dumps([json.loads(row.found) for row in rows]), flush=True)
    job = Job(session, Path(data), JobSettings(once=True, batch_rows=1500), lake=read_store_file(Path(lake_file)))
    job.run()
    print(job.progress.rows, flush=True)
    session.stop()
