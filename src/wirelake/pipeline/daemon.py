"""Where Spark forks its Python workers from: what they all need is imported and warm before the first one."""

import gc
import importlib

from wirelake.pipeline.decode.warm import warm as warm_kernels


def warm() -> None:
    for name in ("pyarrow.compute", "pyarrow.parquet", "wirelake.pipeline.land", "wirelake.pipeline.bucket"):
        importlib.import_module(name)
    warm_kernels()
    # A worker collects garbage after every task. What is here stays: looking through it would take 80 ms of a core.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
