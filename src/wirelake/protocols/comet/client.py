"""The client session of comet: the phone's end of a connection."""

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.comet import crypto, frames
from wirelake.protocols.comet.constants import COMET_REQUESTS_OPEN_MAX
from wirelake.protocols.comet.session import CLIENT_MACHINE, ClientState, SessionSettings
from wirelake.protocols.comet.translation import from_message, to_message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Closing, Session, Step

_OWN_HEARTBEAT = None  # correlation of our own heartbeats: their answers are not passed up


class ClientSession(Session):
    """Log in, and send requests in order.

    If `secret_bytes` is 16 or 32, the session draws a secret of that size from `random` and gets its content sealed.
    """

    state_machine = CLIENT_MACHINE
    __slots__ = ("_login_correlation", "_open", "_random", "_secret", "_secret_bytes", "settings")

    def __init__(
        self,
        now_s: float,
        random: Callable[[int], bytes],
        secret_bytes: int = 0,
        settings: SessionSettings = SessionSettings(),
    ) -> None:
        super().__init__(now_s, settings.idle_s)
        self.settings = settings
        self._random = random
        self._secret_bytes = secret_bytes
        self._secret: bytes | None = None
        self._login_correlation = ""
        self._open: deque[str | None] = deque()

    def _login(self, message: Common, now_s: float, step: Step) -> None:
        self._login_correlation = message.correlation
        self.deadlines["login"] = now_s + self.settings.login_s
        step.frames.append(from_message(message, Sender.CLIENT))

    def _logged_in(self, frame: frames.AuthSuccess, now_s: float, step: Step) -> None:
        if not self._secret_bytes:
            self._ready(frame, now_s, step)
            return
        self._secret = self._random(self._secret_bytes)
        try:
            wrapped = crypto.wrap_secret(self._secret, frame.encrypt_key)
        except ProtocolError as error:
            self.state = ClientState.CLOSED
            self._fail(error, now_s, step)
            return
        self.state = ClientState.EXCHANGING
        step.frames.append(frames.ExchangeKey(wrapped))

    def _exchanged(self, frame: frames.Ok, now_s: float, step: Step) -> None:
        self._ready(frame, now_s, step)

    def _ready(self, frame: frames.CometFrame, now_s: float, step: Step) -> None:
        self.state = ClientState.READY
        self.deadlines.pop("login", None)
        self.deadlines["heartbeat"] = now_s + self.settings.heartbeat_s
        answer = Common(kind=Kind.RESPONSE, name=frame.name, protocol="comet", correlation=self._login_correlation)
        step.messages.append(answer)

    def _refused(self, frame: frames.Error, _now_s: float, step: Step) -> None:
        answer = to_message(frame, Sender.SERVER)
        step.messages.append(replace(answer, correlation=self._login_correlation))
        step.closing = Closing("login_refused", frame.reason)

    def _request(self, message: Common, _now_s: float, step: Step) -> None:
        if len(self._open) >= COMET_REQUESTS_OPEN_MAX:
            raise StateError(f"{COMET_REQUESTS_OPEN_MAX} requests are open already")
        step.frames.append(from_message(message, Sender.CLIENT))
        self._open.append(message.correlation)

    def _answered(self, frame: frames.CometFrame, now_s: float, step: Step) -> None:
        if not self._open:
            self._unexpected(frame, now_s, step)
            return
        correlation = self._open.popleft()
        if correlation is not _OWN_HEARTBEAT:
            step.messages.append(self._with_open_content(to_message(frame, Sender.SERVER), correlation, now_s, step))

    def _error(self, frame: frames.Error, now_s: float, step: Step) -> None:
        if self._open:
            self._answered(frame, now_s, step)
            return
        self.state = ClientState.CLOSED
        step.messages.append(to_message(frame, Sender.SERVER))
        step.closing = Closing("server_error", frame.reason)

    def _notified(self, frame: frames.Message, now_s: float, step: Step) -> None:
        message = to_message(frame, Sender.SERVER)
        step.messages.append(self._with_open_content(message, "", now_s, step))

    def _with_open_content(self, message: Common, correlation: str, now_s: float, step: Step) -> Common:
        """Return the message with its content decrypted. Close the connection if a notification was tampered with."""
        try:
            return replace(
                message,
                correlation=correlation,
                payload=self._open_content(message),
                parts=tuple(replace(part, payload=self._open_content(part)) for part in message.parts),
            )
        except ProtocolError as error:
            self.state = ClientState.CLOSED
            self._fail(error, now_s, step)
            return replace(message, correlation=correlation, failure=Failure(error.text))

    def _open_content(self, message: Common) -> bytes:
        sealed = message.kind is Kind.NOTIFICATION and self.state is ClientState.READY
        if self._secret is None or not sealed:
            return message.payload
        return crypto.open_content(message.payload, message.id, self._secret)

    def _send_heartbeat(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["heartbeat"] = now_s + self.settings.heartbeat_s
        if len(self._open) < COMET_REQUESTS_OPEN_MAX:
            step.frames.append(frames.Heartbeat())
            self._open.append(_OWN_HEARTBEAT)

    def _unexpected(self, frame: Frame, _now_s: float, step: Step) -> None:
        self.state = ClientState.CLOSED
        step.closing = Closing("unexpected_frame", f"{frame.name} answers no request")

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("login_timeout")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"no data received for {self.settings.idle_s:g} s")
