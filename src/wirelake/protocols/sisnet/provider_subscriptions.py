"""Subscriptions that a client provides: it answered our `sub` with 0, and pushes under that request's name."""

from collections import Counter

from msgspec import Struct

from wirelake.protocols.interest import Interest
from wirelake.protocols.sisnet.limits import SISNET_SUBSCRIPTIONS_MAX
from wirelake.protocols.sisnet.names import SisnetFrame


class ProviderSubscription(Struct, frozen=True):
    name: str  # of our request
    correlation: str
    interest: Interest
    unsub: SisnetFrame  # what ends it


class ProviderSubscriptions:
    """Of one connection. A client ends subscriptions by what they are to, so `unsub` waits for the last of the same."""

    __slots__ = ("_by_correlation", "_by_name", "_wanted")

    def __init__(self) -> None:
        self._by_name: dict[str, ProviderSubscription] = {}
        self._by_correlation: dict[str, ProviderSubscription] = {}
        self._wanted: Counter[Interest] = Counter()

    def has_room(self, pending: int) -> bool:
        """Whether so many more, which are not answered yet, would all find room."""
        return len(self._by_name) + pending <= SISNET_SUBSCRIPTIONS_MAX

    def add(self, subscription: ProviderSubscription) -> None:
        self._by_name[subscription.name] = self._by_correlation[subscription.correlation] = subscription
        self._wanted[subscription.interest] += 1

    def find(self, name: str) -> ProviderSubscription | None:
        return self._by_name.get(name)

    def drop(self, correlation: str) -> SisnetFrame | None:
        """Forget it; return the `unsub` to send, if no other subscription is to the same."""
        subscription = self._by_correlation.pop(correlation, None)
        if subscription is None:
            return None
        del self._by_name[subscription.name]
        self._wanted[subscription.interest] -= 1
        if self._wanted[subscription.interest]:
            return None
        del self._wanted[subscription.interest]
        return subscription.unsub
