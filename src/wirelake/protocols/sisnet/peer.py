"""What both ends of a sisnet connection do alike: ask under names of their own, and answer under the other's."""

from typing import Any, ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import LAYOUT, PACKED, Failure, FailureCode, Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.interest import Interest, subscribed_by, unsubscribed_by
from wirelake.protocols.packed_records import RecordTable, read_tables, write_tables
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import OK, Answer, failed, read_answer, write_answer
from wirelake.protocols.sisnet.binary_form import BinaryRequest
from wirelake.protocols.sisnet.data_line import DataLine
from wirelake.protocols.sisnet.foreign import Redis
from wirelake.protocols.sisnet.json_form import Json
from wirelake.protocols.sisnet.limits import SISNET_REQUESTS_OPEN_MAX, SISNET_TABLES_MAX
from wirelake.protocols.sisnet.names import SisnetFrame, can_name_binary, own_name
from wirelake.protocols.sisnet.opcodes import BYTES_FORMATS, Dialect
from wirelake.protocols.sisnet.redis_form import NO_COMMAND, RedisQuestion
from wirelake.protocols.sisnet.request import Request, read_request
from wirelake.protocols.sisnet.session import SessionSettings
from wirelake.protocols.sisnet.translation import (
    answer_from_message,
    answer_to_message,
    gateway_command,
    is_request,
    request_from_message,
    request_to_message,
    written,
)
from wirelake.protocols.state_machine import StateMachine

_OF_THE_CONNECTION = frozenset({"login", "logout", "ping", LAYOUT})


class Heard(Struct, frozen=True):
    """A frame and what it says: one of `request` and `answer` is there."""

    frame: SisnetFrame
    request: Request = Request()
    answer: Answer = OK


class Question(Struct, frozen=True):
    """What is needed to answer a request in the way it was asked."""

    name: str
    dialect: Dialect
    binary: bool = False
    redis: RedisQuestion | None = None
    lnk: Any = None
    subscribes: Interest | None = None
    unsubscribes: Interest | None = None


class Asked(Struct, frozen=True):
    """What we asked. Without a correlation nobody above waits for the answer."""

    correlation: str | None
    due_s: float
    subscribes: Interest | None = None
    unsubscribes: Interest | None = None
    unsub: SisnetFrame | None = None  # what ends the subscription
    names: str = ""  # all that it was asked under


class Peer(Session):
    """`tables` are those of both sides' dicts. `compress` holds from the login on, both ways."""

    side: ClassVar[Sender]
    state_machine: ClassVar[StateMachine]
    __slots__ = (
        "_asked",
        "_asked_count",
        "_dialect",
        "_fmt",
        "_heard_count",
        "_open",
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
        self._fmt = ""  # of answers, where a request does not say
        self._open: dict[str, Question] = {}  # by correlation
        self._heard_count = 0
        self._asked: dict[str, Asked] = {}  # by name, in the order in which they are due
        self._asked_count = 0

    def receive(self, frame: Frame, now_s: float) -> Step:
        self.last_received_s = now_s
        try:
            event, argument = self._listen(frame)
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

    def _listen(self, frame: Frame) -> tuple[str, Any]:
        """Which row the frame belongs to, and what its method gets."""
        if self.compress:
            frame = snappy.unpack_frame(frame, self.settings.inflated_bytes_max)
        frame = cast(SisnetFrame, frame)
        if is_request(frame, self.side.other):
            request = read_request(frame)
            command = gateway_command(request)
            return command if command in _OF_THE_CONNECTION else "request", Heard(frame, request=request)
        says_logout = isinstance(frame, Json) and isinstance(frame.values, dict) and "logout" in frame.values
        return "logout" if says_logout else "answer", Heard(frame, answer=read_answer(frame))

    def _say(self, frame: Frame, step: Step) -> None:
        step.frames.append(snappy.pack_frame(frame) if self.compress else frame)

    # What the other side asks.

    def _question(self, heard: Heard) -> Question:
        frame, request = heard.frame, heard.request
        fmt = request.fmt or ("bytes" if isinstance(frame, BinaryRequest) else self._fmt)
        return Question(
            frame.message_name,
            request.dialect if isinstance(frame, Json) else self._dialect,
            binary=fmt in BYTES_FORMATS and can_name_binary(frame.message_name),
            redis=NO_COMMAND if isinstance(frame, Redis) else None,
            lnk=request.headers.get("lnk"),
        )

    def _ask_above(self, heard: Heard, _now_s: float, step: Step) -> None:
        self._put(self._question(heard), request_to_message(heard.request, heard.frame), heard.frame, step)

    def _put(self, question: Question, message: Message, frame: SisnetFrame, step: Step) -> None:
        subscribes = subscribed_by(message)
        if len(self._open) >= SISNET_REQUESTS_OPEN_MAX:
            self._reply(question, failed("too many requests open"), step)
            return
        if subscribes is not None and not self._has_room(subscribes):
            self._reply(question, failed("too many subscriptions"), step)
            return
        try:
            message = self._understood(message, frame)
        except ProtocolError as error:
            self._reply(question, failed(error.text), step)
            return
        self._heard_count += 1
        correlation = str(self._heard_count)
        self._open[correlation] = replace(question, subscribes=subscribes, unsubscribes=unsubscribed_by(message))
        step.messages.append(replace(message, correlation=correlation))

    def _has_room(self, _interest: Interest) -> bool:
        """Whether one more may subscribe here."""
        return False

    def _understood(self, message: Message, frame: Frame) -> Message:
        """A data line's records by the names of their fields, and those fields, if a dict told of the table.

        The bytes go along: text in them may be GBK, and a data set keeps records as they came.
        """
        if not isinstance(frame, DataLine) or not frame.data or frame.sdb not in self.tables:
            return message
        table = self.tables[frame.sdb]
        told = {"data": table.unpack(frame.data), **write_tables([table])[table.name]}
        headers = {**message.headers, PACKED: frame.data}
        return replace(message, headers=headers, fields=message.fields | told, payload=b"")

    def _answer(self, message: Message, _now_s: float, step: Step) -> None:
        question = self._open.get(message.correlation)
        if question is None:
            return  # answered already, or never asked
        self._reply_with(question, message, step)
        if not message.more:
            del self._open[message.correlation]

    def _reply_with(self, question: Question, message: Message, step: Step) -> None:
        self._reply(question, answer_from_message(message, question.dialect), step)

    def _reply(self, question: Question, answer: Answer, step: Step) -> None:
        """The answer in the question's own dialect and form."""
        if question.redis is not None:
            self._say(Redis(question.name, _resp(answer)), step)
            return
        headers = answer.headers if question.lnk is None else answer.headers | {"lnk": question.lnk}
        answer = replace(answer, headers=headers, dialect=question.dialect)
        self._say(written(lambda: write_answer(answer, question.name, binary=question.binary)), step)

    def _pong(self, heard: Heard, _now_s: float, step: Step) -> None:
        self._reply(self._question(heard), OK, step)

    def _learn(self, heard: Heard, _now_s: float, step: Step) -> None:
        question = self._question(heard)
        try:
            self._add_tables(read_tables(heard.request.ask))
        except ProtocolError as error:
            self._reply(question, failed(error.text), step)
            return
        step.messages.append(replace(request_to_message(heard.request, heard.frame), correlation=""))
        self._reply(question, OK, step)

    def _add_tables(self, tables: dict[str, RecordTable]) -> None:
        tables = self.tables | tables
        if len(tables) > SISNET_TABLES_MAX:
            raise ProtocolError("sisnet_tables_max", f"{len(tables)} tables: at most {SISNET_TABLES_MAX}", 0)
        self.tables = tables

    def _ignore(self, _heard: Heard, _now_s: float, _step: Step) -> None:
        """What answers nothing is no fault: its question may have timed out."""

    # What we ask the other side.

    def _ask_peer(self, message: Message, now_s: float, step: Step) -> None:
        if message.kind is Kind.EVENT:
            self._say(self._request_frame(message, ""), step)
            return
        self._ask(message, message.correlation, now_s, step)

    def _ask(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        if len(self._asked) >= SISNET_REQUESTS_OPEN_MAX:
            raise StateError(f"{SISNET_REQUESTS_OPEN_MAX} requests are open already")
        name = str(self._asked_count + 1)
        frame = self._request_frame(message, name)
        self._say(frame, step)
        self._asked_count += 1
        due_s = now_s + self.settings.answer_s
        interests = subscribed_by(message), unsubscribed_by(message)
        self._asked[name] = Asked(correlation, due_s, *interests, names=frame.message_name)
        self.deadlines.setdefault("answer", due_s)

    def _request_frame(self, message: Message, name: str) -> SisnetFrame:
        return request_from_message(message, name, self._dialect)

    def _teach(self, message: Message, now_s: float, step: Step) -> None:
        try:
            told = read_tables(message.fields)
            if message.correlation:
                self._add_tables(told)
            elif all(name in self.tables and self.tables[name].columns == told[name].columns for name in told):
                return  # nobody waits for an answer, and the other side knows
            else:
                self._add_tables(told | self.tables)  # what it told itself is how it packs what it sends
        except ProtocolError as error:
            raise TranslationError(error.text) from error
        self._ask(message, message.correlation, now_s, step)

    def _hear_answer(self, heard: Heard, now_s: float, step: Step) -> None:
        name = own_name(heard.frame.message_name)
        asked = self._asked.pop(name, None)
        if asked is None:
            return
        message = self._answer_message(heard)
        if message.more:
            self._asked[name] = replace(asked, due_s=now_s + self.settings.answer_s)
        elif message.failure is None:
            message = self._settled(name, asked, message)
        if asked.correlation is not None:
            step.messages.append(replace(message, correlation=asked.correlation))

    def _answer_message(self, heard: Heard) -> Message:
        return answer_to_message(heard.answer, heard.frame)

    def _settled(self, _name: str, _asked: Asked, answer: Message) -> Message:
        """What we asked for went well; return the answer as it goes up."""
        return answer

    def _overdue(self, _event: str, now_s: float, step: Step) -> None:
        for name, asked in list(self._asked.items()):
            if asked.due_s > now_s:
                self.deadlines["answer"] = asked.due_s
                return
            del self._asked[name]
            if asked.correlation is not None:
                timeout = Failure("timeout", FailureCode.TIMEOUT)
                step.messages.append(
                    Message(kind=Kind.RESPONSE, protocol="sisnet", correlation=asked.correlation, failure=timeout)
                )

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"nothing heard for {self.settings.idle_s:g} s")


def _resp(answer: Answer) -> bytes:
    """Our own answers to a RESP command."""
    if answer.ans >= 0:
        return b"+OK\r\n"
    why = " ".join(str(answer.msg).split())
    return f"-ERR {why}\r\n".encode()
