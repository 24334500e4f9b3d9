"""Open requests: our own, which the peer has to answer, and those of the peer, with the replies to them."""

from collections import deque

from msgspec import Struct, field

from wirelake.errors import EncodeError, TranslationError
from wirelake.message import Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.esnp import lines as making
from wirelake.protocols.esnp.constants import ESNP_REQUESTS_OPEN_MAX, Flag, LineType
from wirelake.protocols.esnp.contents import Contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.writing import assemble, body_lines, error_lines, untouched_lines

# ── our own requests


class OwnRequest(Struct, frozen=True):
    """A request that the peer has not answered."""

    correlation: str  # of our own side
    due_s: float


class OwnRequests:
    """Our open requests, by MESSAGE_ID. We number them from 1."""

    __slots__ = ("_last", "_open")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, OwnRequest] = {}

    @property
    def is_full(self) -> bool:
        return len(self._open) >= ESNP_REQUESTS_OPEN_MAX

    @property
    def due_s(self) -> float | None:
        """Return when the first of them expires."""
        return min((request.due_s for request in self._open.values()), default=None)

    def number(self) -> int:
        self._last += 1
        return self._last

    def add(self, number: int, correlation: str, due_s: float) -> None:
        self._open[number] = OwnRequest(correlation, due_s)

    def find(self, number: int | None) -> str | None:
        """Return the correlation of the request with this number; None if none is open."""
        request = None if number is None else self._open.get(number)
        return None if request is None else request.correlation

    def close(self, number: int) -> None:
        self._open.pop(number, None)

    def expire(self, now_s: float) -> list[str]:
        """Remove the requests that have expired, and return their correlations."""
        expired = [number for number, request in self._open.items() if request.due_s <= now_s]
        return [self._open.pop(number).correlation for number in expired]


# ── replies


class ReplyTo(Struct, frozen=True):
    """What a reply needs of its request, which itself may be large and is not stored."""

    flags: tuple[Line, ...]
    head: tuple[Line, ...]  # the addresses and the number of the request
    body: tuple[Line, ...]
    has_number: bool  # it has a MESSAGE_ID, so its answers may come in any order


def reply_to(contents: Contents) -> ReplyTo:
    """Return what replies copy from a request; of a malformed one, only the number and the flags."""
    flags = [making.flag_line(flag) for flag in contents.flags if flag in (Flag.REQUEST, Flag.INFO)]
    head: list[Line] = []
    body: list[Line] = []
    if contents.malformed is None:
        for line in contents.frame.lines:
            if line.type == LineType.SOURCE_ADDRESS:
                head.append(Line(LineType.ADDRESS.value, line.data))
            elif line.type == LineType.SESSION_INFO:
                body.append(line)
    number = contents.message_id
    if number is not None:
        head.append(making.source_message_id_line(number))
    return ReplyTo(tuple(flags), tuple(head), tuple(body), number is not None)


def reply(to: ReplyTo, answer: Common, seq_no: SeqNo | None = None, *, plain_counts: bool = False) -> EsnpMessage:
    """Build a reply: FLAG 3, what is copied from the request, and the lines of the answer. Raise TranslationError."""
    if answer.parts:
        raise TranslationError("an esnp message holds no list of notifications")
    try:
        head = [making.flag_line(Flag.RESP), *to.flags, *to.head]
        if seq_no is not None:
            head.append(making.seq_no_line(seq_no.current, seq_no.last))
        head += error_lines(answer.failure)
        body = [*to.body, *_own_lines(body_lines(answer, answer.fields.items(), plain_counts=plain_counts))]
        return assemble(head, body, untouched_lines(answer))
    except EncodeError as error:
        raise TranslationError(str(error)) from error


def _own_lines(body: list[Line]) -> list[Line]:
    """Return the lines without SESSION_INFO: a reply has that of the request."""
    return [line for line in body if line.type != LineType.SESSION_INFO]


def trace_info(to: ReplyTo, hop: Common) -> EsnpMessage:
    """What happened to a request on its way: DATA hop, at_ms, node."""
    try:
        head = [making.flag_line(Flag.TRACE_INFO), *to.head]
        return assemble(head, body_lines(hop, hop.fields.items()), ())
    except EncodeError as error:
        raise TranslationError(str(error)) from error


# ── requests of the peer


class PeerRequest(Struct):
    to: ReplyTo
    traced: bool = False
    parts: int = 0  # messages of its answer so far
    done: bool = False
    held: list[EsnpMessage] = field(default_factory=list)  # to be sent after others


class PeerRequests:
    """The open requests of the peer.

    Answers to requests with a number are sent at once, those without in the order of the requests. `plain_counts` says
    how the peer writes the counts of Maps and Lists; our answers do the same.
    """

    __slots__ = ("_last", "_open", "_queue", "plain_counts", "waiting")

    def __init__(self) -> None:
        self.plain_counts = False
        self.waiting = 0  # answers that are held
        self._last = 0
        self._open: dict[str, PeerRequest] = {}
        self._queue: deque[PeerRequest] = deque()  # requests without a number

    def __len__(self) -> int:
        return len(self._open)

    def correlate(self) -> str:
        """Return a correlation that no other request of this connection has."""
        self._last += 1
        return str(self._last)

    def add(self, contents: Contents) -> str:
        """Add a request, and return the correlation that its answer must have."""
        request = PeerRequest(reply_to(contents), Flag.TRACE in contents.flags)
        correlation = self.correlate()
        self._open[correlation] = request
        if not request.to.has_number:
            self._queue.append(request)
        return correlation

    def answer(self, message: Common) -> list[EsnpMessage]:
        """Return the messages to send now. Drop an answer that belongs to no open request."""
        request = self._open.get(message.correlation)
        if request is None:
            return []
        current = request.parts + 1
        several = message.more > 0 or current > 1
        last = 0 if message.more and _last_is_unknown(message) else current + message.more
        frame = reply(request.to, message, SeqNo(current, last) if several else None, plain_counts=self.plain_counts)
        request.parts = current
        if not message.more:
            request.done = True
            del self._open[message.correlation]
        return self._send_or_hold(request, frame)

    def trace(self, hop: Common) -> list[EsnpMessage]:
        """Return the messages to send now for a hop, if its request is traced."""
        request = self._open.get(hop.correlation)
        if request is None or not request.traced:
            return []
        return self._send_or_hold(request, trace_info(request.to, hop))

    def answer_now(self, contents: Contents, failure: Failure | None = None) -> list[EsnpMessage]:
        """Answer without passing the request up: empty or with an error, after the answers that must come first."""
        to = reply_to(contents)
        frame = reply(to, Common(kind=Kind.RESPONSE, failure=failure))
        if to.has_number or not self._queue:
            return [frame]
        self._queue.append(PeerRequest(to, done=True, held=[frame]))
        self.waiting += 1
        return []

    def _send_or_hold(self, request: PeerRequest, frame: EsnpMessage) -> list[EsnpMessage]:
        if request.to.has_number:
            return [frame]
        request.held.append(frame)
        self.waiting += 1
        return self._release()

    def _release(self) -> list[EsnpMessage]:
        released: list[EsnpMessage] = []
        while self._queue:
            first = self._queue[0]
            released += first.held
            first.held.clear()
            if not first.done:
                break
            self._queue.popleft()
        self.waiting -= len(released)
        return released


def _last_is_unknown(message: Common) -> bool:
    """Return whether the provider does not know how many messages its answer has."""
    return list(message.headers.get("esnp.seq_no", ()))[1:] == [0]
