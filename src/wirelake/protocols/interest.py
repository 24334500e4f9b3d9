"""What a request subscribes to, or calls off."""

import hashlib
from typing import Any

from msgspec import Struct, json

from wirelake.message import Kind, Message, Op, Operation, Topic, control_op
from wirelake.protocols.texts import word_of


class Interest(Struct, frozen=True):
    """What is subscribed to: topics of the gateway (and patterns, by `pattern_topic`), or a service's key and table.

    A service that is asked for neither a key nor a table knows its subscriptions by all that is asked.
    """

    service: str = ""
    key: str = ""
    sdb: str = ""
    topics: tuple[str, ...] = ()
    asked: str = ""  # a digest of it


def pattern_topic(pattern: str) -> str:
    """A pattern among topics, none of which begins like this."""
    return "\0" + pattern


def subscribed_by(message: Message) -> Interest | None:
    """What this request subscribes to, if it does."""
    return _interest(message, Op.SUBSCRIBE, "sub")


def unsubscribed_by(message: Message) -> Interest | None:
    return _interest(message, Op.UNSUBSCRIBE, "unsub")


def _interest(message: Message, op: Op, command: str) -> Interest | None:
    target = message.target
    if control_op(message) is op:
        patterns = map(pattern_topic, message.fields.get("patterns", ()))
        return Interest(topics=(*message.fields.get("topics", ()), *patterns))
    if message.kind is Kind.REQUEST and isinstance(target, Operation) and target.op == command:
        key, sdb = _words(message.fields, "key"), _words(message.fields, "sdb")
        return Interest(target.service, key, sdb, asked="" if key or sdb else _digest(message.fields))
    return None


def topic_of(interest: Interest) -> Topic:
    """What a push is called in protocols whose pushes are of topics."""
    return Topic(".".join(word for word in (interest.key, interest.sdb) if word) or interest.service)


def _digest(fields: dict[str, Any]) -> str:
    if not fields:
        return ""
    try:
        content = json.encode(fields, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _words(fields: dict[str, Any], name: str) -> str:
    return word_of(fields.get(name))
