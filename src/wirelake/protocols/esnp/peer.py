"""What both ends of an esnp connection do alike: ask, answer, tell."""

from enum import Enum
from typing import ClassVar, cast

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError
from wirelake.message import TRACE, Failure, FailureCode, Kind
from wirelake.message import Message as Common
from wirelake.protocols.esnp.contents import TIMEOUT_MS, Contents, read_contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.limits import ESNP_ANSWERS_WAITING_MAX, ESNP_REPLY_S_MAX, ESNP_REQUESTS_OPEN_MAX
from wirelake.protocols.esnp.opcodes import Flag
from wirelake.protocols.esnp.questions import Questions
from wirelake.protocols.esnp.requests import Requests
from wirelake.protocols.esnp.session import SessionSettings
from wirelake.protocols.esnp.translation import Role, is_one_way, message_of, role_of
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Closing, Session, Step

_REPLY = "reply"  # the deadline of the request that has waited longest
_EVENTS = {Role.RESPONSE: "response", Role.TRACE: "trace", Role.NOTIFICATION: "notification"}


class Peer(Session):
    other: ClassVar[Sender]  # who is at the other end
    closed: ClassVar[Enum]
    __slots__ = ("_questions", "_requests", "settings")

    def __init__(self, now_s: float, settings: SessionSettings) -> None:
        super().__init__(now_s, settings.idle_s or None)
        self.settings = settings
        self._questions = Questions()
        self._requests = Requests()

    @property
    def frame_bytes_max(self) -> int:
        """What the splitter of this connection should allow now."""
        return self.settings.frame_bytes_max

    def receive(self, frame: Frame, now_s: float) -> Step:
        if self._questions.waiting >= ESNP_ANSWERS_WAITING_MAX:
            return self._signal("app flood", frame, now_s)
        self.last_received_s = now_s
        step = Step()
        contents = read_contents(cast(EsnpMessage, frame))
        self._questions.plain_counts |= contents.plain_counts
        self._read(contents, now_s, step)
        return step

    def _read(self, contents: Contents, now_s: float, step: Step) -> None:
        row = self.state_machine.find_frame(self.state, self._event_of(contents))
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more messages")
        self._apply(row, contents, now_s, step)

    def _event_of(self, contents: Contents) -> str:
        """Which row a message of the peer belongs to."""
        role = role_of(contents, self.other)
        if role in _EVENTS:
            return _EVENTS[role]
        if self._problem(contents):
            return "unreadable"
        return "one-way" if is_one_way(contents) else "request"

    def _event(self, message: Common) -> str:
        if message.kind is Kind.EVENT and message.name == TRACE:
            return "app trace"
        return super()._event(message)

    def _problem(self, contents: Contents) -> str:
        """Why a request cannot be served as it stands, empty if it can."""
        return "" if contents.malformed is None else f"malformed: {contents.malformed}"

    def _message(self, contents: Contents) -> Common:
        """What is handed up."""
        return message_of(contents, self.other)

    def _complaint(self, _message: Common) -> str:
        """What a request lacks, empty if it is all there."""
        return ""

    def _refuse(self, contents: Contents, _now_s: float, step: Step) -> None:
        self._answer_error(contents, self._problem(contents), step)

    def _answer_error(self, contents: Contents, text: str, step: Step) -> None:
        step.frames += self._questions.answer_now(contents, Failure(text))

    def _question(self, contents: Contents, _now_s: float, step: Step) -> None:
        message = self._message(contents)
        complaint = self._complaint(message)
        if complaint:
            self._answer_error(contents, complaint, step)
        elif len(self._questions) >= ESNP_REQUESTS_OPEN_MAX:
            self._answer_error(contents, f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", step)
        elif Flag.ASYNC in contents.flags:
            step.frames += self._questions.answer_now(contents)
            step.messages.append(replace(message, correlation=self._questions.correlate()))
        else:
            traced = Flag.TRACE in contents.flags
            step.messages.append(replace(message, correlation=self._questions.add(contents), traced=traced))

    def _inform(self, contents: Contents, _now_s: float, step: Step) -> None:
        message = self._message(contents)
        complaint = self._complaint(message)
        if complaint:
            self._answer_error(contents, complaint, step)
        else:
            step.messages.append(replace(message, correlation=""))

    def _answer(self, message: Common, now_s: float, step: Step) -> None:
        step.frames += self._questions.answer(message)
        self._check_waiting(message, now_s, step)

    def _trace(self, message: Common, now_s: float, step: Step) -> None:
        step.frames += self._questions.trace(message)
        self._check_waiting(message, now_s, step)

    def _check_waiting(self, message: Common, now_s: float, step: Step) -> None:
        if self._questions.waiting > ESNP_ANSWERS_WAITING_MAX:
            self.state = self.closed
            self._flood(message, now_s, step)

    def _ask(self, message: Common, now_s: float, step: Step) -> None:
        if self._requests.full:
            failure = Failure(f"busy: {ESNP_REQUESTS_OPEN_MAX} requests are open", FailureCode.BUSY)
            step.messages.append(_answer_to(message.correlation, failure))
            return
        number = self._requests.number()
        asked = replace(message, correlation=str(number))
        step.frames.append(from_message(asked, self.other.other, plain_counts=self._questions.plain_counts))
        due_s = now_s + self._reply_s(message)
        self._requests.add(number, message.correlation, due_s)
        self.deadlines[_REPLY] = min(due_s, self.deadlines.get(_REPLY, due_s))

    def _reply_s(self, message: Common) -> float:
        timeout_ms = message.headers.get(TIMEOUT_MS)
        if not isinstance(timeout_ms, int):
            return self.settings.reply_s
        return min(timeout_ms, ESNP_REPLY_S_MAX * 1000) / 1000

    def _answered(self, contents: Contents, now_s: float, step: Step) -> None:
        number = contents.source_message_id
        correlation = self._requests.find(number)
        if number is None or correlation is None:
            self._unasked(contents, now_s, step)
            return
        message = self._message(contents)
        if not message.more:
            self._requests.close(number)
        step.messages.append(replace(message, correlation=correlation))

    def _unasked(self, contents: Contents, now_s: float, step: Step) -> None:
        """An answer to nothing that is open: it comes too late, or twice."""

    def _traced(self, contents: Contents, _now_s: float, step: Step) -> None:
        correlation = self._requests.find(contents.source_message_id)
        if correlation is not None:
            step.messages.append(replace(message_of(contents, self.other), correlation=correlation))

    def _tell(self, message: Common, _now_s: float, step: Step) -> None:
        step.frames.append(from_message(message, self.other.other, plain_counts=self._questions.plain_counts))

    def _expire(self, _event: str, now_s: float, step: Step) -> None:
        for correlation in self._requests.expire(now_s):
            step.messages.append(_answer_to(correlation, Failure("timeout", FailureCode.TIMEOUT)))
        due_s = self._requests.due_s
        if due_s is not None:
            self.deadlines[_REPLY] = due_s

    def _ignore(self, _contents: Contents, _now_s: float, _step: Step) -> None:
        pass

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _flood(self, _argument: object, _now_s: float, step: Step) -> None:
        step.closing = Closing("too_many_requests", "too many answers wait their turn")

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"nothing heard for {self.idle_s:g} s")


def _answer_to(correlation: str, failure: Failure) -> Common:
    return Common(kind=Kind.RESPONSE, name="response", protocol="esnp", correlation=correlation, failure=failure)
