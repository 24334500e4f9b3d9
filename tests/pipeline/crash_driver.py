"""Fill the tables of a data folder in small batches, until it is done or killed: `crash_driver.py DATA [LAKE]`.

LAKE is a pickled store, in hex.
"""

import pickle
import sys
from pathlib import Path

from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import open_session

if __name__ == "__main__":
    session = open_session("local[2]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
    print("ready", flush=True)
    lake = pickle.loads(bytes.fromhex(sys.argv[2])) if len(sys.argv) > 2 else None  # noqa: S301 of the test
    Job(session, Path(sys.argv[1]), JobSettings(once=True, batch_rows=400, compact_every=3), lake=lake).run()
    print("done", flush=True)
