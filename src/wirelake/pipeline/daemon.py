"""Where Spark forks its Python workers from: what they all need is imported and warm before the first one."""

import importlib

from wirelake.pipeline.decode.warm import warm as warm_kernels


def warm() -> None:
    for name in ("pyarrow.compute", "pyarrow.parquet", "wirelake.pipeline.land", "wirelake.pipeline.bucket"):
        importlib.import_module(name)
    warm_kernels()


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
