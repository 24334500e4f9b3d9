"""The client session of sisnet: the terminal's end of a connection."""

from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import FORWARDED, LAYOUT, PACKED, Kind, Message, Op, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import failed
from wirelake.protocols.sisnet.base_session import ReceivedFrame, SentRequest, SisnetSession
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.constants import SISNET_REQUESTS_OPEN_MAX, SISNET_TABLES_MAX, Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame, own_name, relayed
from wirelake.protocols.sisnet.forms import DataLine, Json, behind_names
from wirelake.protocols.sisnet.request import Request, forwarded, read_request, write_json_request
from wirelake.protocols.sisnet.session import CLIENT_MACHINE, ClientState, SessionSettings
from wirelake.protocols.sisnet.subscriptions import Subscriptions
from wirelake.protocols.sisnet.translation import (
    answer_to_message,
    request_from_message,
    request_to_message,
    write_checked,
)
from wirelake.protocols.translation import subscribed_by

_LOGIN_NAME = "login"
_OLD_VERSION = 1


class ClientSession(SisnetSession):
    """Send requests in `dialect`; `binary` selects the binary form, and `compress` compression by snappy.

    A push of a subscription is passed up as a NOTIFICATION with the correlation of the request that subscribed. A
    request with a frame in its header `sisnet.frame` is relayed: its bytes are sent after our own name. The packets of
    an answer are passed up one by one; `more` says how many follow. With `relays`, answers have their frames, for
    requesters that can receive them unchanged.
    """

    side = Sender.CLIENT
    state_machine = CLIENT_MACHINE
    __slots__ = ("_binary", "_login_correlation", "_relays", "_sent_layouts", "_subscriptions", "_wants_snappy")

    def __init__(
        self,
        now_s: float,
        settings: SessionSettings = SessionSettings(),
        *,
        dialect: Dialect = Dialect.NEW,
        binary: bool = False,
        compress: bool = False,
        relays: bool = False,
    ) -> None:
        super().__init__(now_s, settings)
        self._dialect = dialect
        self._binary = binary
        self._wants_snappy = compress
        self._relays = relays
        self._sent_layouts: dict[str, Any] = {}  # of tables, as last sent to the server for relayed data lines
        self._login_correlation = ""
        self._subscriptions: Subscriptions[SentRequest] = Subscriptions()

    def _login(self, message: Message, now_s: float, step: Step) -> None:
        if message.credentials is None:
            raise TranslationError("a login without credentials")
        self._login_correlation = message.correlation
        self.deadlines["login"] = now_s + self.settings.login_s
        user, token = message.credentials.user, message.credentials.token
        fmt = "bytes" if self._binary else "json"
        compress = {"compress": snappy.NAME} if self._wants_snappy else {}
        if self._dialect is Dialect.OLD:
            ask = {"version": _OLD_VERSION, "format": fmt, "username": user, "password": token} | compress
            request = Request(command=Op.LOGIN.value, ask=ask, dialect=Dialect.OLD)
        else:
            request = Request(command=Op.LOGIN.value, ask={"name": user, "password": token} | compress, fmt=fmt)
        step.frames.append(write_checked(lambda: write_json_request(request, _LOGIN_NAME)))

    def _login_answered(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        if received.frame.message_name != _LOGIN_NAME and received.answer.ans >= 0:
            return
        if received.answer.ans < 0:
            self.state = ClientState.CLOSED
            self._refused(received, now_s, step)
            return
        self.state = ClientState.READY
        self.compress = self._wants_snappy
        self.deadlines.pop("login", None)
        self.deadlines["ping"] = now_s + self.settings.ping_s
        message = answer_to_message(received.answer, received.frame)
        step.messages.append(replace(message, correlation=self._login_correlation))

    def _refused(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        message = answer_to_message(received.answer, received.frame)
        step.messages.append(replace(message, correlation=self._login_correlation))
        step.closing = Closing("login_refused", "" if message.failure is None else message.failure.text)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("login_timeout")

    def _receive_answer(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        name = own_name(received.frame.message_name)
        found = self._subscriptions.find(name)
        if found is not None:
            self._pushed(name, found[1], self._answer_message(received), step)
        elif name in self._sent:
            super()._receive_answer(received, now_s, step)
        elif received.answer.ans < 0:  # of the connection, not of a request
            step.messages.append(answer_to_message(received.answer, received.frame))
        else:
            message = answer_to_message(received.answer, received.frame)
            if message.kind is Kind.NOTIFICATION:
                step.messages.append(replace(message, correlation=""))

    def _answer_message(self, received: ReceivedFrame) -> Message:
        """Add the frame for relays, unless it differs between requesters: by the number of a failure, or `lnk`."""
        message = super()._answer_message(received)
        frame, answer = received.frame, received.answer
        passes = isinstance(frame, BinaryAnswer) or (isinstance(frame, Json) and answer.dialect is Dialect.NEW)
        if not self._relays or not passes or answer.ans < 0 or "lnk" in answer.headers:
            return message
        return forwarded(message, frame)

    def _pushed(self, name: str, sent: SentRequest, message: Message, step: Step) -> None:
        if message.failure is not None:
            self._subscriptions.drop(name)
        else:
            message = replace(message, kind=Kind.NOTIFICATION)
        step.messages.append(replace(message, correlation=sent.correlation or ""))

    def _on_success(self, name: str, sent: SentRequest, answer: Message) -> Message:
        if sent.subscribes is not None:
            self._subscriptions.add(name, sent.subscribes, sent)
        if sent.unsubscribes is not None:
            self._subscriptions.unsubscribe(sent.unsubscribes)
        return answer

    def _request(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        interest = subscribed_by(message)
        pending = [sent.subscribes for sent in self._sent.values() if sent.subscribes is not None]
        if interest is not None and not self._subscriptions.has_room([interest, *pending]):
            raise StateError("too many subscriptions")
        if isinstance(message.headers.get(FORWARDED), DataLine) and PACKED in message.headers:
            self._send_layout(message, step)
        super()._request(message, correlation, now_s, step)

    def _send_layout(self, message: Message, step: Step) -> None:
        """Send the server the layout of the records of a relayed line. Nobody waits for the answer."""
        sdb, fields = message.fields["sdb"], message.fields["fields"]
        if self._sent_layouts.get(sdb) == fields or (
            sdb not in self._sent_layouts and len(self._sent_layouts) >= SISNET_TABLES_MAX
        ):
            return
        layout = Message(kind=Kind.CONTROL, name=LAYOUT, fields={sdb: {"fields": fields}})
        self._send_frame(self._request_frame(layout, ""), step)
        self._sent_layouts[sdb] = fields

    def _request_frame(self, message: Message, name: str) -> SisnetFrame:
        frame = message.headers.get(FORWARDED)
        if isinstance(frame, Json):
            return replace(frame, message_name=relayed(name, frame.message_name))
        if isinstance(frame, BinaryRequest):
            return replace(frame, message_name=relayed(name, frame.message_name) if frame.can_be_relayed else name)
        if isinstance(frame, DataLine) and self._sent_layouts.get(frame.sdb) == message.fields.get("fields", ()):
            return replace(frame, message_name=name)  # after two names it would be a different line
        return request_from_message(message, name, self._dialect, binary=self._binary)

    def _serve(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        """Handle a request. Both ends number from 1: under the name of a subscription, only a data line is a push."""
        found = self._subscriptions.find(received.frame.message_name)
        if found is None or not isinstance(received.frame, DataLine):
            self._pass_up(received, now_s, step)
            return
        line = behind_names(received.frame, found[1].names)
        message = request_to_message(read_request(line), line)
        try:
            message = self._with_records(message, line)
        except ProtocolError as error:
            self._reply(self._open_request(received), failed(error.text), step)
            return
        self._pushed(received.frame.message_name, found[1], message, step)

    def _not_served(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        self._reply(self._open_request(received), failed("not served here"), step)

    def _logged_out(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        why = "" if received.request.command else str(received.answer.msg)
        if received.frame.message_name in self._sent:
            super()._receive_answer(received, now_s, step)
        step.closing = Closing("logout", why)

    def _send_ping(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["ping"] = now_s + self.settings.ping_s
        if len(self._sent) < SISNET_REQUESTS_OPEN_MAX:
            self._request(control(Op.PING), None, now_s, step)

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing
