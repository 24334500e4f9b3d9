"""Open a session as the command line does, and print settings: which of the ways to configure Spark has won."""

import json
import sys

from wirelake.pipeline.spark.session import open_session
from wirelake.pipeline.spark.settings import parse_conf

if __name__ == "__main__":
    existing = sys.argv[1] == "existing"
    if existing:
        from pyspark.sql import SparkSession

        SparkSession.builder.config("spark.sql.shuffle.partitions", "9").getOrCreate()
    session = open_session(conf={} if existing else parse_conf(tuple(sys.argv[1].split())))
    settings = dict(session.sparkContext.getConf().getAll())
    settings["spark.sql.shuffle.partitions"] = str(session.conf.get("spark.sql.shuffle.partitions"))
    session.stop()
    print(json.dumps(settings), flush=True)
