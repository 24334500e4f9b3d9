"""Fill and redecode the tables of a data folder through Spark Connect: `connect_job.py DATA`."""

import sys
from pathlib import Path

from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.redecode.redecode import RedecodeRequest, redecode
from wirelake.pipeline.spark.session import default_parallelism, is_alive, is_remote, open_session

if __name__ == "__main__":
    session = open_session(remote="local[2]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "768m"})
    print(is_remote(session), is_alive(session), default_parallelism(session), flush=True)
    data = Path(sys.argv[1])
    job = Job(session, data, JobSettings(once=True, batch_rows=1000), gold=True)
    job.run()
    print(job.progress.rows, job.progress.restarts, sorted(job.progress.phases_s), flush=True)
    done = redecode(session, data, RedecodeRequest(protocol="comet"), gold=True)
    print(done.frames > 0, done.replaced, flush=True)
    session.stop()
