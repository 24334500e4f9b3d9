"""The server session of sisnet: the gateway's end of a connection."""

from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import FORWARDED, Kind, Message, Op, Operation, Topic, anonymous_login, control
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.redis.translation import PATTERN
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import OK, Answer, failed, write_answer
from wirelake.protocols.sisnet.base_session import OpenRequest, ReceivedFrame, SentRequest, SisnetSession
from wirelake.protocols.sisnet.binary import BinaryAnswer
from wirelake.protocols.sisnet.constants import BYTES_FORMATS, SISNET_HELD_FRAMES_MAX, SISNET_UNSUB_BYTES_MAX, Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame, own_name
from wirelake.protocols.sisnet.forms import Json, Redis
from wirelake.protocols.sisnet.redis_form import RedisForm
from wirelake.protocols.sisnet.request import forwarded
from wirelake.protocols.sisnet.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.sisnet.subscriptions import ProviderSubscription, ProviderSubscriptions, Subscriptions
from wirelake.protocols.sisnet.translation import (
    answer_from_message,
    answer_to_message,
    notification_to_answer,
    request_to_message,
)
from wirelake.protocols.text import word_of
from wirelake.protocols.translation import Interest, pattern_topic, subscribed_by

_FORMATS = frozenset({"", "json"}) | BYTES_FORMATS
_COMPRESSIONS = frozenset({"", "none", snappy.NAME})


class ServerSession(SisnetSession):
    """Serve one client.

    A NOTIFICATION is pushed under the name of the request that subscribed: the one with its `correlation`, or else the
    one that named its topic. Without either, it has an empty name; but if it has a correlation, the subscription has
    ended, and the push is dropped. A RESPONSE with a failure and the correlation of a subscription ends it: the client
    receives ans -1, or -100 if that is the code of the failure.

    A client that provides a service pushes in the same way: what it sends under the name of a `sub` of ours that it
    answered with 0 is passed up as further RESPONSEs with that correlation, until `app unsubscribe`.
    """

    side = Sender.SERVER
    state_machine = SERVER_MACHINE
    __slots__ = ("_held", "_login_request", "_provided", "_redis", "_subscriptions")

    def __init__(self, now_s: float, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings)
        self.deadlines["login"] = now_s + settings.login_s
        self._held: list[Frame] = []
        self._login_request: OpenRequest | None = None  # None: the client did not send the login
        self._subscriptions: Subscriptions[OpenRequest] = Subscriptions()
        self._provided = ProviderSubscriptions()
        self._redis: RedisForm | None = None  # after the first message of that form

    @property
    def frame_bytes_max(self) -> int:
        settings = self.settings
        logged_in = settings.open or self.state is ServerState.READY
        return settings.message_bytes_max if logged_in else settings.login_frame_bytes_max

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    def _read_frame(self, frame: Frame) -> tuple[str, Any]:
        """Do not decode held frames: only the decided login tells whether they are compressed."""
        return ("held", frame) if self.state is ServerState.CHECKING else super()._read_frame(frame)

    def _login(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        self._dialect = received.request.dialect
        open_request = self._login_request = self._open_request(received)
        message = replace(request_to_message(received.request, received.frame), correlation="login")
        fmt = received.request.fmt or word_of(message.fields.get("format"))
        compress = word_of(message.fields.get("compress"))
        for value, known, what in ((fmt, _FORMATS, "format"), (compress, _COMPRESSIONS, "compress")):
            if value not in known:
                self.state = ServerState.CLOSED
                self._answer_login(open_request, failed(f"{what} is not supported: {value[:32]}"), step)
                step.closing = Closing("login_refused", f"unknown {what}")
                return
        self.state = ServerState.CHECKING
        self._fmt = fmt
        self.compress = compress == snappy.NAME
        step.messages.append(message)

    def _decide(self, message: Message, now_s: float, step: Step) -> None:
        self.deadlines.pop("login", None)
        if message.failure is not None:
            self.state = ServerState.CLOSED
            if self._login_request is not None:
                self._answer_login(self._login_request, failed(message.failure.text), step)
            step.closing = Closing("login_refused", message.failure.text)
            return
        self.state = ServerState.READY
        if self._login_request is not None:
            self._answer_login(self._login_request, OK, step)
        held, self._held = self._held, []
        for frame in held:
            self._receive_held(frame, now_s, step)

    def _answer_login(self, open_request: OpenRequest, answer: Answer, step: Step) -> None:
        """Answer a login. The answer is never compressed: compression begins after it."""
        answer = replace(answer, dialect=open_request.dialect)
        step.frames.append(write_answer(answer, open_request.name, binary=open_request.binary, login=True))

    def _receive_held(self, frame: Frame, now_s: float, step: Step) -> None:
        if self.state is not ServerState.READY:
            return
        try:
            event, argument = self._read_frame(frame)
        except ProtocolError as error:
            event, argument = "app fail", error
        row = self.state_machine.find_frame(self.state, event)
        if row is not None:
            self._apply(row, argument, now_s, step)

    def _hold(self, frame: Frame, _now_s: float, step: Step) -> None:
        if len(self._held) >= SISNET_HELD_FRAMES_MAX:
            self.state = ServerState.CLOSED
            self._send_logout("too many frames before the login was decided", step)
            step.closing = Closing("too_many_requests", "too many frames before the login was decided")
            return
        self._held.append(frame)

    def _not_logged_in(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        if not self.settings.open:
            self._reply(self._open_request(received), failed("log in first"), step)
            return
        self.state = ServerState.CHECKING
        self._dialect = received.request.dialect
        self._hold(received.frame, now_s, step)
        step.messages.append(anonymous_login("sisnet", "login"))

    def _second_login(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        self._reply(self._open_request(received), failed("already logged in"), step)

    def _logged_out(self, received: ReceivedFrame, _now_s: float, step: Step) -> None:
        open_request = self._open_request(received)
        if received.request.command and open_request.dialect is Dialect.OLD:
            self._send_logout("ok", step, open_request.name)
        elif received.request.command:
            self._reply(open_request, OK, step)
        step.messages.append(control(Op.LOGOUT, name=received.frame.name, protocol="sisnet"))
        step.closing = Closing("logout")

    def _pass_up(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        if isinstance(received.frame, Redis):
            self._request_redis(received, received.frame, step)
        else:
            super()._pass_up(received, now_s, step)

    def _request_redis(self, received: ReceivedFrame, frame: Redis, step: Step) -> None:
        open_request = self._open_request(received)
        if self._redis is None:
            self._redis = RedisForm()
        try:
            command = self._redis.read(frame.content)
        except ProtocolError as error:
            self._reply(open_request, failed(f"Protocol error: {error.text}"), step)
            return
        content = self._redis.answer_directly(command)
        if content is None:
            redis_request, message = self._redis.ask(command)
            if message is not None:
                self._add_request(replace(open_request, redis=redis_request), message, frame, step)
                return
            content = self._redis.answer(redis_request, Message(kind=Kind.RESPONSE))
        self._send_frame(Redis(open_request.name, content), step)

    def _add_request(self, open_request: OpenRequest, message: Message, frame: SisnetFrame, step: Step) -> None:
        if message.kind is Kind.REQUEST:
            message = forwarded(message, frame)
        super()._add_request(open_request, message, frame, step)

    def _has_room(self, interest: Interest) -> bool:
        pending = [
            open_request.subscribes for open_request in self._open.values() if open_request.subscribes is not None
        ]
        return self._subscriptions.has_room([interest, *pending])

    def _answer(self, message: Message, now_s: float, step: Step) -> None:
        open_request = self._open.get(message.correlation)
        if open_request is None:
            self._end_subscription(message, step)
            return
        if open_request.redis is not None and self._redis is not None:
            self._send_frame(Redis(open_request.name, self._redis.answer(open_request.redis, message)), step)
            del self._open[message.correlation]
        else:
            super()._answer(message, now_s, step)
        if message.failure is None and not message.more:
            if open_request.subscribes is not None:
                self._subscriptions.add(message.correlation, open_request.subscribes, open_request)
            if open_request.unsubscribes is not None:
                self._subscriptions.unsubscribe(open_request.unsubscribes)

    def _reply_with(self, open_request: OpenRequest, message: Message, step: Step) -> None:
        """Answer with the frame of the message, if it has the dialect and form of the request."""
        frame = message.headers.get(FORWARDED)
        if isinstance(frame, Json | BinaryAnswer) and _fits(frame, open_request):
            self._send_frame(replace(frame, message_name=open_request.name), step)
        else:
            super()._reply_with(open_request, message, step)

    def _end_subscription(self, message: Message, step: Step) -> None:
        found = self._subscriptions.find(message.correlation)
        if found is None or message.failure is None:
            return
        self._reply(found[1], answer_from_message(message), step)
        self._subscriptions.drop(message.correlation)

    def _push(self, message: Message, _now_s: float, step: Step) -> None:
        found = self._subscriptions.find(message.correlation)
        if found is None and isinstance(message.target, Topic):
            pattern = message.headers.get(PATTERN)
            topic = message.target.name if pattern is None else pattern_topic(str(pattern))
            found = self._subscriptions.find_topic(topic)
        if found is None and message.correlation:
            return
        if found is not None and found[0].service:
            self._reply_with(found[1], message, step)
            return
        open_request = OpenRequest("", self._dialect) if found is None else found[1]
        if open_request.redis is not None and self._redis is not None:
            self._send_frame(Redis(open_request.name, self._redis.push(message)), step)
            return
        self._reply(open_request, notification_to_answer(message), step)

    # Services that this client provides.

    def _request(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        if subscribed_by(message) is None:
            super()._request(message, correlation, now_s, step)
            return
        pending = sum(sent.subscribes is not None for sent in self._sent.values())
        if not self._provided.has_room(pending + 1):
            raise StateError("too many subscriptions")
        super()._request(message, correlation, now_s, step)
        name = str(self._sent_count)
        self._sent[name] = replace(self._sent[name], unsub=self._unsub(message))

    def _unsub(self, message: Message) -> SisnetFrame:
        """Return the request that ends a subscription. It has no name, because nobody waits for the answer."""
        target = message.target
        if not isinstance(target, Operation):
            raise TranslationError("a subscription to no service")
        unsub = replace(message, target=replace(target, op="unsub"), payload=b"")
        frame = self._request_frame(unsub, "")
        if len(frame.encode()) <= SISNET_UNSUB_BYTES_MAX:
            return frame
        fields = {name: message.fields[name] for name in ("key", "sdb") if name in message.fields}
        return self._request_frame(replace(unsub, fields=fields, headers={}), "")

    def _on_success(self, name: str, sent: SentRequest, answer: Message) -> Message:
        if sent.subscribes is None or sent.unsub is None or sent.correlation is None:
            return answer
        if answer.fields or answer.payload:
            return answer  # a command that happens to be named `sub`
        self._provided.add(ProviderSubscription(name, sent.correlation, sent.subscribes, sent.unsub))
        return replace(answer, continues=True)

    def _receive_answer(self, received: ReceivedFrame, now_s: float, step: Step) -> None:
        provided = self._provided.find(own_name(received.frame.message_name))
        if provided is None:
            super()._receive_answer(received, now_s, step)
            return
        headers = {name: value for name, value in received.answer.headers.items() if name != "command"}
        message = answer_to_message(replace(received.answer, headers=headers), received.frame)
        if message.failure is not None:
            self._provided.drop(provided.correlation)
        step.messages.append(replace(message, correlation=provided.correlation))

    def _stop_pushes(self, message: Message, _now_s: float, step: Step) -> None:
        unsub = self._provided.drop(message.correlation)
        if unsub is not None:
            self._send_frame(unsub, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        self._send_logout("no login in time", step)
        step.closing = Closing("login_timeout")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(write_answer(failed(error.text), ""))
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        self._send_logout(closing.text or closing.code, step)
        step.closing = closing

    def _send_logout(self, why: str, step: Step, name: str = "") -> None:
        step.frames.append(Json.of(name, {"logout": why}))


def _fits(frame: Json | BinaryAnswer, open_request: OpenRequest) -> bool:
    """Return whether a requester can receive the frame unchanged but for the name. A `lnk` would have to be added."""
    if open_request.lnk is not None:
        return False
    if isinstance(frame, BinaryAnswer):
        return open_request.binary and (":" not in open_request.name or frame.can_be_relayed)
    return not open_request.binary and open_request.dialect is Dialect.NEW
