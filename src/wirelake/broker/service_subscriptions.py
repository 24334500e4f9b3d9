"""Subscriptions that a provider serves: its answer to a `sub` goes on, one push after the other, to whoever asked.

They begin with an answer that says so (`continues`). They end when the subscriber unsubscribes, when the provider says
that they failed, or when either of the two is gone.
"""

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.notifier import Notifier
from wirelake.broker.peer import Peer
from wirelake.cleanup import clean_up
from wirelake.errors import FullError
from wirelake.limits import BROKER_SUBSCRIPTIONS_MAX, BROKER_SUBSCRIPTIONS_PER_PEER_MAX
from wirelake.message import Failure, FailureCode, Kind, Message, Op, control
from wirelake.protocols import registry
from wirelake.protocols.interest import Interest, topic_of
from wirelake.protocols.session import Closing


class ServiceSubscription(Struct, eq=False, frozen=True):
    """Known to the provider by the correlation that its `sub` was asked with."""

    provider: Peer
    provider_correlation: str
    subscriber: Peer
    correlation: str
    interest: Interest


class ServiceSubscriptions:
    def __init__(self, telling: Notifier) -> None:
        self.cut = 0  # slow subscribers cut off
        self._telling = telling
        self._by_correlation: dict[str, ServiceSubscription] = {}  # the provider's
        self._of_subscriber: dict[str, dict[str, ServiceSubscription]] = {}  # peer id → provider's correlation →
        self._of_provider: dict[str, dict[str, ServiceSubscription]] = {}

    def __len__(self) -> int:
        return len(self._by_correlation)

    def check_room(self, subscriber: Peer) -> None:
        """Raise FullError if one more is too many."""
        if len(self._by_correlation) >= BROKER_SUBSCRIPTIONS_MAX:
            raise FullError(f"there are {BROKER_SUBSCRIPTIONS_MAX} subscriptions to services already")
        if len(self._of_subscriber.get(subscriber.id, ())) >= BROKER_SUBSCRIPTIONS_PER_PEER_MAX:
            raise FullError(f"a session has at most {BROKER_SUBSCRIPTIONS_PER_PEER_MAX} subscriptions to services")

    def add(self, subscription: ServiceSubscription) -> None:
        correlation = subscription.provider_correlation
        self._by_correlation[correlation] = subscription
        self._of_subscriber.setdefault(subscription.subscriber.id, {})[correlation] = subscription
        self._of_provider.setdefault(subscription.provider.id, {})[correlation] = subscription

    def push(self, provider: Peer, message: Message) -> bool:
        """Pass on what a provider says of a subscription; False if there is none that it could be of."""
        subscription = self._by_correlation.get(message.correlation)
        if subscription is None or subscription.provider.id != provider.id:
            return False
        subscriber = subscription.subscriber
        message = replace(message, correlation=subscription.correlation)
        if message.failure is not None:
            self._drop(subscription)
            subscriber.send(message)
        elif subscriber.is_congested:
            self.cut += 1
            subscriber.close(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))
            self.leave(subscriber)
        else:
            target = None if registry.streams_answers(subscriber.protocol) else topic_of(subscription.interest)
            self._telling.send(subscriber, replace(message, kind=Kind.NOTIFICATION, target=target))
        return True

    def unsubscribe(self, subscriber: Peer, interest: Interest) -> bool:
        """End those to this; False if there are none."""
        own = [each for each in self._of_subscriber.get(subscriber.id, {}).values() if each.interest == interest]
        for subscription in own:
            self._stop(subscription)
        return bool(own)

    def leave(self, peer: Peer) -> None:
        """The peer is gone: providers stop pushing to it, and its own subscribers are told that theirs are over."""
        for subscription in list(self._of_subscriber.get(peer.id, {}).values()):
            clean_up("a subscription", partial(self._stop, subscription))
        for subscription in list(self._of_provider.get(peer.id, {}).values()):
            self._drop(subscription)
            clean_up("a subscription", partial(self._tell_over, subscription, "the provider went away"))

    def _tell_over(self, subscription: ServiceSubscription, why: str) -> None:
        failure = Failure(why, FailureCode.GONE)
        over = Message(kind=Kind.RESPONSE, correlation=subscription.correlation, failure=failure)
        subscription.subscriber.send(over)

    def _stop(self, subscription: ServiceSubscription) -> None:
        self._drop(subscription)
        stop_pushes(subscription.provider, subscription.provider_correlation)

    def _drop(self, subscription: ServiceSubscription) -> None:
        correlation = subscription.provider_correlation
        del self._by_correlation[correlation]
        for by_peer, peer in (
            (self._of_subscriber, subscription.subscriber),
            (self._of_provider, subscription.provider),
        ):
            del by_peer[peer.id][correlation]
            if not by_peer[peer.id]:
                del by_peer[peer.id]


def stop_pushes(provider: Peer, correlation: str) -> None:
    """Tell a provider that nobody wants what it was asked for any more."""
    provider.send(control(Op.UNSUBSCRIBE, correlation=correlation))
