"""Translation between protocols: what each one cannot express, and what a request subscribes to."""

import hashlib
from typing import Any, Final

from msgspec import Struct, json

from wirelake.message import Kind, Message, Op, Operation, Topic, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import word_of

# ── losses


class Loss(Struct, frozen=True):
    """Something that a protocol cannot express.

    `example`, sent by `sender` in this protocol, is received as `becomes`; None means that it is refused.
    """

    what: str
    then: str
    example: Message
    becomes: Message | None
    sender: Sender = Sender.SERVER


# ── subscriptions


_SUB: Final = "sub"  # the operation of a service that subscribes


class Interest(Struct, frozen=True):
    """The target of a subscription: topics of the gateway, patterns as `pattern_topic`, or a service's key and table.

    A subscription to a service without key and table is identified by the whole request.
    """

    service: str = ""
    key: str = ""
    sdb: str = ""
    topics: tuple[str, ...] = ()
    digest: str = ""  # digest of the request


def pattern_topic(pattern: str) -> str:
    """Return the name of a pattern among topics, none of which begins like this."""
    return "\0" + pattern


def subscribed_by(message: Message) -> Interest | None:
    """Return what a request subscribes to; None if it does not subscribe."""
    return _interest_of(message, Op.SUBSCRIBE, _SUB)


def unsubscribed_by(message: Message) -> Interest | None:
    """Return what a request unsubscribes from; None if it does not."""
    return _interest_of(message, Op.UNSUBSCRIBE, "unsub")


def _interest_of(message: Message, op: Op, command: str) -> Interest | None:
    target = message.target
    if control_op(message) is op:
        patterns = map(pattern_topic, message.fields.get("patterns", ()))
        return Interest(topics=(*message.fields.get("topics", ()), *patterns))
    if message.kind is Kind.REQUEST and isinstance(target, Operation) and target.op == command:
        key, sdb = _word(message.fields, "key"), _word(message.fields, "sdb")
        return Interest(target.service, key, sdb, digest="" if key or sdb else _digest(message.fields))
    return None


def topic_of(interest: Interest) -> Topic:
    """Return the topic of a push, for protocols that push by topic."""
    return Topic(".".join(word for word in (interest.key, interest.sdb) if word) or interest.service)


def call_of(interest: Interest) -> str:
    """Return which operation of the service subscribed to this, as SERVICE/OPERATION."""
    return f"{interest.service}/{_SUB}"


def _digest(fields: dict[str, Any]) -> str:
    if not fields:
        return ""
    try:
        content = json.encode(fields, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _word(fields: dict[str, Any], name: str) -> str:
    return word_of(fields.get(name))
