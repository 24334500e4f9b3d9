"""The client session of redis."""

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.constants import REDIS_REQUESTS_OPEN_MAX
from wirelake.protocols.redis.frames import BulkString, ClientFrame, Integer, Value
from wirelake.protocols.redis.housekeeping import as_text
from wirelake.protocols.redis.session import CLIENT_MACHINE, ClientState, SessionSettings
from wirelake.protocols.redis.translation import command_from_message, notification_of, to_message
from wirelake.protocols.session import Closing, Session, Step

_CONFIRMED = frozenset({b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe"})
_QUIT = frames.Command((b"QUIT",))
_PING = frames.Command((b"PING",))


class ClientSession(Session):
    """Log in, send commands in order, and receive pushes."""

    state_machine = CLIENT_MACHINE
    __slots__ = ("_channels", "_login_correlation", "_open", "_patterns", "settings")

    def __init__(self, now_s: float, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings.idle_s or None)
        self.settings = settings
        self._login_correlation = ""
        self._open: deque[_OpenRequest] = deque()
        self._channels: set[bytes] = set()  # confirmed by the server
        self._patterns: set[bytes] = set()

    def _login(self, message: Message, now_s: float, step: Step) -> None:
        self._login_correlation = message.correlation
        self.deadlines["login"] = now_s + self.settings.login_s
        if self.settings.version != 2 or message.credentials is None:
            message = replace(message, fields={**message.fields, "version": self.settings.version})
        step.frames.append(command_from_message(message))

    def _logged_in(self, value: Value, now_s: float, step: Step) -> None:
        del self.deadlines["login"]
        self.deadlines["ping"] = now_s + self.settings.ping_s
        step.messages.append(replace(to_message(value, Sender.SERVER), correlation=self._login_correlation))

    def _refused(self, value: frames.SimpleError | frames.BulkError, _now_s: float, step: Step) -> None:
        step.messages.append(replace(to_message(value, Sender.SERVER), correlation=self._login_correlation))
        step.closing = Closing("login_refused", as_text(value.text))

    def _ask(self, message: Message, _now_s: float, step: Step) -> None:
        if len(self._open) >= REDIS_REQUESTS_OPEN_MAX:
            raise StateError(f"{REDIS_REQUESTS_OPEN_MAX} requests are open already")
        command = command_from_message(message)
        self._open.append(_OpenRequest(message.correlation, command.verb, self._confirmation_count(command)))
        step.frames.append(command)

    def _confirmation_count(self, command: ClientFrame) -> int:
        """Return how many confirmations answer a command: one for each name, or for each subscription."""
        if command.verb not in _CONFIRMED:
            return 0
        subscribed = self._patterns if command.verb.startswith(b"p") else self._channels
        return len(command.args[1:]) or len(subscribed) or 1

    def _pushed(self, value: frames.Push | frames.Array, now_s: float, step: Step) -> None:
        message = notification_of(value)
        if message is not None:
            step.messages.append(message)
        elif _is_confirmation(value):
            self._confirmed(value, now_s, step)
        else:
            step.messages.append(to_message(value, Sender.SERVER))

    def _array(self, value: frames.Array, now_s: float, step: Step) -> None:
        """Handle an array. In RESP 2 it may be a push: a notification, or the confirmation of a subscription."""
        subscribed = self.settings.version == 2 and (self._channels or self._patterns)
        expected = self._open and self._open[0].confirmations and _is_confirmation(value)
        if expected or (subscribed and notification_of(value) is not None):
            self._pushed(value, now_s, step)
        else:
            self._answered(value, now_s, step)

    def _confirmed(self, value: frames.Push | frames.Array, now_s: float, step: Step) -> None:
        verb, name = (item.data if isinstance(item, BulkString) else b"" for item in value.items[:2])
        names = self._patterns if verb.startswith(b"p") else self._channels
        if verb.endswith(b"unsubscribe"):
            names.discard(name)
        else:
            names.add(name)
        if not self._open or self._open[0].verb != verb:
            return  # the server ended a subscription by itself
        self._open[0].confirmations -= 1
        if self._open[0].confirmations <= 0:
            self._answered(value, now_s, step)

    def _answered(self, value: Value, _now_s: float, step: Step) -> None:
        if not self._open:
            self.state = ClientState.CLOSED
            step.closing = Closing("unexpected_frame", f"{value.name} answers no request")
            return
        request = self._open.popleft()
        if request.correlation is not None:
            step.messages.append(replace(to_message(value, Sender.SERVER), correlation=request.correlation))
        if self.state is ClientState.LEAVING and not self._open:
            self.state = ClientState.CLOSED
            step.closing = Closing("quit")

    def _leave(self, message: Message, now_s: float, step: Step) -> None:
        self.deadlines["leave"] = now_s + self.settings.leave_s
        self._open.append(_OpenRequest(message.correlation, _QUIT.verb))
        step.frames.append(_QUIT)

    def _beat(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["ping"] = now_s + self.settings.ping_s
        if len(self._open) < REDIS_REQUESTS_OPEN_MAX:
            self._open.append(_OpenRequest(None, _PING.verb))
            step.frames.append(_PING)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("login_timeout")

    def _gone(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("quit")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("idle", f"no data received for {self.settings.idle_s:g} s")


class _OpenRequest(Struct):
    correlation: str | None  # None for our own: the answer is not passed up
    verb: bytes
    confirmations: int = 0  # still missing


def _is_confirmation(value: frames.Push | frames.Array) -> bool:
    """Return whether a value confirms a subscription, as `subscribe channel count` does."""
    match value.items:
        case (BulkString(data), BulkString() | frames.Null() | frames.NullBulkString(), Integer()):
            return data in _CONFIRMED
    return False
