"""The subscriptions of one connection: those that the client made, and those that it provides.

A client provides a subscription when it answers our `sub` with 0; it then pushes under the name of that request.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from wirelake.protocols.sisnet.constants import SISNET_SUBSCRIPTIONS_MAX
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.translation import Interest

Holder = TypeVar("Holder")


class Subscriptions(Generic[Holder]):
    """Subscriptions by a key: the correlation or name of the request. A `Holder` is what it takes to send a push."""

    __slots__ = ("_subscriptions", "_topics")

    def __init__(self) -> None:
        self._subscriptions: dict[str, tuple[Interest, Holder]] = {}
        self._topics: dict[str, str] = {}

    def has_room(self, pending: Sequence[Interest]) -> bool:
        """Return whether there is room for these, which are requested but not answered."""
        topics = len(self._topics) + sum(len(interest.topics) for interest in pending)
        return max(topics, len(self._subscriptions) + len(pending)) <= SISNET_SUBSCRIPTIONS_MAX

    def add(self, key: str, interest: Interest, holder: Holder) -> None:
        """Add a subscription. It takes over topics that others have; one without topics left is removed."""
        before = {self._topics[topic] for topic in interest.topics if topic in self._topics}
        self._subscriptions[key] = interest, holder
        self._topics.update(dict.fromkeys(interest.topics, key))
        self._forget(before)

    def find(self, key: str) -> tuple[Interest, Holder] | None:
        return self._subscriptions.get(key)

    def find_topic(self, topic: str) -> tuple[Interest, Holder] | None:
        """Return the subscription of a topic: the last one that named it."""
        return self._subscriptions.get(self._topics.get(topic, ""))

    def drop(self, key: str) -> None:
        found = self._subscriptions.pop(key, None)
        if found is not None:
            for topic in found[0].topics:
                if self._topics.get(topic) == key:
                    del self._topics[topic]

    def unsubscribe(self, interest: Interest) -> None:
        """Remove the topics of a successful unsubscribe, or the subscriptions to the same service, key and table."""
        self._forget({self._topics.pop(topic) for topic in interest.topics if topic in self._topics})
        for key in [key for key, (other, _) in self._subscriptions.items() if other.service and other == interest]:
            del self._subscriptions[key]

    def _forget(self, keys: set[str]) -> None:
        for key in keys - set(self._topics.values()):
            del self._subscriptions[key]


class ProviderSubscription(Struct, frozen=True):
    """A subscription of ours to a service of the client."""

    name: str  # of our request
    correlation: str
    interest: Interest
    unsub: SisnetFrame  # ends it


class ProviderSubscriptions:
    """The subscriptions that a client provides. An `unsub` ends all that are to the same, so the last one sends it."""

    __slots__ = ("_by_correlation", "_by_name", "_wanted")

    def __init__(self) -> None:
        self._by_name: dict[str, ProviderSubscription] = {}
        self._by_correlation: dict[str, ProviderSubscription] = {}
        self._wanted: Counter[Interest] = Counter()

    def has_room(self, pending: int) -> bool:
        """Return whether there is room for as many more, which are not answered."""
        return len(self._by_name) + pending <= SISNET_SUBSCRIPTIONS_MAX

    def add(self, subscription: ProviderSubscription) -> None:
        self._by_name[subscription.name] = self._by_correlation[subscription.correlation] = subscription
        self._wanted[subscription.interest] += 1

    def find(self, name: str) -> ProviderSubscription | None:
        return self._by_name.get(name)

    def drop(self, correlation: str) -> SisnetFrame | None:
        """Remove a subscription. Return the `unsub` to send, if no other one is to the same."""
        subscription = self._by_correlation.pop(correlation, None)
        if subscription is None:
            return None
        del self._by_name[subscription.name]
        self._wanted[subscription.interest] -= 1
        if self._wanted[subscription.interest]:
            return None
        del self._wanted[subscription.interest]
        return subscription.unsub
