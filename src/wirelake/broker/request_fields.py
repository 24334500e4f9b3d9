"""Read the fields of requests to the broker, and check them."""

import re
from typing import Final

from msgspec import ValidationError, convert
from msgspec.structs import replace

from wirelake.errors import InputError
from wirelake.limits import (
    BROKER_BACKLOG_BYTES,
    BROKER_BACKLOG_ROWS,
    BROKER_TOPIC_CHARS_MAX,
    BROKER_TOPICS_PER_REQUEST_MAX,
)
from wirelake.message import TOPIC, Message
from wirelake.state.notifications import BacklogLimits

_TOPIC: Final = re.compile(TOPIC)


def is_topic(name: str) -> bool:
    """Return whether a topic can have this name."""
    try:
        check_topic(name)
    except InputError:
        return False
    return True


def check_topic(name: str) -> None:
    """Raise InputError if a topic cannot have this name."""
    if not 0 < len(name) <= BROKER_TOPIC_CHARS_MAX:
        raise InputError(f"a topic's name has 1 to {BROKER_TOPIC_CHARS_MAX} characters")
    if _TOPIC.fullmatch(name) is None:
        raise InputError("a topic's name has printable characters only")


def names_in(message: Message, field: str) -> list[str]:
    """Return the names of topics in a field."""
    names = texts_in(message, field)
    if len(names) > BROKER_TOPICS_PER_REQUEST_MAX:
        raise InputError(f"{len(names)} {field} at once: at most {BROKER_TOPICS_PER_REQUEST_MAX}")
    for name in names:
        check_topic(name)
    return names


def texts_in(message: Message, field: str) -> list[str]:
    """Return the texts in a field."""
    texts = message.fields.get(field, [])
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{field} is a list of texts")
    return list(texts)


def backlog_limits(message: Message) -> BacklogLimits:
    """Return the limits that a request for a backlog names, within the broker's own."""
    try:
        limits = convert(message.fields, BacklogLimits)
    except ValidationError as error:
        raise InputError(f"invalid limits for a backlog: {error}") from error
    rows_max, bytes_max = min(limits.rows_max, BROKER_BACKLOG_ROWS), min(limits.bytes_max, BROKER_BACKLOG_BYTES)
    return replace(limits, rows_max=rows_max, bytes_max=bytes_max)


def service_in(message: Message) -> str:
    """Return the service that a request names."""
    name = message.fields.get("service")
    if not isinstance(name, str) or not 0 < len(name) <= BROKER_TOPIC_CHARS_MAX:
        raise InputError("register needs the name of a service")
    return name


def group_in(message: Message) -> str:
    """Return the group that a request names, or ""."""
    name = message.fields.get("group", "")
    if not isinstance(name, str) or len(name) > BROKER_TOPIC_CHARS_MAX:
        raise InputError(f"group is a text of at most {BROKER_TOPIC_CHARS_MAX} characters")
    return name
