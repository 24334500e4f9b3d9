"""Where Spark forks its Python workers from: what they all need is imported and warm before the first one."""

import importlib


def warm() -> None:
    for name in ("pyarrow.compute", "pyarrow.parquet", "wirelake.pipeline.source"):
        importlib.import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
