"""Run Spark's Python workers in a folder of their own, so that /proc/self/cwd differs from the driver's."""

import os

if __name__ == "__main__":
    os.chdir(os.environ["WORKER_FOLDER"])
    from pyspark.daemon import manager

    from wirelake.pipeline.spark.daemon import warm

    warm()
    manager()
