"""Write a log by hand, as a gateway would."""

import json
from pathlib import Path
from typing import Any

from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

AT_US = 1_900_000_000_000_000  # 2030-03-17 17:46:40 UTC
ID = "f82a8d91-1-2"
IDS = "f82a8d91-1-"


class Written:
    """Write records, each a millisecond after the one before."""

    def __init__(self, data: Path) -> None:
        self._log = SegmentLog(data / "log", LogSettings())
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

    def close(self) -> None:
        self._log.close()
