"""Route requests to the providers of services, and responses back.

A request goes to one provider, round-robin if there are several. A provider may register a service in groups: a request
that names a group goes to a provider that registered for it, any other request to any provider of the service. Each
side sees only its own correlation; the broker's call number connects them. When a provider closes, its calls fail.

A call whose response `continues` becomes a subscription: the provider goes on pushing to the requester. It ends when
the subscriber unsubscribes, when the provider says that it failed, or when either of the two closes.
"""

import heapq
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.delivery import Notifier, SlowConsumers
from wirelake.broker.peer import Peer
from wirelake.cleanup import clean_up
from wirelake.errors import (
    AccessDeniedError,
    EncodeError,
    FullError,
    InputError,
    StateError,
    StorageError,
    TranslationError,
    WirelakeError,
)
from wirelake.limits import (
    BROKER_CALL_S,
    BROKER_CALLS_OPEN_MAX,
    BROKER_CALLS_OVER_MAX,
    BROKER_GROUPS_PER_SERVICE_MAX,
    BROKER_SERVICES_PER_PEER_MAX,
    BROKER_SUBSCRIPTIONS_MAX,
    BROKER_SUBSCRIPTIONS_PER_PEER_MAX,
    BROKER_TIMEOUTS_AT_ONCE,
)
from wirelake.message import Failure, FailureCode, Kind, Message, Op, Operation, control
from wirelake.protocols import registry
from wirelake.protocols.translation import Interest, call_of, subscribed_by, topic_of, unsubscribed_by

Hop = Callable[[Peer, str, str, str], None]  # requester, its correlation, what happened, the other side
ROUTED: Final = "routed to"
ANSWERED: Final = "answered by"
TIMED_OUT: Final = "timeout"
# What a request may fail with: the requester gets it as the response.
REQUEST_ERRORS: Final = (
    AccessDeniedError,
    EncodeError,
    InputError,
    StateError,
    StorageError,
    TranslationError,
)

_log = logging.getLogger(__name__)


class Call(Struct, eq=False):
    """A request without a final response yet."""

    number: int
    requester: Peer
    correlation: str
    provider: Peer
    due_s: float
    timeout_s: float
    traced: bool  # until the requester knows who responded
    interest: Interest | None = None  # what it subscribes to, if it does
    over: bool = False  # responded to, or the requester is closed


class ServiceSubscription(Struct, eq=False, frozen=True):
    """A provider pushes under the correlation of the request that subscribed."""

    provider: Peer
    provider_correlation: str
    subscriber: Peer
    correlation: str
    interest: Interest


class ServiceSubscriptions:
    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._slow_consumers = SlowConsumers()
        self._by_correlation: dict[str, ServiceSubscription] = {}  # the provider's
        self._of_subscriber: dict[str, dict[str, ServiceSubscription]] = {}  # peer id → provider's correlation →
        self._of_provider: dict[str, dict[str, ServiceSubscription]] = {}

    def __len__(self) -> int:
        return len(self._by_correlation)

    @property
    def cut(self) -> int:
        """Return how many slow subscribers were closed."""
        return self._slow_consumers.closed

    def calls_of(self, subscriber: Peer) -> list[str]:
        """Return the calls that a peer is subscribed by, as SERVICE/OPERATION."""
        return [call_of(each.interest) for each in self._of_subscriber.get(subscriber.id, {}).values()]

    def check_limits(self, subscriber: Peer) -> None:
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
        """Forward what a provider pushes. Return False if there is no such subscription of it."""
        subscription = self._by_correlation.get(message.correlation)
        if subscription is None or subscription.provider.id != provider.id:
            return False
        subscriber = subscription.subscriber
        message = replace(message, correlation=subscription.correlation)
        if message.failure is not None:
            self._drop(subscription)
            subscriber.send(message)
        elif subscriber.is_congested:
            self._slow_consumers.close(subscriber)
            self.leave(subscriber)
        else:
            target = None if registry.streams_answers(subscriber.protocol) else topic_of(subscription.interest)
            self._notifier.send(subscriber, replace(message, kind=Kind.NOTIFICATION, target=target))
        return True

    def unsubscribe(self, subscriber: Peer, interest: Interest) -> bool:
        """End the subscriptions to this. Return False if there are none."""
        own = [each for each in self._of_subscriber.get(subscriber.id, {}).values() if each.interest == interest]
        for subscription in own:
            self._stop(subscription)
        return bool(own)

    def leave(self, peer: Peer) -> None:
        """Ask the providers to stop pushing to a closed peer, and end the subscriptions that it provided."""
        for subscription in list(self._of_subscriber.get(peer.id, {}).values()):
            clean_up("a subscription", partial(self._stop, subscription))
        for subscription in list(self._of_provider.get(peer.id, {}).values()):
            self._drop(subscription)
            clean_up("a subscription", partial(self._send_end, subscription, "the provider went away"))

    def _send_end(self, subscription: ServiceSubscription, why: str) -> None:
        failure = Failure(why, FailureCode.GONE)
        end = Message(kind=Kind.RESPONSE, correlation=subscription.correlation, failure=failure)
        subscription.subscriber.send(end)

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


class Services:
    def __init__(self, notifier: Notifier | None = None, on_hop: Hop | None = None) -> None:
        """`on_hop` is called for each step of a traced request."""
        self.subscriptions = ServiceSubscriptions(notifier or Notifier())
        self.timeouts = 0
        self.hop: Hop = on_hop or _ignore_hop
        self.absent: dict[str, str] = {}  # service → why it has no provider, where that is known
        self._providers: dict[tuple[str, str], list[Peer]] = {}  # by service and group; group "": all of them
        self._provided: dict[str, dict[str, set[str]]] = {}  # peer id → service → its groups ("": without one)
        self._next: dict[tuple[str, str], int] = {}
        self._calls: dict[int, Call] = {}
        self._due: list[tuple[float, int]] = []  # when and call number; calls that are over are skipped
        self._number = 0

    @property
    def open(self) -> int:
        """Return how many calls wait for a response."""
        return len(self._calls)

    @property
    def timers(self) -> int:
        """Return how many timers are held, including those of calls that are over."""
        return len(self._due)

    @property
    def due_s(self) -> float | None:
        """Return when `tick` next has something to do."""
        while self._due:
            due_s, number = self._due[0]
            call = self._calls.get(number)
            if call is not None and call.due_s <= due_s:
                break
            heapq.heappop(self._due)
            if call is not None:  # a part of its response came since
                heapq.heappush(self._due, (call.due_s, number))
        return self._due[0][0] if self._due else None

    def names(self) -> dict[str, int]:
        """Return every service with its number of providers."""
        return {name: len(peers) for (name, group), peers in self._providers.items() if not group}

    def providers(self, service: str) -> set[str]:
        """Return the identities that provide a service."""
        return {peer.identity for peer in self._providers.get((service, ""), ())}

    def provided_by(self, peer: Peer) -> list[str]:
        """Return the services that a peer provides."""
        return list(self._provided.get(peer.id, ()))

    def register(self, peer: Peer, service: str, group: str = "") -> None:
        """Add a provider of this service; with a group, also for requests that name the group."""
        provided = self._provided.setdefault(peer.id, {})
        groups = provided.get(service, set())
        if service not in provided and len(provided) >= BROKER_SERVICES_PER_PEER_MAX:
            raise FullError(f"a session provides at most {BROKER_SERVICES_PER_PEER_MAX} services")
        if group not in groups and len(groups) >= BROKER_GROUPS_PER_SERVICE_MAX:
            raise FullError(f"a session provides a service in at most {BROKER_GROUPS_PER_SERVICE_MAX} groups")
        if service not in provided:
            provided[service] = groups
            self._providers.setdefault((service, ""), []).append(peer)
        if group and group not in groups:
            self._providers.setdefault((service, group), []).append(peer)
        groups.add(group)

    def unregister(self, peer: Peer, service: str, group: str = "") -> None:
        """Remove a provider: from this group, or from the service if no group is given."""
        provided = self._provided.get(peer.id, {})
        groups = provided.get(service)
        if groups is None or (group and group not in groups):
            return
        removed = {group} if group else set(groups)
        groups -= removed
        for each in removed - {""}:
            self._remove(peer, service, each)
        if not groups:
            del provided[service]
            self._remove(peer, service, "")
        if not provided:
            del self._provided[peer.id]

    def _remove(self, peer: Peer, service: str, group: str) -> None:
        left = [other for other in self._providers[service, group] if other.id != peer.id]
        if left:
            self._providers[service, group] = left
        else:
            del self._providers[service, group]
            self._next.pop((service, group), None)

    def request(self, requester: Peer, message: Message, now_s: float, timeout_s: float = BROKER_CALL_S) -> None:
        """Send a request to a provider. Respond at once if there is none, or if it ends a subscription."""
        target = _operation(message)
        interest = unsubscribed_by(message)
        if interest is not None and self.subscriptions.unsubscribe(requester, interest):
            requester.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
            return
        provider = self._next_provider(target)
        if provider is None:
            why = "" if target.group else self.absent.get(target.service)
            lost = failed(message.correlation, why, FailureCode.PROVIDER_LOST) if why else None
            requester.send(lost or failed(message.correlation, not_found(target), FailureCode.NOT_FOUND))
        else:
            self.call(requester, message, provider, now_s, timeout_s)

    def send_one_way(self, message: Message) -> bool:
        """Send a message without a response to a provider. Return False if it reached none."""
        provider = self._next_provider(_operation(message))
        if provider is None:
            return False
        try:
            provider.send(replace(message, correlation="", kind=Kind.EVENT))
        except (EncodeError, StateError, TranslationError) as error:
            _log.debug("a one-way message cannot be sent to session %s: %s", provider.id, error)
            return False
        return True

    def _next_provider(self, target: Operation) -> Peer | None:
        key = (target.service, target.group)
        providers = self._providers.get(key)
        if not providers:
            return None
        turn = self._next.get(key, 0)
        self._next[key] = turn + 1
        return providers[turn % len(providers)]

    def call(self, requester: Peer, message: Message, provider: Peer, now_s: float, timeout_s: float) -> None:
        """Send a request to this provider."""
        if len(self._calls) >= BROKER_CALLS_OPEN_MAX:
            raise FullError(f"{BROKER_CALLS_OPEN_MAX} calls are under way already")
        interest = subscribed_by(message)
        if interest is not None:
            self.subscriptions.check_limits(requester)
        self._number += 1
        due_s = now_s + timeout_s
        call = Call(self._number, requester, message.correlation, provider, due_s, timeout_s, message.traced, interest)
        self._calls[call.number] = call
        heapq.heappush(self._due, (call.due_s, call.number))
        try:
            provider.send(replace(message, correlation=str(call.number), kind=Kind.REQUEST))
        except (EncodeError, StateError, TranslationError) as error:
            self._finish(
                call, failed("", f"the request cannot be sent to the provider: {error}", FailureCode.UNENCODABLE)
            )
            return
        except StorageError as error:
            self._finish(call, failed("", str(error), FailureCode.STORAGE))
            return
        if call.traced:
            self.hop(requester, call.correlation, ROUTED, provider.identity or provider.id)

    def find(self, correlation: str) -> Call | None:
        """Return the open call with this correlation on the provider's side."""
        return self._calls.get(int(correlation)) if correlation.isdecimal() else None

    def on_answer(self, provider: Peer, message: Message, now_s: float = 0.0) -> bool:
        """Forward a provider's response. Return False if nobody waits for it, for example after a timeout.

        Each part of a response in several starts the time for the next one.
        """
        call = self.find(message.correlation)
        if call is None or call.provider.id != provider.id:
            if message.continues:
                stop_pushes(provider, message.correlation)
            return self.subscriptions.push(provider, message)
        if call.traced:
            call.traced = False
            self.hop(call.requester, call.correlation, ANSWERED, provider.identity or provider.id)
        if message.more:
            call.due_s = max(call.due_s, now_s + call.timeout_s)
            try:
                call.requester.send(replace(message, correlation=call.correlation))
            except (EncodeError, TranslationError) as error:
                self._finish(call, failed("", f"the response cannot be sent: {error}", FailureCode.UNENCODABLE))
        else:
            if message.continues and call.interest is not None:
                subscription = ServiceSubscription(
                    provider, message.correlation, call.requester, call.correlation, call.interest
                )
                self.subscriptions.add(subscription)
            self._finish(call, message)
        return True

    def tick(self, now_s: float) -> None:
        """Fail calls that timed out, a bounded number at once."""
        for _ in range(BROKER_TIMEOUTS_AT_ONCE):
            due_s = self.due_s
            if due_s is None or due_s > now_s:
                return
            call = self._calls[heapq.heappop(self._due)[1]]
            self.timeouts += 1
            clean_up(f"call {call.number}", partial(self._finish, call, failed("", TIMED_OUT, FailureCode.TIMEOUT)))

    def leave(self, peer: Peer) -> None:
        """Remove what a closed peer provided and requested."""
        for service in list(self._provided.get(peer.id, {})):
            self.unregister(peer, service)
        for call in list(self._calls.values()):
            if call.requester.id == peer.id:
                call.over = True
                del self._calls[call.number]
            elif call.provider.id == peer.id:
                lost = failed("", "the provider went away", FailureCode.PROVIDER_LOST)
                clean_up(f"call {call.number}", partial(self._finish, call, lost))
        self.subscriptions.leave(peer)

    def _finish(self, call: Call, answer: Message) -> None:
        """Send the final response, or a failure if it is not encodable in the requester's protocol."""
        call.over = True
        del self._calls[call.number]
        if len(self._due) > BROKER_CALLS_OVER_MAX + 2 * len(self._calls):
            self._due = [due for due in self._due if due[1] in self._calls]
            heapq.heapify(self._due)
        try:
            call.requester.send(replace(answer, correlation=call.correlation))
        except (EncodeError, TranslationError) as error:
            text = f"the response cannot be sent: {error}"
            call.requester.send(failed(call.correlation, text, FailureCode.UNENCODABLE))


def stop_pushes(provider: Peer, correlation: str) -> None:
    """Ask a provider to end a subscription."""
    provider.send(control(Op.UNSUBSCRIBE, correlation=correlation))


def _operation(message: Message) -> Operation:
    if not isinstance(message.target, Operation):
        raise StateError("a request without a service")
    return message.target


def _ignore_hop(_asker: Peer, _correlation: str, _hop: str, _who: str) -> None:
    """Do nothing: hops are not traced."""


def failed(correlation: str, text: str, code: int = 0) -> Message:
    """Return a response that reports a failure."""
    return Message(kind=Kind.RESPONSE, correlation=correlation, failure=Failure(text, code))


def failed_with(error: WirelakeError, correlation: str = "") -> Message:
    """Return the response to a request that failed with one of REQUEST_ERRORS."""
    if isinstance(error, AccessDeniedError):
        return failed(correlation, str(error), FailureCode.ACCESS_DENIED)
    is_ours = isinstance(error, StorageError)
    return failed(correlation, str(error), FailureCode.STORAGE if is_ours else FailureCode.BAD_REQUEST)


def not_found(target: Operation) -> str:
    """Return the text of the failure, as ESNP services word it."""
    group = f",50={target.group}" if target.group else ""
    return f"Address[20={target.op},30={target.service}{group}] not found ServiceHandler"
