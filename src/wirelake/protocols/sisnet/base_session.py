"""What both sessions of sisnet share: send requests under names of their own, and answer under those of the peer."""

from typing import Any, ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import LAYOUT, PACKED, Failure, FailureCode, Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.packed_records import RecordTable, read_tables, write_tables
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import OK, Answer, failed, read_answer, write_answer
from wirelake.protocols.sisnet.binary import BinaryRequest
from wirelake.protocols.sisnet.constants import (
    BYTES_FORMATS,
    LIMIT_CODE_PREFIX,
    SISNET_REQUESTS_OPEN_MAX,
    SISNET_TABLES_MAX,
    Dialect,
)
from wirelake.protocols.sisnet.envelope import SisnetFrame, can_name_binary, own_name
from wirelake.protocols.sisnet.forms import DataLine, Json, Redis
from wirelake.protocols.sisnet.redis_form import NO_COMMAND, RedisRequest
from wirelake.protocols.sisnet.request import Request, read_request
from wirelake.protocols.sisnet.session import SessionSettings
from wirelake.protocols.sisnet.translation import (
    answer_from_message,
    answer_to_message,
    gateway_command,
    is_request,
    request_from_message,
    request_to_message,
    write_checked,
)
from wirelake.protocols.state_machine import StateMachine
from wirelake.protocols.translation import Interest, subscribed_by, unsubscribed_by

_OF_THE_CONNECTION = frozenset({"login", "logout", "ping", LAYOUT})


class ReceivedFrame(Struct, frozen=True):
    """A frame, with the request or the answer in it."""

    frame: SisnetFrame
    request: Request = Request()
    answer: Answer = OK


class OpenRequest(Struct, frozen=True):
    """What it takes to answer a request in its own form and dialect."""

    name: str
    dialect: Dialect
    binary: bool = False
    redis: RedisRequest | None = None
    lnk: Any = None
    subscribes: Interest | None = None
    unsubscribes: Interest | None = None


class SentRequest(Struct, frozen=True):
    """A request of ours. Without a correlation, its answer is not passed up."""

    correlation: str | None
    due_s: float
    subscribes: Interest | None = None
    unsubscribes: Interest | None = None
    unsub: SisnetFrame | None = None  # ends the subscription
    names: str = ""  # all names under which it was sent


class SisnetSession(Session):
    """`tables` are those of the dicts of both sides. `compress` applies to both directions after the login."""

    side: ClassVar[Sender]
    state_machine: ClassVar[StateMachine]
    __slots__ = (
        "_dialect",
        "_fmt",
        "_open",
        "_received_count",
        "_sent",
        "_sent_count",
        "compress",
        "settings",
        "tables",
    )

    def __init__(self, now_s: float, settings: SessionSettings) -> None:
        super().__init__(now_s, settings.idle_s)
        self.settings = settings
        self.tables: dict[str, RecordTable] = {}
        self.compress = False
        self._dialect = Dialect.NEW
        self._fmt = ""  # of answers, if a request has none
        self._open: dict[str, OpenRequest] = {}  # by correlation
        self._received_count = 0
        self._sent: dict[str, SentRequest] = {}  # by name, in the order in which they are due
        self._sent_count = 0

    def receive(self, frame: Frame, now_s: float) -> Step:
        self.last_received_s = now_s
        try:
            event, argument = self._read_frame(frame)
        except ProtocolError as error:
            return self.fail(error, now_s)
        row = self.state_machine.find_frame(self.state, event)
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more frames")
        return self._run(row, argument, now_s)

    def _event(self, message: Message) -> str:
        if message.kind is Kind.CONTROL and message.name == LAYOUT:
            return f"app {LAYOUT}"
        return super()._event(message)

    def _read_frame(self, frame: Frame) -> tuple[str, Any]:
        """Return the event of a frame, and the argument for its transition."""
        if self.compress:
            frame = snappy.unpack_frame(frame, self.settings.inflated_bytes_max)
        frame = cast(SisnetFrame, frame)
        if is_request(frame, self.side.other):
            request = read_request(frame)
            command = gateway_command(request)
            return command if command in _OF_THE_CONNECTION else "request", ReceivedFrame(frame, request=request)
        says_logout = isinstance(frame, Json) and isinstance(frame.values, dict) and "logout" in frame.values
        return "logout" if says_logout else "answer", ReceivedFrame(frame, answer=read_answer(frame))

    def _send_frame(self, frame: Frame, step: Step) -> None:
        step.frames.append(snappy.pack_frame(frame) if self.compress else frame)

    # Requests of the peer.

    def _open_request(self, received: ReceivedFrame) -> OpenRequest:
        frame, request = received.frame, received.request
        fmt = request.fmt or ("bytes" if isinstance(frame, BinaryRequest) else self._fmt)
        return OpenRequest(
            frame.message_name,
            request.dialect if isinstance(frame, Json) else self._dialect,
            binary=fmt in BYTES_FORMATS and can_name_binary(frame.message_name),
            redis=NO_COMMAND if isinstance(frame, Redis) else None,
            lnk=request.headers.get("lnk"),
        )

    def _pass_up(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        self._add_request(
            self._open_request(received), request_to_message(received.request, received.frame), received.frame, step
        )

    def _add_request(self, open_request: OpenRequest, message: Message, frame: SisnetFrame, step: Step) -> None:
        subscribes = subscribed_by(message)
        if len(self._open) >= SISNET_REQUESTS_OPEN_MAX:
            self._reply(open_request, failed("too many requests open"), step)
            return
        if subscribes is not None and not self._has_room(subscribes):
            self._reply(open_request, failed("too many subscriptions"), step)
            return
        try:
            message = self._with_records(message, frame)
        except ProtocolError as error:
            self._reply(open_request, failed(error.text), step)
            return
        self._received_count += 1
        correlation = str(self._received_count)
        self._open[correlation] = replace(open_request, subscribes=subscribes, unsubscribes=unsubscribed_by(message))
        step.messages.append(replace(message, correlation=correlation))

    def _has_room(self, _interest: Interest) -> bool:
        """Return whether another subscription is allowed."""
        return False

    def _with_records(self, message: Message, frame: Frame) -> Message:
        """Add the records of a data line by the names of their fields, and those fields, if a dict defines the table.

        The message also has the bytes: text in them may be GBK, and a data set stores records as received.
        """
        if not isinstance(frame, DataLine) or not frame.data or frame.sdb not in self.tables:
            return message
        table = self.tables[frame.sdb]
        records = {"data": table.unpack(frame.data), **write_tables([table])[table.name]}
        headers = {**message.headers, PACKED: frame.data}
        return replace(message, headers=headers, fields=message.fields | records, payload=b"")

    def _answer(self, message: Message, _now_s: float, step: Step) -> None:
        open_request = self._open.get(message.correlation)
        if open_request is None:
            return  # already answered, or no such request
        self._reply_with(open_request, message, step)
        if not message.more:
            del self._open[message.correlation]

    def _reply_with(self, open_request: OpenRequest, message: Message, step: Step) -> None:
        self._reply(open_request, answer_from_message(message, open_request.dialect), step)

    def _reply(self, open_request: OpenRequest, answer: Answer, step: Step) -> None:
        """Send an answer in the dialect and form of its request."""
        if open_request.redis is not None:
            self._send_frame(Redis(open_request.name, _resp_answer(answer)), step)
            return
        headers = answer.headers if open_request.lnk is None else answer.headers | {"lnk": open_request.lnk}
        answer = replace(answer, headers=headers, dialect=open_request.dialect)
        self._send_frame(
            write_checked(lambda: write_answer(answer, open_request.name, binary=open_request.binary)), step
        )

    def _pong(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        self._reply(self._open_request(received), OK, step)

    def _receive_tables(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        open_request = self._open_request(received)
        try:
            self._add_tables(read_tables(received.request.ask, LIMIT_CODE_PREFIX))
        except ProtocolError as error:
            self._reply(open_request, failed(error.text), step)
            return
        step.messages.append(replace(request_to_message(received.request, received.frame), correlation=""))
        self._reply(open_request, OK, step)

    def _add_tables(self, tables: dict[str, RecordTable]) -> None:
        tables = self.tables | tables
        if len(tables) > SISNET_TABLES_MAX:
            raise ProtocolError(
                f"{LIMIT_CODE_PREFIX}tables_max", f"{len(tables)} tables: at most {SISNET_TABLES_MAX}", 0
            )
        self.tables = tables

    def _ignore(self, _received: ReceivedFrame, _now_s: float, _step: Step) -> None:
        """Do nothing: an answer without a request is no error, because the request may have timed out."""

    # Our own requests.

    def _send_request(self, message: Message, now_s: float, step: Step) -> None:
        if message.kind is Kind.EVENT:
            self._send_frame(self._request_frame(message, ""), step)
            return
        self._request(message, message.correlation, now_s, step)

    def _request(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        if len(self._sent) >= SISNET_REQUESTS_OPEN_MAX:
            raise StateError(f"{SISNET_REQUESTS_OPEN_MAX} requests are open already")
        name = str(self._sent_count + 1)
        frame = self._request_frame(message, name)
        self._send_frame(frame, step)
        self._sent_count += 1
        due_s = now_s + self.settings.answer_s
        interests = subscribed_by(message), unsubscribed_by(message)
        self._sent[name] = SentRequest(correlation, due_s, *interests, names=frame.message_name)
        self.deadlines.setdefault("answer", due_s)

    def _request_frame(self, message: Message, name: str) -> SisnetFrame:
        return request_from_message(message, name, self._dialect)

    def _send_tables(self, message: Message, now_s: float, step: Step) -> None:
        try:
            tables = read_tables(message.fields, LIMIT_CODE_PREFIX)
            if message.correlation:
                self._add_tables(tables)
            elif all(name in self.tables and self.tables[name].columns == tables[name].columns for name in tables):
                return  # nobody waits for an answer, and the peer has these tables
            else:
                self._add_tables(tables | self.tables)  # its own tables describe the records that it sends
        except ProtocolError as error:
            raise TranslationError(error.text) from error
        self._request(message, message.correlation, now_s, step)

    def _receive_answer(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        name = own_name(received.frame.message_name)
        sent = self._sent.pop(name, None)
        if sent is None:
            return
        message = self._answer_message(received)
        if message.more:
            self._sent[name] = replace(sent, due_s=now_s + self.settings.answer_s)
        elif message.failure is None:
            message = self._on_success(name, sent, message)
        if sent.correlation is not None:
            step.messages.append(replace(message, correlation=sent.correlation))

    def _answer_message(self, received: ReceivedFrame) -> Message:
        return answer_to_message(received.answer, received.frame)

    def _on_success(self, _name: str, _sent: SentRequest, answer: Message) -> Message:
        """Handle the success of a request of ours; return the answer to pass up."""
        return answer

    def _expire(self, _event: str, now_s: float, step: Step) -> None:
        for name, sent in list(self._sent.items()):
            if sent.due_s > now_s:
                self.deadlines["answer"] = sent.due_s
                return
            del self._sent[name]
            if sent.correlation is not None:
                timeout = Failure("timeout", FailureCode.TIMEOUT)
                step.messages.append(
                    Message(kind=Kind.RESPONSE, protocol="sisnet", correlation=sent.correlation, failure=timeout)
                )

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"no data received for {self.settings.idle_s:g} s")


def _resp_answer(answer: Answer) -> bytes:
    """Encode an answer of ours to a RESP command."""
    if answer.ans >= 0:
        return b"+OK\r\n"
    why = " ".join(str(answer.msg).split())
    return f"-ERR {why}\r\n".encode()
