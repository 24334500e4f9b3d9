"""The client session of esnp. A client may also provide services: register, receive requests, answer."""

from msgspec.structs import replace

from wirelake.message import Message as Common
from wirelake.protocols.esnp.contents import Contents
from wirelake.protocols.esnp.session import CLIENT_MACHINE, ClientState, EsnpSession, SessionSettings
from wirelake.protocols.esnp.translation import message_of
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step


class ClientSession(EsnpSession):
    """Log in, send requests, and answer those to our own services."""

    state_machine = CLIENT_MACHINE
    other = Sender.SERVER
    closed = ClientState.CLOSED
    __slots__ = ("_login_correlation", "_login_number")

    def __init__(self, now_s: float, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings)
        self._login_correlation = ""
        self._login_number = 0

    def _login(self, message: Common, now_s: float, step: Step) -> None:
        self._login_correlation = message.correlation
        self._login_number = self._own_requests.number()
        self.deadlines["login"] = now_s + self.settings.login_s
        step.frames.append(from_message(replace(message, correlation=str(self._login_number)), Sender.CLIENT))

    def _login_answered(self, contents: Contents, now_s: float, step: Step) -> None:
        if contents.source_message_id != self._login_number:
            self._receive_response(contents, now_s, step)
            return
        self.deadlines.pop("login", None)
        message = replace(message_of(contents, self.other), correlation=self._login_correlation)
        step.messages.append(message)
        if message.failure is None:
            self.state = ClientState.READY
            return
        self.state = ClientState.CLOSED
        step.closing = Closing("login_refused", message.failure.text)

    def _unmatched_response(self, contents: Contents, _now_s: float, step: Step) -> None:
        """Close if the response is an error that names no request: the server reports an error of the connection."""
        if contents.error is None or contents.source_message_id is not None:
            return
        self.state = ClientState.CLOSED
        step.messages.append(message_of(contents, self.other))
        step.closing = Closing("server_error", contents.error)

    def _receive_one_way(self, contents: Contents, now_s: float, step: Step) -> None:
        """Pass up a one-way message. Close if it has an error and no address: the server closes the connection."""
        self._pass_up(contents, now_s, step)
        if contents.error is not None and contents.operation is None:
            self.state = ClientState.CLOSED
            step.closing = Closing("server_error", contents.error)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("login_timeout")
