"""Run the job once with workers that see other files under the same path: `views_job.py BATCH_ROWS`.

The data folder is /proc/self/cwd/data: the driver's is below the folder in which this runs, the workers' below
WORKER_FOLDER. So they are two machines with mounts of their own, on one.
"""

import sys
from pathlib import Path

from wirelake.errors import StorageError
from wirelake.pipeline import job as job_module
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import open_session

DATA = Path("/proc/self/cwd/data")

if __name__ == "__main__":
    job_module.restart_delay_s = lambda _: 0.01  # type: ignore[attr-defined, assignment]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.python.daemon.module": "worker_view_daemon",
    }
    session = open_session("local[2]", "views", settings)
    try:
        Job(session, DATA, JobSettings(once=True, batch_rows=int(sys.argv[1]), view_wait_s=0.3), gold=True).run()
    except StorageError as error:
        print(f"failed: {error}", flush=True)
    else:
        print("done", flush=True)
    session.stop()
