"""Coalesce requests to an upstream: send identical open requests once, and share one subscription among subscribers.

A requester that joins an open request gets the same response as the others; the packets that came before are held for a
while and sent to it first. A subscription lasts as long as it has a subscriber: it is made again after the upstream was
away, and ended when the last subscriber is gone.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field, json
from msgspec.structs import replace

from wirelake.broker.delivery import Notifier, SlowConsumers
from wirelake.broker.peer import Peer
from wirelake.broker.services import Call, failed
from wirelake.errors import EncodeError, StateError, TranslationError
from wirelake.limits import (
    UPSTREAM_KEEP_S,
    UPSTREAM_KEPT_BYTES_MAX,
    UPSTREAM_REQUESTS_OPEN_MAX,
    UPSTREAM_REQUESTS_WAITING_MAX,
    UPSTREAM_SUBSCRIBERS_MAX,
    UPSTREAM_WAITING_BYTES_MAX,
)
from wirelake.message import FORWARDED, FORWARDED_BYTES, Failure, FailureCode, Kind, Message, Operation
from wirelake.protocols import registry
from wirelake.protocols.translation import Interest, call_of, subscribed_by, topic_of

UNSUB: Final = "unsub"
_FORWARDED_HEADERS: Final = frozenset({FORWARDED, FORWARDED_BYTES})
_PACKET_OVERHEAD_BYTES: Final = 256  # counted for a held packet besides its content


class CoalescedRequest(Struct, eq=False):
    """One request to the upstream, and all calls that wait for its response."""

    correlation: str  # on the upstream's session
    key: bytes
    request: Message
    interest: Interest | None = None  # what it subscribes to, if it does
    is_one_way: bool = False  # nobody waits for the response
    bytes: int = 0  # about the length of the request
    waiting: list[Call] = field(default_factory=list)
    confirmed: Message | None = None  # the first response to a subscription, once it is there
    subscribers: dict[tuple[str, str], Call] = field(default_factory=dict)  # by session and correlation
    packets: deque[Message] = field(default_factory=deque)
    has_all_packets: bool = True  # else no further request can join

    @property
    def is_wanted(self) -> bool:
        return self.is_one_way or bool(self.subscribers) or any(not call.over for call in self.waiting)


class RequestCoalescer:
    """Queue requests while the upstream is congested, or has as many open as it may have."""

    def __init__(
        self,
        send: Callable[[Message], None],
        respond: Callable[[Call, Message], bool],
        is_congested: Callable[[], bool],
        notifier: Notifier,
        keep_s: float = UPSTREAM_KEEP_S,
    ) -> None:
        """`send` sends to the upstream. `respond` responds to a call; it returns False if nobody waited for it."""
        self.keep_s = keep_s
        self.joined = 0  # requests that joined an open one
        self._send_upstream = send
        self._respond = respond
        self._is_congested = is_congested
        self._notifier = notifier
        self._slow_consumers = SlowConsumers()
        self._by_key: dict[bytes, CoalescedRequest] = {}
        self._by_correlation: dict[str, CoalescedRequest] = {}
        self._number = 0
        self._open: dict[str, None] = {}  # sent, without a response yet
        self._queue: deque[CoalescedRequest] = deque()
        self._queue_bytes = 0
        # The time and the bytes of each held packet, oldest first, and the request whose oldest packet it is.
        self._kept: deque[tuple[float, int, CoalescedRequest]] = deque()
        self._kept_bytes = 0
        self._of_peer: dict[str, dict[CoalescedRequest, None]] = {}
        self._subscribers = 0

    @property
    def open(self) -> int:
        """Return how many requests are open or queued."""
        return len(self._open) + len(self._queue)

    @property
    def cut(self) -> int:
        """Return how many slow subscribers were closed."""
        return self._slow_consumers.closed

    @property
    def subscriptions(self) -> int:
        return sum(coalesced.interest is not None for coalesced in self._by_correlation.values())

    def calls_of(self, subscriber: Peer) -> list[str]:
        """Return the calls that a peer is subscribed by, as SERVICE/OPERATION."""
        own = self._of_peer.get(subscriber.id, {})
        return [call_of(each.interest) for each in own if each.interest is not None]

    # Requests

    def request(self, call: Call, request: Message, now_s: float) -> None:
        """Send a request, or join an open one that is identical."""
        interest = subscribed_by(request)
        if interest is not None and self._subscribers >= UPSTREAM_SUBSCRIBERS_MAX:
            self._respond(call, failed("", "too many subscribers of this upstream", FailureCode.BUSY))
            return
        self._forget_old(now_s)
        key, size = key_of(request, interest)
        coalesced = self._by_key.get(key)
        if coalesced is not None and (coalesced.has_all_packets or interest is not None):
            self.joined += 1
            self._join(coalesced, call)
            return
        is_too_long = self._queue_bytes + size > UPSTREAM_WAITING_BYTES_MAX
        if len(self._queue) >= UPSTREAM_REQUESTS_WAITING_MAX or is_too_long:
            self._respond(call, failed("", "too many requests wait for this upstream", FailureCode.BUSY))
            return
        coalesced = self._new(key, request, interest)
        coalesced.bytes = size + request.headers.get(FORWARDED_BYTES, 0)
        coalesced.waiting.append(call)
        self._by_key[key] = coalesced
        self._send(coalesced)

    def unsubscribe(self, requester: Peer, interest: Interest) -> None:
        """End the subscriptions of a peer to this, including those that the upstream has not confirmed."""
        for coalesced in [each for each in self._by_correlation.values() if each.interest == interest]:
            own = [call for call in coalesced.waiting if call.requester.id == requester.id]
            coalesced.waiting = [call for call in coalesced.waiting if call.requester.id != requester.id]
            for call in own:
                self._respond(call, failed("", "unsubscribed before it was subscribed"))
        for coalesced in [each for each in self._of_peer.get(requester.id, {}) if each.interest == interest]:
            self._drop_subscriber(coalesced, requester.id)
            del self._of_peer[requester.id][coalesced]
            self._release(coalesced)
        if not self._of_peer.get(requester.id, True):
            del self._of_peer[requester.id]

    def on_close(self, peer: Peer) -> None:
        """End the subscriptions of a closed peer."""
        for coalesced in self._of_peer.pop(peer.id, {}):
            self._drop_subscriber(coalesced, peer.id)
            self._release(coalesced)

    def _join(self, coalesced: CoalescedRequest, call: Call) -> None:
        if coalesced.confirmed is not None:
            if self._respond(call, coalesced.confirmed):
                self._subscribe(coalesced, call)
                for packet in coalesced.packets:
                    self._push(coalesced, call, packet)
            return
        coalesced.waiting.append(call)
        for packet in coalesced.packets:
            self._respond(call, packet)

    # The upstream

    def on_answer(self, message: Message, now_s: float) -> None:
        """Forward a response or a push of the upstream."""
        self._forget_old(now_s)
        coalesced = self._by_correlation.get(message.correlation)
        if coalesced is None:
            return
        if message.kind is Kind.NOTIFICATION:
            self._keep(coalesced, message, now_s)
            for call in list(coalesced.subscribers.values()):
                self._push(coalesced, call, message)
            return
        if message.more and message.failure is None:
            self._keep(coalesced, message, now_s)
            for call in coalesced.waiting:
                self._respond(call, message)
            return
        self._open.pop(coalesced.correlation, None)
        if coalesced.interest is None or message.failure is not None:
            self._finish(coalesced, message)
        else:
            self._confirm(coalesced, message)
        self._send_next()

    def on_connected(self) -> None:
        """Make the subscriptions again on a new connection."""
        for coalesced in list(self._by_correlation.values()):
            self._send(coalesced)

    def on_drain(self) -> None:
        """Go on sending: the upstream is no longer congested."""
        self._send_next()

    def on_connection_lost(self) -> None:
        """Forget open requests, whose calls have failed. Subscriptions wait for the next connection."""
        self._clear()
        for coalesced in list(self._by_correlation.values()):
            coalesced.waiting.clear()
            if not coalesced.subscribers:
                self._drop(coalesced)

    def close(self) -> None:
        """End everything: the upstream is no longer used."""
        for coalesced in list(self._by_correlation.values()):
            self._finish(coalesced, failed("", "this upstream is no longer used", FailureCode.PROVIDER_LOST))
        self._clear()

    def _confirm(self, coalesced: CoalescedRequest, answer: Message) -> None:
        coalesced.confirmed = answer
        waiting, coalesced.waiting = coalesced.waiting, []
        for call in waiting:
            if self._respond(call, answer):
                self._subscribe(coalesced, call)
        self._release(coalesced)

    def _finish(self, coalesced: CoalescedRequest, answer: Message) -> None:
        """Send the final response to those that wait, and end the subscriptions."""
        self._drop(coalesced)
        for call in coalesced.waiting:
            self._respond(call, answer)
        end = replace(answer, failure=Failure("" if answer.failure is None else answer.failure.text, FailureCode.GONE))
        for call in list(coalesced.subscribers.values()):
            call.requester.send(replace(end, correlation=call.correlation))
            self._drop_subscriber(coalesced, call.requester.id)
            self._of_peer.get(call.requester.id, {}).pop(coalesced, None)

    # The queue to the upstream

    def _new(
        self, key: bytes, request: Message, interest: Interest | None, *, is_one_way: bool = False
    ) -> CoalescedRequest:
        self._number += 1
        correlation = str(self._number)
        request = replace(request, correlation=correlation, kind=Kind.REQUEST)
        coalesced = CoalescedRequest(correlation, key, request, interest, is_one_way)
        self._by_correlation[correlation] = coalesced
        return coalesced

    def _send(self, coalesced: CoalescedRequest) -> None:
        self._queue.append(coalesced)
        self._queue_bytes += coalesced.bytes
        self._send_next()

    def _clear(self) -> None:
        self._open.clear()
        self._queue.clear()
        self._queue_bytes = 0

    def _send_next(self) -> None:
        while self._queue and len(self._open) < UPSTREAM_REQUESTS_OPEN_MAX and not self._is_congested():
            coalesced = self._queue.popleft()
            self._queue_bytes -= coalesced.bytes
            if not coalesced.is_wanted:
                self._drop(coalesced)
                continue
            self._open[coalesced.correlation] = None
            try:
                self._send_upstream(coalesced.request)
            except (EncodeError, StateError, TranslationError) as error:
                self._open.pop(coalesced.correlation, None)
                failure = failed("", f"the request cannot be sent to the upstream: {error}", FailureCode.UNENCODABLE)
                self._finish(coalesced, failure)

    def _release(self, coalesced: CoalescedRequest) -> None:
        """Unsubscribe if there is no subscriber left. The upstream identifies a subscription by its interest."""
        if coalesced.is_wanted or coalesced.correlation not in self._by_correlation:
            return
        same = [each for each in self._by_correlation.values() if each.interest == coalesced.interest]
        if any(each.is_wanted for each in same):
            return
        for each in same:
            self._drop(each)
        target = coalesced.request.target
        if isinstance(target, Operation) and coalesced.confirmed is not None:
            request = coalesced.request
            headers = {name: value for name, value in request.headers.items() if name not in _FORWARDED_HEADERS}
            unsub = replace(request, target=replace(target, op=UNSUB), headers=headers)
            self._send(self._new(b"", unsub, None, is_one_way=True))

    def _drop(self, coalesced: CoalescedRequest) -> None:
        self._by_correlation.pop(coalesced.correlation, None)
        if self._by_key.get(coalesced.key) is coalesced:
            del self._by_key[coalesced.key]

    # Subscribers

    def _subscribe(self, coalesced: CoalescedRequest, call: Call) -> None:
        key = call.requester.id, call.correlation
        if key not in coalesced.subscribers:
            self._subscribers += 1
        coalesced.subscribers[key] = call
        self._of_peer.setdefault(call.requester.id, {})[coalesced] = None

    def _drop_subscriber(self, coalesced: CoalescedRequest, peer_id: str) -> None:
        for key in [key for key in coalesced.subscribers if key[0] == peer_id]:
            del coalesced.subscribers[key]
            self._subscribers -= 1

    def _push(self, coalesced: CoalescedRequest, call: Call, packet: Message) -> None:
        requester = call.requester
        if requester.is_congested:
            self.on_close(requester)
            self._slow_consumers.close(requester)
            return
        topic = None if coalesced.interest is None else topic_of(coalesced.interest)
        target = None if registry.streams_answers(requester.protocol) else topic
        self._notifier.send(requester, replace(packet, correlation=call.correlation, target=target))

    # Packets for requests that join later

    def _keep(self, coalesced: CoalescedRequest, packet: Message, now_s: float) -> None:
        size = len(packet.payload) + len(_json(packet.fields) or b"") + _PACKET_OVERHEAD_BYTES
        size += packet.headers.get(FORWARDED_BYTES, 0)
        coalesced.packets.append(packet)
        self._kept.append((now_s, size, coalesced))
        self._kept_bytes += size
        self._forget_old(now_s)

    def _forget_old(self, now_s: float) -> None:
        """Drop packets beyond the age and the size. The oldest of all is also the oldest of its request."""
        while self._kept and (self._kept[0][0] <= now_s - self.keep_s or self._kept_bytes > UPSTREAM_KEPT_BYTES_MAX):
            _, size, coalesced = self._kept.popleft()
            self._kept_bytes -= size
            coalesced.packets.popleft()
            coalesced.has_all_packets = False


def key_of(request: Message, interest: Interest | None) -> tuple[bytes, int]:
    """Return a key that identical requests share (service, operation, format, content), and about their length.

    The format does not matter for a subscription, because pushes are encoded for each subscriber.
    """
    target = request.target if isinstance(request.target, Operation) else Operation("")
    fmt = "" if interest is not None else request.headers.get("fmt", "")
    identity = _json([target.service, target.op, target.object, fmt, request.fields])
    if identity is None:
        identity = request.correlation.encode()  # cannot be compared, so it is like no other
    content = identity + b"\0" + request.payload
    return hashlib.blake2b(content, digest_size=32).digest(), len(content)


def _json(value: Any) -> bytes | None:
    try:
        return json.encode(value, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
