"""The columns of a record: those of the table `bronze.frames`, as Spark reads them.

Plain strings, not dictionaries: a batch is handed to Spark as it lies on disk, and a block of one record (the usual one
on a quiet gateway) stays small.
"""

from typing import Final

import pyarrow as pa

from wirelake.errors import VersionError

SCHEMA_VERSION: Final = 2  # 2: blocks may refer to frames of other blocks
_READABLE: Final = (1, 2)

AT: Final = pa.timestamp("us", tz="UTC")
TEXT: Final = pa.string()
BYTES: Final = pa.binary()
SEQ: Final = pa.int64()

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", SEQ, nullable=False),  # position in the log; unique with node
        pa.field("at", AT, nullable=False),  # when the gateway saw it
        pa.field("node", TEXT, nullable=False),
        pa.field("protocol", TEXT, nullable=False),
        pa.field("event", TEXT, nullable=False),
        pa.field("direction", TEXT, nullable=False),
        pa.field("session", TEXT, nullable=False),
        pa.field("identity", TEXT, nullable=False),
        pa.field("peer", TEXT, nullable=False),
        pa.field("frame", BYTES, nullable=False),
        pa.field("note", TEXT, nullable=False),
    ]
)
SCHEMA_MESSAGE: Final = bytes(SCHEMA.serialize())


def schema_of(version: int, place: str) -> pa.Schema:
    """The columns of a segment that says it has this version."""
    if version not in _READABLE:
        raise VersionError(
            f"{place} has columns of version {version}; this program reads versions up to {SCHEMA_VERSION}"
        )
    return SCHEMA
