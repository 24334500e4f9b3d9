"""Parse what to trace: the id of a notification, the seq of a log record, or the id of a session."""

import re
from typing import Final

from msgspec import Struct

_NOTIFICATION: Final = re.compile(r"([0-9a-f]{1,32}-[0-9a-f]{1,16}-)([0-9a-f]{1,16})")  # <epoch>-<topic>-<position>
_RECORD: Final = re.compile(r"[0-9]{1,18}")
_SESSION: Final = re.compile(r"[0-9a-z]{1,32}-[0-9a-z]{1,16}")


class NotificationId(Struct, frozen=True):
    """The id of a notification, and its parts as the log's notes have them."""

    id: str
    ids: str  # the common prefix of the ids of its topic
    position: int


TraceId = NotificationId | int | str  # a notification, a record, a session


def parse_trace_id(text: str) -> TraceId | None:
    """Return the id, or None if the text is none."""
    notification = _NOTIFICATION.fullmatch(text)
    if notification is not None:
        return NotificationId(text, notification[1], int(notification[2], 16))
    if _RECORD.fullmatch(text):
        return int(text)
    return text if _SESSION.fullmatch(text) else None
