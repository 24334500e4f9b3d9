"""The server session of comet: the gateway's end of a connection."""

import re
from collections import deque
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.message import Message as Common
from wirelake.protocols.comet import crypto, frames
from wirelake.protocols.comet.constants import (
    COMET_ANSWERS_WAITING_MAX,
    COMET_CONTENT_BYTES_MAX,
    COMET_FRAME_BYTES_MAX,
    COMET_HELD_FRAMES_MAX,
    COMET_REQUESTS_OPEN_MAX,
    COMET_TOPIC_CHARS_MAX,
    COMET_WRITE_COUNT_MAX,
    COMET_WRITE_LENGTH_MAX,
    ErrorCode,
)
from wirelake.protocols.comet.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.comet.translation import from_message, notification, to_message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import ACCESS_DENIED, Closing, Session, Step

_TOPIC = re.compile(r"@[\w/\-@$.]*")  # letters and digits of any script
_HEAD_BYTES = 3  # length and type
_CLOSING_CODES = {"replaced": ErrorCode.CONNECTED_ELSEWHERE, ACCESS_DENIED: ErrorCode.ACCESS_DENIED}
_LIST_HEAD_BYTES = 2  # type and count
_EACH_BYTES = 1 + 2 + 2 + 8 + crypto.NONCE_BYTES + crypto.TAG_BYTES  # of each message besides id and content
_BACKLOG_LIMITS = {
    "rows_max": COMET_WRITE_COUNT_MAX,
    "bytes_max": COMET_WRITE_LENGTH_MAX - _LIST_HEAD_BYTES,
    "each_bytes": _EACH_BYTES,
    "content_bytes_max": COMET_CONTENT_BYTES_MAX,
}


class ServerSession(Session):
    """Serve one client.

    `private` decrypts the secrets of clients; `random` returns that many new random bytes, for nonces.
    """

    state_machine = SERVER_MACHINE
    sends_acks = True
    pulls_backlog = True
    __slots__ = ("_held", "_open", "_private", "_random", "_request_count", "_secret", "settings")

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
        self._request_count = 0
        self._open: deque[_OpenRequest] = deque()

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
        """Return None for a client with a key: its content is sealed for it alone."""
        return "comet" if self._secret is None and self.state is ServerState.READY else None

    def encode_notification(self, message: Common) -> bytes:
        return _fitting_message(message).encode()

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
        self._answer_in_order(frames.Error(ErrorCode.NOT_AUTHENTICATED, f"{frame.name}: {first} first"), step)

    def _ok(self, _frame: Frame, _now_s: float, step: Step) -> None:
        self._answer_in_order(frames.Ok(), step)

    def _exchange(self, frame: frames.ExchangeKey, now_s: float, step: Step) -> None:
        try:
            secret = crypto.unwrap_secret(frame.secret_key, self._private)
        except ProtocolError as error:
            self.state = ServerState.CLOSED
            self._fail(error, now_s, step)
            return
        self.state = ServerState.READY
        self._open.append(_OpenRequest("", secret, frames.Ok()))
        self._release(step)

    def _request_topics(self, frame: frames.Subscribe | frames.Unsubscribe, now_s: float, step: Step) -> None:
        bad = next((topic for topic in frame.topics if not topic_allowed(topic)), None)
        if bad is not None:
            self._answer_in_order(frames.Error(ErrorCode.BAD_ARGUMENTS, f"not a topic name: {bad[:64]}"), step)
            return
        self._request(frame, now_s, step)

    def _request(self, frame: frames.CometFrame, _now_s: float, step: Step) -> None:
        if len(self._open) >= COMET_REQUESTS_OPEN_MAX:
            self._answer_in_order(frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many requests open"), step)
            return
        self._request_count += 1
        self._open.append(_OpenRequest(str(self._request_count), self._last_secret))
        message = replace(to_message(frame, Sender.CLIENT), correlation=str(self._request_count))
        if isinstance(frame, frames.GetMessageList):
            message = replace(message, fields={**_BACKLOG_LIMITS})  # what fits in one list
        step.messages.append(message)

    def _answer(self, message: Common, _now_s: float, step: Step) -> None:
        request = next((each for each in self._open if each.correlation == message.correlation), None)
        if request is None or request.answer is not None:
            return  # already answered, or no such request
        if message.parts:
            request.answer = self._message_list(message, request.secret)
        else:
            request.answer = _fitting_answer(from_message(message, Sender.SERVER))
        self._release(step)

    def _answer_in_order(self, frame: frames.CometFrame, step: Step) -> None:
        """Send an answer of our own, after those to the open requests."""
        if self._open:
            self._open.append(_OpenRequest("", self._last_secret, frame))
        else:
            step.frames.append(frame)

    def _release(self, step: Step) -> None:
        while self._open and (answer := self._open[0].answer) is not None:
            step.frames.append(answer)
            self._secret = self._open.popleft().secret

    @property
    def _last_secret(self) -> bytes | None:
        """Return the secret that is in force once every open request is answered."""
        return self._open[-1].secret if self._open else self._secret

    def _message_list(self, message: Common, secret: bytes | None) -> frames.MessageList:
        """Return as many of the notifications as fit in a frame, oldest first. Skip those that fit in none."""
        room = COMET_WRITE_LENGTH_MAX - _LIST_HEAD_BYTES
        fitting: list[frames.Message] = []
        for part in message.parts:
            try:
                notified = self._sealed(part, secret)
            except TranslationError:
                continue
            room -= len(notified.encode()) - _HEAD_BYTES
            if room < 0 or len(fitting) == COMET_WRITE_COUNT_MAX:
                break
            fitting.append(notified)
        return frames.MessageList(tuple(fitting))

    def _push(self, message: Common, _now_s: float, step: Step) -> None:
        step.frames.append(self._sealed(message, self._secret))

    def _sealed(self, message: Common, secret: bytes | None) -> frames.Message:
        plain = _fitting_message(message)
        if secret is None:
            return plain
        nonce = self._random(crypto.NONCE_BYTES)
        content = crypto.seal_content(plain.content, plain.msg_id, secret, nonce)
        return replace(plain, content=content)

    def _refuse_second_auth(self, _frame: frames.Auth, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.BAD_ARGUMENTS, "already logged in"))
        step.closing = Closing("second_auth")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.BAD_ARGUMENTS, error.text))
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        code = _CLOSING_CODES.get(closing.code, ErrorCode.SERVER_ERROR)
        step.frames.append(frames.Error(code, closing.text or closing.code))
        step.closing = closing

    def _flood(self, _frame: Frame, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many requests without waiting"))
        step.closing = Closing("too_many_requests", "too many answers wait their turn")

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"no data received for {self.settings.idle_s:g} s")


class _OpenRequest(Struct):
    correlation: str
    secret: bytes | None  # in force after its answer; that of an exchange_key is the new one
    answer: frames.CometFrame | None = None


def topic_allowed(topic: str) -> bool:
    """Return whether comet clients may subscribe to a topic of this name."""
    return len(topic) <= COMET_TOPIC_CHARS_MAX and _TOPIC.fullmatch(topic) is not None


def _fitting_message(message: Common) -> frames.Message:
    """Return a notification that fits in a frame, alone or in a list, sealed or not. Raise TranslationError if none."""
    frame = notification(message)
    if len(frame.content) > COMET_CONTENT_BYTES_MAX:
        raise TranslationError(f"a content of {len(frame.content)} bytes: comet carries {COMET_CONTENT_BYTES_MAX}")
    return frame


def _fitting_answer(answer: frames.CometFrame) -> frames.CometFrame:
    """Return the answer, or an error in its place if it fits in no frame, as with more than a hundred topics."""
    try:
        answer.encode()
    except EncodeError as error:
        return frames.Error(ErrorCode.SERVER_ERROR, str(error))
    return answer
