"""Who gets pushes under which request's name, until they are called off."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from wirelake.protocols.interest import Interest
from wirelake.protocols.sisnet.limits import SISNET_SUBSCRIPTIONS_MAX

Holder = TypeVar("Holder")


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
