"""Who gets pushes under which request's name, until they are called off."""

import hashlib
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, json

from wirelake.message import Kind, Message, Op, Operation, Topic, control_op
from wirelake.protocols.sisnet.limits import SISNET_SUBSCRIPTIONS_MAX
from wirelake.protocols.sisnet.texts import word_of

Holder = TypeVar("Holder")


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


class Subscriptions(Generic[Holder]):
    """Each is known by a word: the request's correlation or its name. `Holder` is what a push needs to be written."""

    __slots__ = ("_held", "_topics")

    def __init__(self) -> None:
        self._held: dict[str, tuple[Interest, Holder]] = {}
        self._topics: dict[str, str] = {}

    def has_room(self, pending: Sequence[Interest]) -> bool:
        """Whether these, asked for and not yet answered, would all find room."""
        topics = len(self._topics) + sum(len(interest.topics) for interest in pending)
        return max(topics, len(self._held) + len(pending)) <= SISNET_SUBSCRIPTIONS_MAX

    def add(self, word: str, interest: Interest, holder: Holder) -> None:
        """A topic that is named again goes under the new word; a word with no topic left is forgotten."""
        before = {self._topics[topic] for topic in interest.topics if topic in self._topics}
        self._held[word] = interest, holder
        self._topics.update(dict.fromkeys(interest.topics, word))
        self._forget(before)

    def find(self, word: str) -> tuple[Interest, Holder] | None:
        return self._held.get(word)

    def find_topic(self, topic: str) -> tuple[Interest, Holder] | None:
        """Under which request's name the topic's notifications go: the last one that named it."""
        return self._held.get(self._topics.get(topic, ""))

    def drop(self, word: str) -> None:
        found = self._held.pop(word, None)
        if found is not None:
            for topic in found[0].topics:
                if self._topics.get(topic) == word:
                    del self._topics[topic]

    def call_off(self, interest: Interest) -> None:
        """An unsubscribe went well: its topics, or whatever had the same service, key and table."""
        self._forget({self._topics.pop(topic) for topic in interest.topics if topic in self._topics})
        for word in [word for word, (held, _) in self._held.items() if held.service and held == interest]:
            del self._held[word]

    def _forget(self, words: set[str]) -> None:
        for word in words - set(self._topics.values()):
            del self._held[word]
