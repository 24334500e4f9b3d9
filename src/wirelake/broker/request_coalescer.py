"""Many askers, one upstream: identical requests under way are asked once, and one subscription serves all subscribers.

Whoever asks what is being asked already is answered together with the others; the packets of the answer that came
before are kept for a while and given to it first. A subscription lives as long as anybody wants it: it is asked for
again when the upstream was away, and called off when the last subscriber is gone.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field, json
from msgspec.structs import replace

from wirelake.broker.notifier import Notifier
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
from wirelake.protocols.interest import Interest, subscribed_by, topic_of
from wirelake.protocols.session import Closing

UNSUB: Final = "unsub"
_RELAYED: Final = frozenset({FORWARDED, FORWARDED_BYTES})
_PACKET_OVERHEAD_BYTES: Final = 256  # what a kept packet counts, beside its content


class CoalescedRequest(Struct, eq=False):
    """One request to the upstream, and everybody who wants to know what comes of it."""

    correlation: str  # the upstream's session knows it by this
    key: bytes
    request: Message
    interest: Interest | None = None  # what is subscribed to, if it is a subscription
    one_way: bool = False  # nobody waits for the answer
    bytes: int = 0  # about how long the request is
    waiting: list[Call] = field(default_factory=list)
    confirmed: Message | None = None  # a subscription's first answer, once it is there
    subscribers: dict[tuple[str, str], Call] = field(default_factory=dict)  # by session and correlation
    packets: deque[Message] = field(default_factory=deque)
    whole: bool = True  # `packets` are all that came; else nobody can join a request

    @property
    def wanted(self) -> bool:
        return self.one_way or bool(self.subscribers) or any(not call.over for call in self.waiting)


class RequestCoalescer:
    """`ask` sends a request upstream; `answer` answers a call, and says whether somebody still waited for it.

    While the upstream takes in less than it is sent, `congested`, what it is asked waits here.
    """

    def __init__(
        self,
        ask: Callable[[Message], None],
        answer: Callable[[Call, Message], bool],
        congested: Callable[[], bool],
        telling: Notifier,
        keep_s: float = UPSTREAM_KEEP_S,
    ) -> None:
        self.keep_s = keep_s
        self.joined = 0  # requests that needed none of their own upstream
        self.cut = 0  # slow subscribers cut off
        self._ask = ask
        self._answer = answer
        self._congested = congested
        self._telling = telling
        self._by_key: dict[bytes, CoalescedRequest] = {}
        self._by_correlation: dict[str, CoalescedRequest] = {}
        self._number = 0
        self._open: dict[str, None] = {}  # asked and not answered
        self._queue: deque[CoalescedRequest] = deque()
        self._queue_bytes = 0
        self._kept: deque[tuple[float, int, CoalescedRequest]] = deque()  # when, bytes, whose oldest packet
        self._kept_bytes = 0
        self._of_peer: dict[str, dict[CoalescedRequest, None]] = {}
        self._subscribers = 0

    @property
    def open(self) -> int:
        """Requests that are under way or wait for their turn."""
        return len(self._open) + len(self._queue)

    @property
    def subscriptions(self) -> int:
        return sum(shared.interest is not None for shared in self._by_correlation.values())

    # What is asked here

    def ask(self, call: Call, request: Message, now_s: float) -> None:
        """Somebody asks this of the upstream."""
        interest = subscribed_by(request)
        if interest is not None and self._subscribers >= UPSTREAM_SUBSCRIBERS_MAX:
            self._answer(call, failed("", "too many subscribers of this upstream", FailureCode.BUSY))
            return
        self._forget_old(now_s)
        key, size = key_of(request, interest)
        shared = self._by_key.get(key)
        if shared is not None and (shared.whole or interest is not None):
            self.joined += 1
            self._join(shared, call)
            return
        too_long = self._queue_bytes + size > UPSTREAM_WAITING_BYTES_MAX
        if len(self._queue) >= UPSTREAM_REQUESTS_WAITING_MAX or too_long:
            self._answer(call, failed("", "too many requests wait for this upstream", FailureCode.BUSY))
            return
        shared = self._new(key, request, interest)
        shared.bytes = size + request.headers.get(FORWARDED_BYTES, 0)
        shared.waiting.append(call)
        self._by_key[key] = shared
        self._send(shared)

    def unsubscribe(self, asker: Peer, interest: Interest) -> None:
        """Also what it asked for and was not told of yet."""
        for shared in [each for each in self._by_correlation.values() if each.interest == interest]:
            own = [call for call in shared.waiting if call.asker.id == asker.id]
            shared.waiting = [call for call in shared.waiting if call.asker.id != asker.id]
            for call in own:
                self._answer(call, failed("", "unsubscribed before it was subscribed"))
        for shared in [each for each in self._of_peer.get(asker.id, {}) if each.interest == interest]:
            self._drop_subscriber(shared, asker.id)
            del self._of_peer[asker.id][shared]
            self._release(shared)
        if not self._of_peer.get(asker.id, True):
            del self._of_peer[asker.id]

    def on_close(self, peer: Peer) -> None:
        """The peer is gone, with its subscriptions."""
        for shared in self._of_peer.pop(peer.id, {}):
            self._drop_subscriber(shared, peer.id)
            self._release(shared)

    def _join(self, shared: CoalescedRequest, call: Call) -> None:
        if shared.confirmed is not None:
            if self._answer(call, shared.confirmed):
                self._subscribe(shared, call)
                for packet in shared.packets:
                    self._push(shared, call, packet)
            return
        shared.waiting.append(call)
        for packet in shared.packets:
            self._answer(call, packet)

    # What the upstream says

    def on_answer(self, message: Message, now_s: float) -> None:
        self._forget_old(now_s)
        shared = self._by_correlation.get(message.correlation)
        if shared is None:
            return
        if message.kind is Kind.NOTIFICATION:
            self._keep(shared, message, now_s)
            for call in list(shared.subscribers.values()):
                self._push(shared, call, message)
            return
        if message.more and message.failure is None:
            self._keep(shared, message, now_s)
            for call in shared.waiting:
                self._answer(call, message)
            return
        self._open.pop(shared.correlation, None)
        if shared.interest is None or message.failure is not None:
            self._finish(shared, message)
        else:
            self._confirm(shared, message)
        self._send_next()

    def on_connected(self) -> None:
        """The upstream can be asked, perhaps again: its subscriptions are made anew."""
        for shared in list(self._by_correlation.values()):
            self._send(shared)

    def on_drain(self) -> None:
        """The upstream has taken in what it was sent."""
        self._send_next()

    def on_connection_lost(self) -> None:
        """The upstream went away, and whoever waited was told. Subscriptions stay, and wait for it."""
        self._clear()
        for shared in list(self._by_correlation.values()):
            shared.waiting.clear()
            if not shared.subscribers:
                self._drop(shared)

    def close(self) -> None:
        """There will be no upstream any more."""
        for shared in list(self._by_correlation.values()):
            self._finish(shared, failed("", "this upstream is no longer used", FailureCode.PROVIDER_LOST))
        self._clear()

    def _confirm(self, shared: CoalescedRequest, answer: Message) -> None:
        shared.confirmed = answer
        waiting, shared.waiting = shared.waiting, []
        for call in waiting:
            if self._answer(call, answer):
                self._subscribe(shared, call)
        self._release(shared)

    def _finish(self, shared: CoalescedRequest, answer: Message) -> None:
        """The last word on it. Subscribers were answered before: what ends is a request that was still valid."""
        self._drop(shared)
        for call in shared.waiting:
            self._answer(call, answer)
        over = replace(answer, failure=Failure("" if answer.failure is None else answer.failure.text, FailureCode.GONE))
        for call in list(shared.subscribers.values()):
            call.asker.send(replace(over, correlation=call.correlation))
            self._drop_subscriber(shared, call.asker.id)
            self._of_peer.get(call.asker.id, {}).pop(shared, None)

    # Asking upstream, so much at once

    def _new(
        self, key: bytes, request: Message, interest: Interest | None, *, one_way: bool = False
    ) -> CoalescedRequest:
        self._number += 1
        correlation = str(self._number)
        request = replace(request, correlation=correlation, kind=Kind.REQUEST)
        shared = CoalescedRequest(correlation, key, request, interest, one_way)
        self._by_correlation[correlation] = shared
        return shared

    def _send(self, shared: CoalescedRequest) -> None:
        self._queue.append(shared)
        self._queue_bytes += shared.bytes
        self._send_next()

    def _clear(self) -> None:
        self._open.clear()
        self._queue.clear()
        self._queue_bytes = 0

    def _send_next(self) -> None:
        while self._queue and len(self._open) < UPSTREAM_REQUESTS_OPEN_MAX and not self._congested():
            shared = self._queue.popleft()
            self._queue_bytes -= shared.bytes
            if not shared.wanted:
                self._drop(shared)
                continue
            self._open[shared.correlation] = None
            try:
                self._ask(shared.request)
            except (EncodeError, StateError, TranslationError) as error:
                self._open.pop(shared.correlation, None)
                self._finish(shared, failed("", f"the upstream cannot be asked this: {error}", FailureCode.UNENCODABLE))

    def _release(self, shared: CoalescedRequest) -> None:
        """If nobody wants it any more, call it off; the upstream knows subscriptions by what they are to."""
        if shared.wanted or shared.correlation not in self._by_correlation:
            return
        same = [each for each in self._by_correlation.values() if each.interest == shared.interest]
        if any(each.wanted for each in same):
            return
        for each in same:
            self._drop(each)
        target = shared.request.target
        if isinstance(target, Operation) and shared.confirmed is not None:
            headers = {name: value for name, value in shared.request.headers.items() if name not in _RELAYED}
            unsub = replace(shared.request, target=replace(target, op=UNSUB), headers=headers)
            self._send(self._new(b"", unsub, None, one_way=True))

    def _drop(self, shared: CoalescedRequest) -> None:
        self._by_correlation.pop(shared.correlation, None)
        if self._by_key.get(shared.key) is shared:
            del self._by_key[shared.key]

    # Subscribers

    def _subscribe(self, shared: CoalescedRequest, call: Call) -> None:
        place = call.asker.id, call.correlation
        if place not in shared.subscribers:
            self._subscribers += 1
        shared.subscribers[place] = call
        self._of_peer.setdefault(call.asker.id, {})[shared] = None

    def _drop_subscriber(self, shared: CoalescedRequest, peer_id: str) -> None:
        for place in [place for place in shared.subscribers if place[0] == peer_id]:
            del shared.subscribers[place]
            self._subscribers -= 1

    def _push(self, shared: CoalescedRequest, call: Call, packet: Message) -> None:
        asker = call.asker
        if asker.is_congested:
            self.cut += 1
            self.on_close(asker)
            asker.close(Closing("slow_consumer", "reads more slowly than its subscriptions bring"))
            return
        topic = None if shared.interest is None else topic_of(shared.interest)
        target = None if registry.streams_answers(asker.protocol) else topic
        self._telling.send(asker, replace(packet, correlation=call.correlation, target=target))

    # Packets for those who come later

    def _keep(self, shared: CoalescedRequest, packet: Message, now_s: float) -> None:
        size = len(packet.payload) + len(_json(packet.fields) or b"") + _PACKET_OVERHEAD_BYTES
        size += packet.headers.get(FORWARDED_BYTES, 0)
        shared.packets.append(packet)
        self._kept.append((now_s, size, shared))
        self._kept_bytes += size
        self._forget_old(now_s)

    def _forget_old(self, now_s: float) -> None:
        """Packets come in the order of their time: whose is the oldest of all is the oldest of that one."""
        while self._kept and (self._kept[0][0] <= now_s - self.keep_s or self._kept_bytes > UPSTREAM_KEPT_BYTES_MAX):
            _, size, shared = self._kept.popleft()
            self._kept_bytes -= size
            shared.packets.popleft()
            shared.whole = False


def key_of(request: Message, interest: Interest | None) -> tuple[bytes, int]:
    """Requests with the same key ask the same: service, command, format and what is asked. For a subscription the
    format does not matter, because what is pushed is written for each subscriber. Also about how long the request is.
    """
    target = request.target if isinstance(request.target, Operation) else Operation("")
    fmt = "" if interest is not None else request.headers.get("fmt", "")
    asked = _json([target.service, target.op, target.object, fmt, request.fields])
    if asked is None:
        asked = request.correlation.encode()  # cannot be compared: like no other
    content = asked + b"\0" + request.payload
    return hashlib.blake2b(content, digest_size=32).digest(), len(content)


def _json(value: Any) -> bytes | None:
    try:
        return json.encode(value, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
