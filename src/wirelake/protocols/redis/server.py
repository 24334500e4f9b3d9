"""The gateway's end of a RESP connection."""

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Message, Op, Topic, control
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.redis import frames, housekeeping
from wirelake.protocols.redis.answers import Answers, Question
from wirelake.protocols.redis.commands import (
    NO_AUTH,
    NO_AUTH_HELLO,
    WRONG_PASS,
    error,
    event_of,
    not_while_subscribed,
)
from wirelake.protocols.redis.constants import (
    REDIS_HELD_BYTES_MAX,
    REDIS_HELD_FRAMES_MAX,
    REDIS_REQUESTS_PAUSE_AT,
    REDIS_SUBSCRIPTIONS_MAX,
)
from wirelake.protocols.redis.fast_path import publish_run
from wirelake.protocols.redis.frames import BulkString, ClientFrame, Integer, Push, SimpleString, Value
from wirelake.protocols.redis.housekeeping import OK, Hello, Peer, read_hello
from wirelake.protocols.redis.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.redis.transactions import BAD_NAME, QueueingSession, executed, is_text
from wirelake.protocols.redis.translation import PATTERN, failure_text, reply_value, to_message, value_from_message
from wirelake.protocols.redis.values import in_version_2
from wirelake.protocols.session import SILENCE, Closing, Step

_OPTIONS_END = 6  # of XREAD: COUNT and BLOCK, each with its number
_ARGUMENT_BYTES = 16  # about what an argument takes beside its own bytes


class ServerSession(QueueingSession):
    """`connection_id` is what CLIENT ID answers."""

    state_machine = SERVER_MACHINE
    __slots__ = (
        "_answers",
        "_begun_s",
        "_blocking",
        "_channels",
        "_closing",
        "_held",
        "_held_bytes",
        "_hello_asked",
        "_logged_in",
        "_login",
        "_patterns",
        "_peer",
        "settings",
        "version",
    )

    def __init__(self, now_s: float, connection_id: int = 0, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings.idle_s or None)
        self.settings = settings
        self.version = 2
        self._begun_s = now_s
        self._peer = Peer(connection_id)
        self._channels: dict[bytes, None] = {}  # in the order of subscribing
        self._patterns: dict[bytes, None] = {}
        self._answers = Answers()
        self._blocking: Question | None = None  # what comes behind it is held
        self._held: deque[ClientFrame] = deque()
        self._held_bytes = 0
        self._login: Question | None = None
        self._hello_asked: Hello | None = None  # the HELLO that the login came with
        self._logged_in = settings.open
        self._closing: Closing | None = None  # once the last answer is out
        if settings.open:
            self.state = ServerState.READY
        else:
            self.deadlines["login"] = now_s + settings.login_s

    @property
    def begins_anonymous(self) -> bool:
        return self.settings.open

    @property
    def is_paused(self) -> bool:
        """Whether the socket is better not read until some answers are out."""
        return self._answers.many or len(self._held) >= REDIS_REQUESTS_PAUSE_AT

    @property
    def is_leaving(self) -> bool:
        return self.state is ServerState.LEAVING

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    @property
    def frame_bytes_max(self) -> int:
        return self.settings.frame_bytes_max if self._logged_in else self.settings.login_frame_bytes_max

    @property
    def encoding_key(self) -> str | None:
        """In RESP 2 only while a push cannot be taken for an answer: all that is open confirms subscriptions."""
        if self.state in (ServerState.READY, ServerState.QUEUEING) and self.version == 3:
            return "resp 3"
        if self.state is ServerState.SUBSCRIBED and self._answers.all_confirm:
            return "resp 2"
        return None

    def encode_notification(self, message: Message) -> bytes:
        return _shaped(value_from_message(message), self.version).encode()

    def receive_many(self, frames: list[bytes], start: int, now_s: float) -> Step | None:
        """Take a run of PUBLISH. On a live topic only while no reply is pending, so that replies stay in order."""
        if self.state is not ServerState.READY or self._answers.full or self._blocking is not None:
            return None
        batch = publish_run(frames, start)
        if batch is None or (self._answers and not batch.is_durable):
            return None
        self.last_received_s = now_s
        if batch.is_durable:
            batch.correlation = self._answers.ask(b"publish", self.version, len(batch.frames)).correlation
        return Step(batch=batch)

    def receive(self, frame: Frame, now_s: float) -> Step:
        if self._answers.full:
            return self._signal("app flood", "too many answers wait their turn", now_s)
        self.last_received_s = now_s
        step = Step()
        if self._blocking is not None and isinstance(frame, ClientFrame) and not self.is_leaving:
            self._hold(frame, now_s, step)
        else:
            self._dispatch(frame, now_s, step)
        return step

    def _dispatch(self, frame: Frame, now_s: float, step: Step) -> None:
        if not isinstance(frame, ClientFrame):
            raise StateError(f"{frame.name} is nothing that a client sends")
        row = self.state_machine.find_frame(self.state, event_of(frame))
        if row is None:
            raise StateError(f"{type(self).__name__} is {self.state.name} and reads no more frames")
        self._apply(row, frame, now_s, step)

    # Logging in

    def _log_in(self, frame: ClientFrame, now_s: float, step: Step) -> None:
        self._check(frame, None, now_s, step)

    def _hello(self, frame: ClientFrame, now_s: float, step: Step) -> None:
        asked = read_hello(frame.args)
        if not isinstance(asked, Hello):
            self._answer_now(asked, step)
        elif asked.credentials is not None:
            self.state = ServerState.CHECKING
            self._check(frame, asked, now_s, step)
        elif self.state is ServerState.NEW:
            self._answer_now(NO_AUTH_HELLO, step)
        else:
            self._answer_now(self._agreed(asked), step)

    def _check(self, frame: ClientFrame, asked: Hello | None, now_s: float, step: Step) -> None:
        self._hello_asked = asked
        self.deadlines.setdefault("login", now_s + self.settings.login_s)
        self._login = self._put(frame, to_message(frame, Sender.CLIENT), step)

    def _decide(self, message: Message, now_s: float, step: Step) -> None:
        login = self._login
        if login is None or message.correlation != login.correlation:
            self._answer(message, now_s, step)
            return
        self._login = None
        self._answers.find(login.correlation)
        if message.failure is not None:
            text = failure_text(message.failure)
            answer: Value = WRONG_PASS if text.startswith(b"ERR ") else frames.SimpleError(text)
        else:
            answer = OK if self._hello_asked is None else self._agreed(self._hello_asked)
            self._logged_in = True
        if self._logged_in:
            del self.deadlines["login"]
            self._settle()
        else:
            self.state = ServerState.NEW
        self._write(login, [answer], self.version, step)
        self._serve_held(now_s, step)

    def _serve_held(self, now_s: float, step: Step) -> None:
        ended = (ServerState.CHECKING, ServerState.LEAVING, ServerState.CLOSED)
        while self._held and self._blocking is None and self.state not in ended:
            self._dispatch(self._held.popleft(), now_s, step)
        if self.is_leaving:
            self._held.clear()
        if not self._held:
            self._held_bytes = 0

    def _agreed(self, asked: Hello) -> Value:
        """HELLO is granted, but for a name that is none, and a version that the subscriptions were not made in."""
        if self._subscriptions and asked.version not in (None, self.version):
            return error(b"ERR unsubscribe before you change the protocol version")
        if asked.client_name is not None:
            named = housekeeping.set_name(asked.client_name, self._peer)
            if named is not OK:
                return named
        self.version = asked.version or self.version
        return housekeeping.hello(self.version, self._peer, self.settings.redis_version)

    def _hold(self, frame: ClientFrame, now_s: float, step: Step) -> None:
        self._held_bytes += sum(map(len, frame.args)) + _ARGUMENT_BYTES * len(frame.args)
        self._held.append(frame)
        if len(self._held) > REDIS_HELD_FRAMES_MAX or self._held_bytes > REDIS_HELD_BYTES_MAX:
            self._flood("too many commands wait for a login, or behind an XREAD", now_s, step)

    def _not_authenticated(self, _frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._answer_now(NO_AUTH, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        if not self._answers:
            step.frames.append(error(b"ERR no login in time"))
        self._abandon("no login in time", step)
        step.closing = Closing("login_timeout")

    # What the session answers by itself

    def _answer_itself(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        answer = self._own(frame.args)
        if answer is None:
            raise StateError(f"{frame.name} is for those above")
        self._answer_now(answer, step)

    def _own(self, args: Sequence[bytes]) -> Value | None:
        """The answer, where nobody above need be asked."""
        match args[0].lower():
            case b"ping" | b"echo":
                return BulkString(args[1]) if len(args) > 1 else SimpleString(b"PONG")
            case b"select":
                return housekeeping.select(args)
            case b"client":
                return housekeeping.client(args, self._described())
            case b"command":
                return housekeeping.command(args)
        return None

    def _described(self) -> Peer:
        peer, transaction = self._peer, self._transaction
        peer.version, peer.age_s = self.version, int(self.last_received_s - self._begun_s)
        peer.channels, peer.patterns = len(self._channels), len(self._patterns)
        peer.queued = -1 if transaction is None else len(transaction)
        return peer

    def _ping_subscribed(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        said = frame.args[1] if len(frame.args) > 1 else b""
        self._answer_now(frames.Array((BulkString(b"pong"), BulkString(said))), step)

    def _not_here(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._answer_now(not_while_subscribed(frame.verb), step)

    def _ignore(self, _argument: object, _now_s: float, _step: Step) -> None:
        pass

    # What goes up

    def _ask(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._put(frame, to_message(frame, Sender.CLIENT), step)

    def _read_streams(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        question = self._put(frame, to_message(frame, Sender.CLIENT), step)
        if b"block" in map(bytes.lower, frame.args[1:_OPTIONS_END]):
            self._blocking = question

    def _publish(self, frame: ClientFrame, now_s: float, step: Step) -> None:
        if is_text(frame.args[1]):
            self._ask(frame, now_s, step)
        else:
            self._answer_now(BAD_NAME, step)

    def _subscribe(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        chosen, names = self._chosen(frame), frame.args[1:]
        if not all(map(is_text, names)):
            self._answer_now(BAD_NAME, step)
            return
        if self._subscriptions + len(names) > REDIS_SUBSCRIPTIONS_MAX:
            self._answer_now(error(b"ERR too many subscriptions"), step)
            return
        question = self._put(frame, to_message(frame, Sender.CLIENT), step)
        question.added = [name for name in dict.fromkeys(names) if name not in chosen]
        question.confirmations = []
        for name in names:
            chosen[name] = None
            question.confirmations.append(self._confirmation(frame, BulkString(name)))
        self._settle()

    def _unsubscribe(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        chosen = self._chosen(frame)
        names = frame.args[1:] or tuple(chosen)
        gone = tuple([name for name in dict.fromkeys(names) if name in chosen])
        confirmations: list[Value] = []
        for name in names:
            chosen.pop(name, None)
            confirmations.append(self._confirmation(frame, BulkString(name)))
        if gone:
            leaving = frames.Command((frame.args[0], *gone))
            self._put(frame, to_message(leaving, Sender.CLIENT), step).confirmations = confirmations
        else:
            for confirmation in confirmations or [self._confirmation(frame, frames.Null())]:
                self._answer_now(confirmation, step)
        self._settle()

    @property
    def _subscriptions(self) -> int:
        return len(self._channels) + len(self._patterns)

    def _chosen(self, frame: ClientFrame) -> dict[bytes, None]:
        return self._patterns if frame.verb.startswith(b"p") else self._channels

    def _confirmation(self, frame: ClientFrame, name: Value) -> Value:
        return Push((BulkString(frame.verb), name, Integer(self._subscriptions)))

    def _settle(self) -> None:
        """The state that follows from the version and the subscriptions."""
        bound = self.version == 2 and self._subscriptions > 0
        self.state = ServerState.SUBSCRIBED if bound else ServerState.READY

    def _put(self, frame: ClientFrame, message: Message, step: Step) -> Question:
        """A question for those above, at the end of the queue."""
        question = self._answers.ask(frame.verb, self.version)
        step.messages.append(replace(message, correlation=question.correlation))
        return question

    # What comes down

    def _answer(self, message: Message, now_s: float, step: Step) -> None:
        question = self._answers.find(message.correlation)
        if question is None:
            return  # answered already, or never asked
        if message.failure is not None:
            self._undo(question)
        if message.failure is None and question.confirmations is not None:
            found = question.confirmations
        elif question.queued is not None:
            found = [executed(question.queued, message, question.version)]
        else:
            found = [reply_value(message, question.verb, question.version)]
        self._write(question, found, question.version, step)
        if question is self._blocking:
            self._blocking = None
            self._serve_held(now_s, step)

    def _undo(self, question: Question) -> None:
        """A subscription was refused."""
        chosen = self._patterns if question.verb == b"psubscribe" else self._channels
        for name in question.added:
            chosen.pop(name, None)
        if question.added and self.state is ServerState.SUBSCRIBED:
            self._settle()

    def _push(self, message: Message, now_s: float, step: Step) -> None:
        """What crossed an unsubscribing on the way is dropped: in RESP 2 it would look like an answer."""
        value = value_from_message(message)
        pattern = message.headers.get(PATTERN)
        if pattern is not None:
            known = str(pattern).encode() in self._patterns
        else:
            known = isinstance(message.target, Topic) and message.target.name.encode() in self._channels
        if not known:
            return
        if self.version == 3:
            step.frames.append(value)
        elif self._answers.full:
            self._flood("too many notifications wait their turn", now_s, step)
        else:
            self._answer_now(value, step)

    def _answer_now(self, value: Value, step: Step) -> None:
        """Our own answer, in its turn behind the open questions."""
        step.frames += self._answers.say(_shaped(value, self.version))

    def _write(self, question: Question, answers: list[Value], version: int, step: Step) -> None:
        step.frames += self._answers.settle(question, [_shaped(value, version) for value in answers])
        if not self._answers and self._closing is not None:
            self.state = ServerState.CLOSED
            step.closing = self._closing

    # The end

    def _quit(self, _frame: ClientFrame, now_s: float, step: Step) -> None:
        self._leave(OK, Closing("quit"), now_s, step)

    def _reset(self, _frame: ClientFrame, now_s: float, step: Step) -> None:
        self.version = 2
        self._peer.name = b""
        self._forget_transaction(step)
        for field, chosen in (("topics", self._channels), ("patterns", self._patterns)):
            if chosen:
                names = [name.decode() for name in chosen]
                step.messages.append(control(Op.UNSUBSCRIBE, name="reset", protocol="redis", fields={field: names}))
                chosen.clear()
        self._answer_now(SimpleString(b"RESET"), step)
        self._logged_in = self.settings.open
        self.state = ServerState.READY if self._logged_in else ServerState.NEW
        if not self._logged_in:
            self.deadlines["login"] = now_s + self.settings.login_s

    def _fail(self, fault: ProtocolError, now_s: float, step: Step) -> None:
        answer = error(b"ERR Protocol error: " + fault.text.encode(errors="backslashreplace"))
        self._leave(answer, Closing(fault.code, str(fault)), now_s, step)

    def _leave(self, last: Value, closing: Closing, now_s: float, step: Step) -> None:
        self._answer_now(last, step)
        self.deadlines.pop("login", None)
        if self._answers:
            self.state = ServerState.LEAVING
            self._closing = closing
            self.deadlines["leave"] = now_s + self.settings.leave_s
        else:
            self.state = ServerState.CLOSED
            step.closing = closing

    def _give_up(self, _event: str, _now_s: float, step: Step) -> None:
        closing = self._closing or Closing("quit")
        self._abandon("the answer took too long", step)
        step.closing = closing

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        self._abandon(closing.text or closing.code, step)
        step.closing = closing

    def _abandon(self, reason: str, step: Step) -> None:
        """Every question that is still open is answered with the reason."""
        step.frames += self._answers.abandon(error(b"ERR " + reason.encode(errors="backslashreplace")))

    def _http(self, _frame: ClientFrame, _now_s: float, step: Step) -> None:
        step.closing = Closing("http", "possible cross protocol scripting: this is an HTTP request")

    def _flood(self, reason: str, _now_s: float, step: Step) -> None:
        self.state = ServerState.CLOSED
        step.closing = Closing("too_many_requests", reason)

    def _silent(self, _event: str, now_s: float, step: Step) -> None:
        if self._subscriptions and self.idle_s is not None:
            self.deadlines[SILENCE] = now_s + self.idle_s
            return
        self.state = ServerState.CLOSED
        step.closing = Closing("idle", f"no data received for {self.settings.idle_s:g} s")


def _shaped(value: Value, version: int) -> Value:
    return in_version_2(value) if version == 2 else value
