"""Everything that happens goes to the event log, in the order in which it happens.

| event | direction | bytes | note |
| --- | --- | --- | --- |
| open, close | | | the reason of a close |
| frame | in, out | as on the wire (magline data opened; HTTP: JSON, secrets blanked) | HTTP: method, path, status |
| quarantine | in | what could not be read | code, offset, text |
| refuse | in | | who was not let in, and why |
| publish | | content | topic, id, position, type |
| deliver | out | the sessions, by spaces | topic, first, last, attempt |
| ack, expire | | | topic and positions |
| counters | | | what the gateway counted, as JSON |
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from wirelake.commit import Commit
from wirelake.log.interface import EventLog
from wirelake.protocols.jsontext import write_json


class Recorded(Protocol):
    """Who a record is about."""

    id: str
    protocol: str
    identity: str
    address: str


class Recorder:
    def __init__(self, log: EventLog, now_us: Callable[[], int]) -> None:
        self._log = log
        self._now_us = now_us

    def frames(self, of: Recorded, direction: str, frames: Sequence[bytes]) -> Commit:
        """As they were, or will be, on the wire."""
        return self._log.append_many(
            self._now_us(), of.protocol, "frame", direction, of.id, of.identity, of.address, frames
        )

    def event(self, of: Recorded, event: str, note: dict[str, Any], direction: str = "", data: bytes = b"") -> Commit:
        text = write_json(note).decode() if note else ""
        return self._log.append(
            self._now_us(), of.protocol, event, direction, of.id, of.identity, of.address, data, text
        )

    def topic(self, event: str, topic: str, data: bytes, note: dict[str, Any]) -> None:
        """Something about a topic, whoever caused it."""
        text = write_json({"topic": topic, **note}).decode()
        direction = "out" if event == "deliver" else ""
        self._log.append(self._now_us(), "", event, direction, "", "", "", data, text)
