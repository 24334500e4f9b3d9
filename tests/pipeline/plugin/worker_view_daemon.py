"""Spark's Python workers in a folder of their own: what lies below /proc/self/cwd differs from what the driver sees."""

import os

if __name__ == "__main__":
    os.chdir(os.environ["WORKER_FOLDER"])
    from pyspark.daemon import manager

    from wirelake.pipeline.spark.daemon import warm

    warm()
    manager()
