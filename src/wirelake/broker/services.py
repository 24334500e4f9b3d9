"""Services: who provides which, and the calls under way.

A request goes to one provider, in turn where there are several. A provider may register a service in groups: a request
that names a group goes to those who registered for it, any other request to any provider of the service.
Each side sees only its own correlation; the broker's own call number ties them together. A provider that goes away
fails the calls it had. A call whose answer continues becomes one of the `subscriptions`.
"""

import heapq
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.notifier import Notifier
from wirelake.broker.peer import Peer
from wirelake.broker.service_subscriptions import ServiceSubscription, ServiceSubscriptions, stop_pushes
from wirelake.cleanup import clean_up
from wirelake.errors import EncodeError, FullError, StateError, StorageError, TranslationError
from wirelake.limits import (
    BROKER_CALL_S,
    BROKER_CALLS_OPEN_MAX,
    BROKER_CALLS_OVER_MAX,
    BROKER_GROUPS_PER_SERVICE_MAX,
    BROKER_SERVICES_PER_PEER_MAX,
    BROKER_TIMEOUTS_AT_ONCE,
)
from wirelake.message import Failure, FailureCode, Kind, Message, Operation
from wirelake.protocols.interest import Interest, subscribed_by, unsubscribed_by

Hop = Callable[[Peer, str, str, str], None]  # who asked, its correlation, what happened, to or by whom
ROUTED: Final = "routed to"
ANSWERED: Final = "answered by"
TIMED_OUT: Final = "timeout"

_log = logging.getLogger(__name__)


class Call(Struct, eq=False):
    """A request on its way: who asked, how it called it, who is to answer."""

    number: int
    asker: Peer
    correlation: str
    provider: Peer
    due_s: float
    timeout_s: float
    traced: bool  # until its asker was told who answered
    interest: Interest | None = None  # what it subscribes to, if it does
    over: bool = False  # answered, or nobody is there who could be told


class Services:
    def __init__(self, telling: Notifier | None = None) -> None:
        self.subscriptions = ServiceSubscriptions(telling or Notifier())
        self.timeouts = 0
        self.hop: Hop = _untold
        self.absent: dict[str, str] = {}  # service → why it has no provider, where that is known
        self._providers: dict[tuple[str, str], list[Peer]] = {}  # by service and group; group "": all of them
        self._provided: dict[
            str, dict[str, set[str]]
        ] = {}  # peer id → its services, each with the groups it named ("": without)
        self._next: dict[tuple[str, str], int] = {}
        self._calls: dict[int, Call] = {}
        self._due: list[tuple[float, int]] = []  # (when, call number); answered calls are skipped when they come up
        self._number = 0

    @property
    def open(self) -> int:
        return len(self._calls)

    @property
    def due_s(self) -> float | None:
        """When `tick` next has something to do."""
        while self._due:
            due_s, number = self._due[0]
            call = self._calls.get(number)
            if call is not None and call.due_s <= due_s:
                break
            heapq.heappop(self._due)
            if call is not None:  # a packet of its answer came since
                heapq.heappush(self._due, (call.due_s, number))
        return self._due[0][0] if self._due else None

    def names(self) -> dict[str, int]:
        """Every service with its number of providers."""
        return {name: len(peers) for (name, group), peers in self._providers.items() if not group}

    def register(self, peer: Peer, service: str, group: str = "") -> None:
        """Let the peer be asked for this service; with a group, also by requests that name it."""
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
        """End what `register` began: in this group, or without one in all of them."""
        provided = self._provided.get(peer.id, {})
        groups = provided.get(service)
        if groups is None or (group and group not in groups):
            return
        ended = {group} if group else set(groups)
        groups -= ended
        for each in ended - {""}:
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

    def request(self, asker: Peer, message: Message, now_s: float, timeout_s: float = BROKER_CALL_S) -> None:
        """Pass it to a provider, or answer at once: that there is none, or that a subscription is over."""
        target = _operation(message)
        interest = unsubscribed_by(message)
        if interest is not None and self.subscriptions.unsubscribe(asker, interest):
            asker.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
            return
        provider = self._whose_turn(target)
        if provider is None:
            why = "" if target.group else self.absent.get(target.service)
            told = failed(message.correlation, why, FailureCode.PROVIDER_LOST) if why else None
            asker.send(told or failed(message.correlation, not_found(target), FailureCode.NOT_FOUND))
        else:
            self.call(asker, message, provider, now_s, timeout_s)

    def send_one_way(self, message: Message) -> bool:
        """Pass on what nobody waits for an answer to; False if it reached nobody."""
        provider = self._whose_turn(_operation(message))
        if provider is None:
            return False
        try:
            provider.send(replace(message, correlation="", kind=Kind.EVENT))
        except (EncodeError, StateError, TranslationError) as error:
            _log.debug("session %s cannot be told this: %s", provider.id, error)
            return False
        return True

    def _whose_turn(self, target: Operation) -> Peer | None:
        key = (target.service, target.group)
        providers = self._providers.get(key)
        if not providers:
            return None
        turn = self._next.get(key, 0)
        self._next[key] = turn + 1
        return providers[turn % len(providers)]

    def call(self, asker: Peer, message: Message, provider: Peer, now_s: float, timeout_s: float) -> None:
        """Pass it to this one."""
        if len(self._calls) >= BROKER_CALLS_OPEN_MAX:
            raise FullError(f"{BROKER_CALLS_OPEN_MAX} calls are under way already")
        interest = subscribed_by(message)
        if interest is not None:
            self.subscriptions.check_room(asker)
        self._number += 1
        due_s = now_s + timeout_s
        call = Call(self._number, asker, message.correlation, provider, due_s, timeout_s, message.traced, interest)
        self._calls[call.number] = call
        heapq.heappush(self._due, (call.due_s, call.number))
        try:
            provider.send(replace(message, correlation=str(call.number), kind=Kind.REQUEST))
        except (EncodeError, StateError, TranslationError) as error:
            self._finish(call, failed("", f"the provider cannot be asked this: {error}", FailureCode.UNENCODABLE))
            return
        except StorageError as error:
            self._finish(call, failed("", str(error), FailureCode.STORAGE))
            return
        if call.traced:
            self.hop(asker, call.correlation, ROUTED, provider.identity or provider.id)

    def find(self, correlation: str) -> Call | None:
        """The call that a provider was asked with this correlation for, while it is open."""
        return self._calls.get(int(correlation)) if correlation.isdecimal() else None

    def on_answer(self, provider: Peer, message: Message, now_s: float = 0.0) -> bool:
        """A provider answered; False if nobody waits for it, as after a time-out.

        With each packet of an answer in several, the time for the next one begins.
        """
        call = self.find(message.correlation)
        if call is None or call.provider.id != provider.id:
            if message.continues:
                stop_pushes(provider, message.correlation)
            return self.subscriptions.push(provider, message)
        if call.traced:
            call.traced = False
            self.hop(call.asker, call.correlation, ANSWERED, provider.identity or provider.id)
        if message.more:
            call.due_s = max(call.due_s, now_s + call.timeout_s)
            try:
                call.asker.send(replace(message, correlation=call.correlation))
            except (EncodeError, TranslationError) as error:
                self._finish(call, failed("", f"the answer cannot be told: {error}", FailureCode.UNENCODABLE))
        else:
            if message.continues and call.interest is not None:
                number, asker = message.correlation, call.asker
                self.subscriptions.add(ServiceSubscription(provider, number, asker, call.correlation, call.interest))
            self._finish(call, message)
        return True

    def tick(self, now_s: float) -> None:
        """Answer for those whose time is over; where they are many, for the rest at the next call."""
        for _ in range(BROKER_TIMEOUTS_AT_ONCE):
            due_s = self.due_s
            if due_s is None or due_s > now_s:
                return
            call = self._calls[heapq.heappop(self._due)[1]]
            self.timeouts += 1
            clean_up(f"call {call.number}", partial(self._finish, call, failed("", TIMED_OUT, FailureCode.TIMEOUT)))

    def leave(self, peer: Peer) -> None:
        """The peer is gone, with what it provided and asked."""
        for service in list(self._provided.get(peer.id, {})):
            self.unregister(peer, service)
        for call in list(self._calls.values()):
            if call.asker.id == peer.id:
                call.over = True
                del self._calls[call.number]
            elif call.provider.id == peer.id:
                lost = failed("", "the provider went away", FailureCode.PROVIDER_LOST)
                clean_up(f"call {call.number}", partial(self._finish, call, lost))
        self.subscriptions.leave(peer)

    def _finish(self, call: Call, answer: Message) -> None:
        """The one final answer. Where the asker's protocol cannot carry it, that is the answer."""
        call.over = True
        del self._calls[call.number]
        if len(self._due) > BROKER_CALLS_OVER_MAX + 2 * len(self._calls):
            self._due = [due for due in self._due if due[1] in self._calls]
            heapq.heapify(self._due)
        try:
            call.asker.send(replace(answer, correlation=call.correlation))
        except (EncodeError, TranslationError) as error:
            text = f"the answer cannot be told: {error}"
            call.asker.send(failed(call.correlation, text, FailureCode.UNENCODABLE))


def _operation(message: Message) -> Operation:
    if not isinstance(message.target, Operation):
        raise StateError("a request without a service")
    return message.target


def _untold(_asker: Peer, _correlation: str, _hop: str, _who: str) -> None:
    """Nobody tells of hops."""


def failed(correlation: str, text: str, code: int = 0) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=correlation, failure=Failure(text, code))


def not_found(target: Operation) -> str:
    """In the words that esnp's own services use."""
    group = f",50={target.group}" if target.group else ""
    return f"Address[20={target.op},30={target.service}{group}] not found ServiceHandler"
