"""What is asked about: a notification by its id, a record of the log by its number, or a session by its id."""

import re
from typing import Final

from msgspec import Struct

_NOTIFICATION: Final = re.compile(r"([0-9a-f]{1,32}-[0-9a-f]{1,16}-)([0-9a-f]{1,16})")  # <epoch>-<topic>-<position>
_RECORD: Final = re.compile(r"[0-9]{1,18}")
_SESSION: Final = re.compile(r"[0-9a-z]{1,32}-[0-9a-z]{1,16}")


class Place(Struct, frozen=True):
    """A notification, as the log's notes name it."""

    id: str
    ids: str  # what the ids of its topic begin with
    position: int


Asked = Place | int | str  # a notification, a record, a session


def parse(text: str) -> Asked | None:
    """None for what can be none of them."""
    notification = _NOTIFICATION.fullmatch(text)
    if notification is not None:
        return Place(text, notification[1], int(notification[2], 16))
    if _RECORD.fullmatch(text):
        return int(text)
    return text if _SESSION.fullmatch(text) else None
