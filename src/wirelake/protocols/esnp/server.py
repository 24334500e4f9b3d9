"""The server session of esnp: the gateway's end of a connection."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.message import GATEWAY_SERVICE, Kind, Op, Operation, Topic, anonymous_login, control_op
from wirelake.message import Message as Common
from wirelake.protocols.esnp import lines as making
from wirelake.protocols.esnp.address import not_found_text, not_here_text
from wirelake.protocols.esnp.constants import ESNP_HELD_FRAMES_MAX, Flag
from wirelake.protocols.esnp.contents import GROUP, HOST, OP, Contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.session import SERVER_MACHINE, EsnpSession, ServerState, SessionSettings
from wirelake.protocols.esnp.translation import Role, is_one_way, message_of, role_of, with_raw_body
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step

_OWN_EVENTS = (Op.LOGIN.value, Op.PING.value)  # have transitions of their own
_HOP_BY_HOP = (Flag.TRACE, Flag.ASYNC)  # for the gateway, not for the provider


class ServerSession(EsnpSession):
    """Serve one client."""

    state_machine = SERVER_MACHINE
    other = Sender.CLIENT
    closed = ServerState.CLOSED
    __slots__ = ("_held", "_login_correlation")

    def __init__(self, now_s: float, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings)
        self.deadlines["login"] = now_s + settings.login_s
        self._held: list[Contents] = []
        self._login_correlation = ""

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    @property
    def frame_bytes_max(self) -> int:
        ready = self.state is ServerState.READY or self.settings.open
        return self.settings.frame_bytes_max if ready else self.settings.login_frame_bytes_max

    @property
    def encoding_key(self) -> str | None:
        """Return a key by how the client writes counts: nothing else in a notification depends on the client."""
        if self.state is not ServerState.READY:
            return None
        return "esnp plain counts" if self._peer_requests.plain_counts else "esnp"

    def encode_notification(self, message: Common) -> bytes:
        return from_message(message, Sender.SERVER, plain_counts=self._peer_requests.plain_counts).encode()

    def _event_of(self, contents: Contents) -> str:
        event = super()._event_of(contents)
        if event in ("request", "one-way") and self._why_elsewhere(contents):
            return "elsewhere"
        op = contents.addresses.get(OP, "")
        is_ours = event in ("request", "one-way") and role_of(contents, self.other) is Role.GATEWAY
        if op == Op.PING.value and Flag.TRACE in contents.flags and self.state is ServerState.READY:
            return event  # passed up, so that every hop is traced
        return op if is_ours and op in _OWN_EVENTS else event

    def _why_elsewhere(self, contents: Contents) -> str:
        """Return why the gateway cannot serve this address, or "". Most messages name neither host nor group."""
        addresses = contents.addresses
        operation = contents.operation if HOST in addresses or GROUP in addresses else None
        if operation is None:
            return ""
        if operation.host and operation.host.lower() not in self.settings.node_names:
            return not_here_text(operation)
        return not_found_text(operation) if operation.group and operation.service == GATEWAY_SERVICE else ""

    def _problem(self, contents: Contents) -> str:
        problem = super()._problem(contents)
        place = contents.frame.head_after_body
        return problem or ("" if place is None else f"a head line behind a body line (byte {place})")

    def _message(self, contents: Contents) -> Common:
        """Add the raw lines: requester and provider receive each other's lines unchanged."""
        return with_raw_body(super()._message(contents), contents)

    def _missing(self, message: Common) -> str:
        target = message.target
        if isinstance(target, Topic):
            return "" if target.name else "publish needs DATA topic"
        if not isinstance(target, Operation) or not target.service:
            return not_found_text(target if isinstance(target, Operation) else Operation(""))
        op = control_op(message)
        if message.kind is not Kind.CONTROL or op is Op.PING:
            return ""
        match op:
            case Op.SUBSCRIBE | Op.UNSUBSCRIBE:
                topics = message.fields["topics"]
                return "" if topics and all(topics) else f"{op} needs DATA topic"
            case Op.REGISTER | Op.UNREGISTER:
                return _missing_registration(op, message.fields)
        return not_found_text(target)

    def _login(self, contents: Contents, _now_s: float, step: Step) -> None:
        self._login_correlation = self._peer_requests.add(contents)
        step.messages.append(replace(message_of(contents, self.other), correlation=self._login_correlation))

    def _decide(self, message: Common, now_s: float, step: Step) -> None:
        self.deadlines.pop("login", None)
        step.frames += self._peer_requests.answer(replace(message, correlation=self._login_correlation))
        held, self._held = self._held, []
        if message.failure is not None:
            self.state = ServerState.CLOSED
            step.closing = Closing("login_refused", message.failure.text)
            return
        self.state = ServerState.READY
        for contents in held:
            self._read(contents, now_s, step)

    def _hold(self, contents: Contents, _now_s: float, step: Step) -> None:
        if len(self._held) < ESNP_HELD_FRAMES_MAX:
            self._held.append(contents)
            return
        self.state = ServerState.CLOSED
        self._close("too_many_requests", "too many messages before the login was decided", step)

    def _pong(self, contents: Contents, _now_s: float, step: Step) -> None:
        if not is_one_way(contents):
            step.frames += self._peer_requests.answer_now(contents)

    def _not_here(self, contents: Contents, _now_s: float, step: Step) -> None:
        if not is_one_way(contents):
            self._answer_error(contents, self._why_elsewhere(contents), step)

    def _not_logged_in(self, contents: Contents, now_s: float, step: Step) -> None:
        if not self.settings.open:
            self._answer_error(contents, "not logged in", step)
            return
        self.state = ServerState.CHECKING
        self._hold(contents, now_s, step)
        step.messages.append(anonymous_login("esnp", self._peer_requests.correlate()))

    def _second_login(self, contents: Contents, _now_s: float, step: Step) -> None:
        self._answer_error(contents, "already logged in", step)

    def _request(self, message: Common, now_s: float, step: Step) -> None:
        flags = message.headers.get("esnp.flags", ())
        if any(flag in flags for flag in _HOP_BY_HOP):
            onward = [flag for flag in flags if flag not in _HOP_BY_HOP]
            message = replace(message, headers={**message.headers, "esnp.flags": onward})
        super()._request(message, now_s, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        self._close("login_timeout", "no login in time", step)

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        self._close(error.code, str(error), step)

    def _flood(self, _argument: object, _now_s: float, step: Step) -> None:
        self._close("too_many_requests", "too many answers wait their turn", step)

    def _close(self, code: str, text: str, step: Step) -> None:
        """Send an error that names no request, because it concerns the connection, and close."""
        step.frames.append(EsnpMessage((making.flag_line(Flag.RESP), making.error_line(text))))
        step.closing = Closing(code, text)

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        text = closing.text or closing.code
        step.frames.append(EsnpMessage((making.flag_line(Flag.EVENT), making.error_line(text))))
        step.closing = closing


def _missing_registration(op: Op, fields: Mapping[str, Any]) -> str:
    if not fields["service"] or fields["service"] == GATEWAY_SERVICE:
        return f"{op} needs DATA service, not our own"
    return "" if isinstance(fields.get("group", ""), str) else f"{op}: DATA group is text"
