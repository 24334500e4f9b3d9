"""Runs every kernel once. To be called before a process forks, so that its children need not load or compile them.

spark.python.daemon.module    names a module that calls `warm()` and then does what pyspark.daemon does
"""

from typing import Final

import pyarrow as pa

from wirelake.log.interface import SCHEMA
from wirelake.pipeline.decode.batch import decode_batch
from wirelake.protocols import registry
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.opcodes import FIRST, LAST, VERSION
from wirelake.protocols.comet.frames import Heartbeat

_READINGS: Final = DeviceCommand(0, 4, 0, (Reading(1, 1.5),))
_FRAMES: Final = (
    ("apostol", Packet(VERSION, FIRST | LAST, 0, "warm", 0, 0, _READINGS.encode()).encode()),
    ("apostol", b""),
    ("comet", Heartbeat().encode()),
    ("comet", b""),
)


def warm() -> None:
    """Also imports every codec."""
    registry.all_protocols()
    rows = [
        {**dict.fromkeys(SCHEMA.names, ""), "seq": place, "at": 0, "protocol": name, "event": "frame", "frame": frame}
        for place, (name, frame) in enumerate(_FRAMES)
    ]
    decode_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))
