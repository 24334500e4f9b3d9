"""The gateway's end of a comet connection."""

import re
from collections import deque
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.message import Message as Common
from wirelake.protocols.comet import crypto, frames
from wirelake.protocols.comet.limits import (
    COMET_ANSWERS_WAITING_MAX,
    COMET_CONTENT_BYTES_MAX,
    COMET_FRAME_BYTES_MAX,
    COMET_HELD_FRAMES_MAX,
    COMET_REQUESTS_OPEN_MAX,
    COMET_TOPIC_CHARS_MAX,
    COMET_WRITE_COUNT_MAX,
    COMET_WRITE_LENGTH_MAX,
)
from wirelake.protocols.comet.opcodes import ErrorCode
from wirelake.protocols.comet.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.comet.translation import from_message, notification, to_message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Closing, Session, Step

_TOPIC = re.compile(r"@[\w/\-@$.]*")  # letters and digits of any script
_LIST_HEAD_BYTES = 2  # type and count
_EACH_BYTES = 1 + 2 + 2 + 8 + crypto.NONCE_BYTES + crypto.TAG_BYTES  # of a listed one beside its id and content
_ROOM = {
    "rows_max": COMET_WRITE_COUNT_MAX,
    "bytes_max": COMET_WRITE_LENGTH_MAX - _LIST_HEAD_BYTES,
    "each_bytes": _EACH_BYTES,
    "content_bytes_max": COMET_CONTENT_BYTES_MAX,
}


class ServerSession(Session):
    """`private` opens the clients' secrets; `random` gives that many fresh random bytes, for nonces."""

    state_machine = SERVER_MACHINE
    sends_acks = True
    pulls_backlog = True
    __slots__ = ("_asked", "_held", "_open", "_private", "_random", "_secret", "settings")

    def __init__(
        self,
        now_s: float,
        private: rsa.RSAPrivateKey,
        random: Callable[[int], bytes],
        settings: SessionSettings = SessionSettings(),
    ) -> None:
        super().__init__(now_s, settings.idle_s)
        self.settings = settings
        self.deadlines["login"] = now_s + settings.login_s
        self._private = private
        self._random = random
        self._secret: bytes | None = None
        self._held: list[Frame] = []
        self._asked = 0
        self._open: deque[_Question] = deque()

    def receive(self, frame: Frame, now_s: float) -> Step:
        if len(self._open) >= COMET_ANSWERS_WAITING_MAX:
            return self._signal("app flood", frame, now_s)
        return super().receive(frame, now_s)

    @property
    def frame_bytes_max(self) -> int:
        logged_in = self.state is ServerState.READY or self.state is ServerState.KEYLESS
        return COMET_FRAME_BYTES_MAX if logged_in else self.settings.login_frame_bytes_max

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    @property
    def encoding_key(self) -> str | None:
        """Content for a client with a key is sealed for it alone."""
        return "comet" if self._secret is None and self.state is ServerState.READY else None

    def encode_notification(self, message: Common) -> bytes:
        return _sayable(message).encode()

    def _login(self, frame: frames.Auth, _now_s: float, step: Step) -> None:
        step.messages.append(replace(to_message(frame, Sender.CLIENT), correlation="login"))

    def _decide(self, message: Common, now_s: float, step: Step) -> None:
        self.deadlines.pop("login", None)
        if message.failure is not None:
            self.state = ServerState.CLOSED
            step.frames.append(from_message(message, Sender.SERVER))
            step.closing = Closing("login_refused", message.failure.text)
            return
        self.state = ServerState.KEYLESS if self.settings.require_key else ServerState.READY
        step.frames.append(frames.AuthSuccess(crypto.encrypt_key(self._private)))
        held, self._held = self._held, []
        for frame in held:
            row = self.state_machine.find_frame(self.state, frame.name)
            if row is not None:
                self._apply(row, frame, now_s, step)

    def _hold(self, frame: Frame, _now_s: float, step: Step) -> None:
        if len(self._held) >= COMET_HELD_FRAMES_MAX:
            self.state = ServerState.CLOSED
            step.frames.append(frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many frames before the login"))
            step.closing = Closing("too_many_requests", "too many frames before the login was decided")
            return
        self._held.append(frame)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.NOT_AUTHENTICATED, "no login in time"))
        step.closing = Closing("login_timeout")

    def _not_authenticated(self, frame: Frame, _now_s: float, step: Step) -> None:
        first = "exchange a key" if self.state is ServerState.KEYLESS else "log in"
        self._answer_now(frames.Error(ErrorCode.NOT_AUTHENTICATED, f"{frame.name}: {first} first"), step)

    def _ok(self, _frame: Frame, _now_s: float, step: Step) -> None:
        self._answer_now(frames.Ok(), step)

    def _exchange(self, frame: frames.ExchangeKey, now_s: float, step: Step) -> None:
        try:
            secret = crypto.unwrap_secret(frame.secret_key, self._private)
        except ProtocolError as error:
            self.state = ServerState.CLOSED
            self._fail(error, now_s, step)
            return
        self.state = ServerState.READY
        self._open.append(_Question("", secret, frames.Ok()))
        self._release(step)

    def _ask_topics(self, frame: frames.Subscribe | frames.Unsubscribe, now_s: float, step: Step) -> None:
        bad = next((topic for topic in frame.topics if not topic_allowed(topic)), None)
        if bad is not None:
            self._answer_now(frames.Error(ErrorCode.BAD_ARGUMENTS, f"not a topic name: {bad[:64]}"), step)
            return
        self._ask(frame, now_s, step)

    def _ask(self, frame: frames.CometFrame, _now_s: float, step: Step) -> None:
        if len(self._open) >= COMET_REQUESTS_OPEN_MAX:
            self._answer_now(frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many requests open"), step)
            return
        self._asked += 1
        self._open.append(_Question(str(self._asked), self._secret_behind))
        asked = replace(to_message(frame, Sender.CLIENT), correlation=str(self._asked))
        if isinstance(frame, frames.GetMessageList):
            asked = replace(asked, fields={**_ROOM})  # those above are told how much one list holds
        step.messages.append(asked)

    def _answer(self, message: Common, _now_s: float, step: Step) -> None:
        question = next((each for each in self._open if each.correlation == message.correlation), None)
        if question is None or question.answer is not None:
            return  # answered already, or never asked
        if message.parts:
            question.answer = self._fitting(message, question.secret)
        else:
            question.answer = _writable(from_message(message, Sender.SERVER))
        self._release(step)

    def _answer_now(self, frame: frames.CometFrame, step: Step) -> None:
        """Our own answer, in its turn behind the open questions."""
        if self._open:
            self._open.append(_Question("", self._secret_behind, frame))
        else:
            step.frames.append(frame)

    def _release(self, step: Step) -> None:
        while self._open and (answer := self._open[0].answer) is not None:
            step.frames.append(answer)
            self._secret = self._open.popleft().secret

    @property
    def _secret_behind(self) -> bytes | None:
        """The one that holds once everything that is open is answered."""
        return self._open[-1].secret if self._open else self._secret

    def _fitting(self, message: Common, secret: bytes | None) -> frames.MessageList:
        """As many of the waiting notifications as one frame holds, oldest first, without those that fit none."""
        room = COMET_WRITE_LENGTH_MAX - _LIST_HEAD_BYTES
        fitting: list[frames.Message] = []
        for part in message.parts:
            try:
                notified = self._sealed(part, secret)
            except TranslationError:
                continue
            room -= len(notified.body())
            if room < 0 or len(fitting) == COMET_WRITE_COUNT_MAX:
                break
            fitting.append(notified)
        return frames.MessageList(tuple(fitting))

    def _push(self, message: Common, _now_s: float, step: Step) -> None:
        step.frames.append(self._sealed(message, self._secret))

    def _sealed(self, message: Common, secret: bytes | None) -> frames.Message:
        plain = _sayable(message)
        if secret is None:
            return plain
        nonce = self._random(crypto.NONCE_BYTES)
        content = crypto.seal_content(plain.content, plain.msg_id, secret, nonce)
        return replace(plain, content=content)

    def _second_auth(self, _frame: frames.Auth, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.BAD_ARGUMENTS, "already logged in"))
        step.closing = Closing("second_auth")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.BAD_ARGUMENTS, error.text))
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        replaced = closing.code == "replaced"
        code = ErrorCode.CONNECTED_ELSEWHERE if replaced else ErrorCode.SERVER_ERROR
        step.frames.append(frames.Error(code, closing.text or closing.code))
        step.closing = closing

    def _flood(self, _frame: Frame, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many requests without waiting"))
        step.closing = Closing("too_many_requests", "too many answers wait their turn")

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"nothing heard for {self.settings.idle_s:g} s")


class _Question(Struct):
    correlation: str
    secret: bytes | None  # holds from its answer on; that of an exchange_key is the new one
    answer: frames.CometFrame | None = None


def topic_allowed(topic: str) -> bool:
    return len(topic) <= COMET_TOPIC_CHARS_MAX and _TOPIC.fullmatch(topic) is not None


def _sayable(message: Common) -> frames.Message:
    """A notification that fits a frame, by itself or in a list, sealed or not."""
    told = notification(message)
    if len(told.content) > COMET_CONTENT_BYTES_MAX:
        raise TranslationError(f"a content of {len(told.content)} bytes: comet carries {COMET_CONTENT_BYTES_MAX}")
    return told


def _writable(answer: frames.CometFrame) -> frames.CometFrame:
    """An answer that fits no frame (a hundred topics and more) becomes one that says so."""
    try:
        answer.encode()
    except EncodeError as error:
        return frames.Error(ErrorCode.SERVER_ERROR, str(error))
    return answer
