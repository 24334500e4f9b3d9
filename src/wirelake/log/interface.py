"""Define what every event log offers, and the columns of its records.

The columns are those of the table `bronze.frames`. They are plain strings, not dictionaries: a batch goes to Spark as
it is stored, and a block of one record (the usual one on a quiet gateway) stays small.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import VersionError

SCHEMA_VERSION: Final = 2  # 2: blocks may refer to frames of other blocks
_READABLE_VERSIONS: Final = (1, 2)

AT_TYPE: Final = pa.timestamp("us", tz="UTC")
TEXT_TYPE: Final = pa.string()
BYTES_TYPE: Final = pa.binary()
SEQ_TYPE: Final = pa.int64()

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", SEQ_TYPE, nullable=False),  # position in the log; unique together with node
        pa.field("at", AT_TYPE, nullable=False),  # when the gateway saw it
        pa.field("node", TEXT_TYPE, nullable=False),
        pa.field("protocol", TEXT_TYPE, nullable=False),
        pa.field("event", TEXT_TYPE, nullable=False),
        pa.field("direction", TEXT_TYPE, nullable=False),
        pa.field("session", TEXT_TYPE, nullable=False),
        pa.field("identity", TEXT_TYPE, nullable=False),
        pa.field("peer", TEXT_TYPE, nullable=False),
        pa.field("frame", BYTES_TYPE, nullable=False),
        pa.field("note", TEXT_TYPE, nullable=False),
    ]
)
SCHEMA_MESSAGE: Final = bytes(SCHEMA.serialize())

Texts = tuple[str, ...] | str  # one value for each record, or one for all


def schema_for_version(version: int, place: str) -> pa.Schema:
    """Return the columns of a segment with this version. Raise VersionError if it is newer than this program."""
    if version not in _READABLE_VERSIONS:
        raise VersionError(
            f"{place} has columns of version {version}, but this program reads versions up to {SCHEMA_VERSION}: "
            "use the program version that wrote it, or a later one"
        )
    return SCHEMA


class FixedSizeFrames(Struct, frozen=True, gc=False):
    """Hold frames of one size, concatenated, so that the caller does not have to split them for the log."""

    joined: bytes
    frame_bytes: int

    def __len__(self) -> int:
        return len(self.joined) // self.frame_bytes

    def split(self) -> list[bytes]:
        """Return the frames one by one."""
        return [self.joined[at : at + self.frame_bytes] for at in range(0, len(self.joined), self.frame_bytes)]


class EventLog(Protocol):
    """Number records in the order they are appended, without gaps, and return them in that order."""

    @property
    def next_seq(self) -> int:
        """Return the seq that the next record will get."""
        ...

    def append(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        session: str,
        identity: str,
        peer: str,
        frame: bytes,
        note: str = "",
    ) -> Commit:
        """Append one record; the commit resolves when it is durable.

        Raise BusyError or LogWriteError if the log cannot take it: refuse the work that the record belongs to.
        """
        ...

    def append_many(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        session: str,
        identity: str,
        peer: str,
        frames: Sequence[bytes],
        note: str = "",
    ) -> Commit:
        """Append a record for each frame, with all other fields equal. They become durable together."""
        ...

    def append_rows(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        sessions: Texts,
        identities: Texts,
        peers: Texts,
        frames: tuple[bytes, ...] | FixedSizeFrames,
        notes: Texts = "",
    ) -> Commit:
        """Append a record for each frame, each with its own session. They become durable together."""
        ...

    def read(self, from_seq: int | None = None, until_seq: int | None = None, wait_s: float = 0.0) -> Iterator[Any]:
        """Yield record batches of `SCHEMA`, with durable records only.

        Start at the oldest record, or at `from_seq`; raise GoneError if retention removed that one. Without
        `until_seq`, stop at the end of the log after waiting there up to `wait_s` for more.
        """
        ...

    def commit_offset(self, consumer: str, seq: int) -> None:
        """Store that the consumer is done with all records before `seq`. It is durable when this returns."""
        ...

    def committed_offset(self, consumer: str) -> int | None:
        """Return the offset that the consumer committed last, or None."""
        ...

    def close(self) -> None:
        """Return once everything appended is durable."""
        ...
