"""Write a log by hand, as a gateway would."""

import json
from pathlib import Path
from typing import Any

from wirelake.limits import LOG_SEGMENT_BYTES
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.indexer import ensure_index
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.lookup_index import index_path
from wirelake.log.segments.settings import LogSettings

AT_US = 1_900_000_000_000_000  # 2030-03-17 17:46:40 UTC
ID = "f82a8d91-1-2"
IDS = "f82a8d91-1-"


class Written:
    """Write records, each a millisecond after the one before."""

    def __init__(self, data: Path, segment_bytes: int = LOG_SEGMENT_BYTES) -> None:
        self._folder = data / "log"
        self._log = SegmentLog(self._folder, LogSettings(segment_bytes=segment_bytes, fsync=False))
        self._at_us = AT_US

    def add(self, event: str, frame: bytes = b"", *, direction: str = "", note: Any = None, **who: str) -> int:
        seq = self._log.next_seq
        protocol, session, identity, peer = (who.get(name, "") for name in ("protocol", "session", "identity", "peer"))
        text = "" if note is None else json.dumps(note, separators=(",", ":"))
        self._log.append(self._at_us, protocol, event, direction, session, identity, peer, frame, text).wait(10)
        self._at_us += 1000
        return seq

    def publish(self, id_: str = ID, content: bytes = b"hello", by: str = "anna", topic: str = "@a") -> int:
        position = int(id_.rpartition("-")[2], 16)
        return self.add("publish", content, note={"topic": topic, "id": id_, "position": position, "type": 0, "by": by})

    def deliver(self, first: int, last: int, *to: tuple[str, str], attempt: int = 1) -> int:
        note = {"topic": "@a", "ids": IDS, "first": first, "last": last, "attempt": attempt}
        return self.add("deliver", json.dumps(to).encode(), direction="out", note=note)

    def ack_through(self, position: int, identity: str) -> int:
        return self.add("ack", note={"topic": "@a", "ids": IDS, "identity": identity, "through": position})

    def close(self, indexed: bool = True) -> None:
        """Close the log, with or without its indexes."""
        self._log.close()
        for first_seq in list_segments(self._folder):
            if indexed:
                ensure_index(self._folder, first_seq, None)
            else:
                index_path(self._folder, first_seq).unlink(missing_ok=True)
