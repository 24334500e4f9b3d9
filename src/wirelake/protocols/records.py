"""The interface of a protocol whose requests write records into tables: see `Protocol.records`."""

from collections.abc import Mapping
from typing import Any
from typing import Protocol as Interface

from msgspec import Struct

from wirelake.message import Kind


class MessageFilter(Struct, frozen=True):
    """Select messages from clients by their kind and by their name or operation."""

    kind: Kind
    name: str = ""
    op: str = ""


class WrittenRecord(Struct, frozen=True):
    """One record of a write request."""

    key: str | None
    table: str | None
    time: int | None  # as the client gave it
    fields: dict[str, Any]


class RecordReader(Interface):
    """The module that `Protocol.records` names. Fields are those of a message; layouts can be packed as JSON."""

    KIND: str  # names the events and the state of this protocol in checkpoints: never change it
    LAYOUT: MessageFilter  # the session defines the layout of its records
    WRITE: MessageFilter  # records are written
    CREATE: MessageFilter  # a table is created, for all sessions

    def layouts_of(self, fields: Any) -> dict[str, Any]:
        """Return the layouts that a LAYOUT message gives, by table."""

    def created_layout(self, fields: Any) -> tuple[str, Any] | None:
        """Return the table that a CREATE message creates and its layout; None if it has none."""

    def table_of(self, fields: dict[str, Any]) -> Any:
        """Return the table that a WRITE message names."""

    def read_records(
        self, fields: dict[str, Any], payload: bytes | None, layouts: Mapping[str, Any], created: Any
    ) -> list[WrittenRecord]:
        """Return the records of a WRITE message. Raise ProtocolError if they cannot be read.

        `layouts` are those of the session; `created` is the layout with which the table was created, or None.
        """
