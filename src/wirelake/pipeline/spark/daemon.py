"""Run the process from which Spark forks its Python workers: import and compile what all of them need.

spark.python.daemon.module    names this module, or one that calls `warm()` and then does what pyspark.daemon does
"""

import gc
import importlib

import pyarrow as pa

from wirelake.log.interface import SCHEMA
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.protocols import registry
from wirelake.protocols.kernel_columns import column_decoder

# A task makes many small objects that live as long as it does, and no cycles: searching them again and again is wasted.
_GC_THRESHOLD = 100_000
_MODULES = (
    "pyarrow.compute",
    "pyarrow.parquet",
    "wirelake.pipeline.ingest.task",
    "wirelake.pipeline.stateful.task",
)


def warm() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    warm_kernels()
    # A worker collects garbage after every task. What is here stays: to search it would take 80 ms of a core.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def warm_kernels() -> None:
    """Import every codec and run every kernel once, so that forked processes need not load or compile them."""
    samples = [
        (protocol.name, frame)
        for protocol in registry.all_protocols()
        if (decoder := column_decoder(protocol)) is not None
        for frame in decoder.SAMPLES
    ]
    rows = [
        {**dict.fromkeys(SCHEMA.names, ""), "seq": seq, "at": 0, "protocol": name, "event": "frame", "frame": frame}
        for seq, (name, frame) in enumerate(samples)
    ]
    decode_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
