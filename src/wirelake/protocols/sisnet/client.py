"""A terminal's end of a sisnet connection."""

from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import FORWARDED, LAYOUT, PACKED, Kind, Message, Op, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.interest import subscribed_by
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import failed
from wirelake.protocols.sisnet.binary_form import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.data_line import DataLine, behind_names
from wirelake.protocols.sisnet.json_form import Json
from wirelake.protocols.sisnet.limits import SISNET_REQUESTS_OPEN_MAX, SISNET_TABLES_MAX
from wirelake.protocols.sisnet.names import SisnetFrame, own_name, relayed
from wirelake.protocols.sisnet.opcodes import Dialect
from wirelake.protocols.sisnet.peer import Asked, Heard, Peer
from wirelake.protocols.sisnet.request import Request, forwarded, read_request, write_json_request
from wirelake.protocols.sisnet.session import CLIENT_MACHINE, ClientState, SessionSettings
from wirelake.protocols.sisnet.subscriptions import Subscriptions
from wirelake.protocols.sisnet.translation import (
    answer_to_message,
    request_from_message,
    request_to_message,
    written,
)

_LOGIN_NAME = "login"
_OLD_VERSION = 1


class ClientSession(Peer):
    """Asks in `dialect`; with `binary`, questions and answers are in the binary form, with `compress` packed by snappy.

    What is pushed for a subscription comes up as a NOTIFICATION with the correlation of the request that subscribed.
    A request that came in a frame, which is in its header `sisnet.frame`, is relayed: its bytes go out behind our name.
    An answer in several packets comes up as it comes, each saying in `more` how many still follow. With `relays`
    answers come up with their frames, for an asker who can be given them as they are.
    """

    side = Sender.CLIENT
    state_machine = CLIENT_MACHINE
    __slots__ = ("_binary", "_login_correlation", "_relays", "_subscriptions", "_told_fields", "_wants_snappy")

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
        self._told_fields: dict[str, Any] = {}  # of a table, as the server was told last for relayed data lines
        self._login_correlation = ""
        self._subscriptions: Subscriptions[Asked] = Subscriptions()

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
        step.frames.append(written(lambda: write_json_request(request, _LOGIN_NAME)))

    def _login_answered(self, heard: Heard, now_s: float, step: Step) -> None:
        if heard.frame.message_name != _LOGIN_NAME and heard.answer.ans >= 0:
            return
        if heard.answer.ans < 0:
            self.state = ClientState.CLOSED
            self._refused(heard, now_s, step)
            return
        self.state = ClientState.READY
        self.compress = self._wants_snappy
        self.deadlines.pop("login", None)
        self.deadlines["ping"] = now_s + self.settings.ping_s
        message = answer_to_message(heard.answer, heard.frame)
        step.messages.append(replace(message, correlation=self._login_correlation))

    def _refused(self, heard: Heard, _now_s: float, step: Step) -> None:
        message = answer_to_message(heard.answer, heard.frame)
        step.messages.append(replace(message, correlation=self._login_correlation))
        step.closing = Closing("login_refused", "" if message.failure is None else message.failure.text)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("login_timeout")

    def _hear_answer(self, heard: Heard, now_s: float, step: Step) -> None:
        name = own_name(heard.frame.message_name)
        found = self._subscriptions.find(name)
        if found is not None:
            self._pushed(name, found[1], self._answer_message(heard), step)
        elif name in self._asked:
            super()._hear_answer(heard, now_s, step)
        elif heard.answer.ans < 0:
            step.messages.append(answer_to_message(heard.answer, heard.frame))  # of no request: of the connection
        else:
            message = answer_to_message(heard.answer, heard.frame)
            if message.kind is Kind.NOTIFICATION:
                step.messages.append(replace(message, correlation=""))

    def _answer_message(self, heard: Heard) -> Message:
        """What differs between askers, a failure's number and `lnk`, is written for each of them."""
        message = super()._answer_message(heard)
        frame, answer = heard.frame, heard.answer
        passes = isinstance(frame, BinaryAnswer) or (isinstance(frame, Json) and answer.dialect is Dialect.NEW)
        if not self._relays or not passes or answer.ans < 0 or "lnk" in answer.headers:
            return message
        return forwarded(message, frame)

    def _pushed(self, name: str, asked: Asked, message: Message, step: Step) -> None:
        if message.failure is not None:
            self._subscriptions.drop(name)
        else:
            message = replace(message, kind=Kind.NOTIFICATION)
        step.messages.append(replace(message, correlation=asked.correlation or ""))

    def _settled(self, name: str, asked: Asked, answer: Message) -> Message:
        if asked.subscribes is not None:
            self._subscriptions.add(name, asked.subscribes, asked)
        if asked.unsubscribes is not None:
            self._subscriptions.call_off(asked.unsubscribes)
        return answer

    def _ask(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        interest = subscribed_by(message)
        pending = [asked.subscribes for asked in self._asked.values() if asked.subscribes is not None]
        if interest is not None and not self._subscriptions.has_room([interest, *pending]):
            raise StateError("too many subscriptions")
        if isinstance(message.headers.get(FORWARDED), DataLine) and PACKED in message.headers:
            self._tell_fields(message, step)
        super()._ask(message, correlation, now_s, step)

    def _tell_fields(self, message: Message, step: Step) -> None:
        """Tell the server how the records of a relayed line are packed. Nobody waits for the answer."""
        sdb, fields = message.fields["sdb"], message.fields["fields"]
        if self._told_fields.get(sdb) == fields or (
            sdb not in self._told_fields and len(self._told_fields) >= SISNET_TABLES_MAX
        ):
            return
        layout = Message(kind=Kind.CONTROL, name=LAYOUT, fields={sdb: {"fields": fields}})
        self._say(self._request_frame(layout, ""), step)
        self._told_fields[sdb] = fields

    def _request_frame(self, message: Message, name: str) -> SisnetFrame:
        frame = message.headers.get(FORWARDED)
        if isinstance(frame, Json):
            return replace(frame, message_name=relayed(name, frame.message_name))
        if isinstance(frame, BinaryRequest):
            return replace(frame, message_name=relayed(name, frame.message_name) if frame.can_be_relayed else name)
        if isinstance(frame, DataLine) and self._told_fields.get(frame.sdb) == message.fields.get("fields", ()):
            return replace(frame, message_name=name)  # behind two names it would be another line
        return request_from_message(message, name, self._dialect, binary=self._binary)

    def _serve(self, heard: Heard, now_s: float, step: Step) -> None:
        """Both ends count names from 1: what asks under the name of a subscription is a push only as a data line."""
        found = self._subscriptions.find(heard.frame.message_name)
        if found is None or not isinstance(heard.frame, DataLine):
            self._ask_above(heard, now_s, step)
            return
        line = behind_names(heard.frame, found[1].names)
        message = request_to_message(read_request(line), line)
        try:
            message = self._understood(message, line)
        except ProtocolError as error:
            self._reply(self._question(heard), failed(error.text), step)
            return
        self._pushed(heard.frame.message_name, found[1], message, step)

    def _not_served(self, heard: Heard, _now_s: float, step: Step) -> None:
        self._reply(self._question(heard), failed("not served here"), step)

    def _logged_out(self, heard: Heard, now_s: float, step: Step) -> None:
        why = "" if heard.request.command else str(heard.answer.msg)
        if heard.frame.message_name in self._asked:
            super()._hear_answer(heard, now_s, step)
        step.closing = Closing("logout", why)

    def _beat(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["ping"] = now_s + self.settings.ping_s
        if len(self._asked) < SISNET_REQUESTS_OPEN_MAX:
            self._ask(control(Op.PING), None, now_s, step)

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing
