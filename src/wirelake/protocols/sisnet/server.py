"""The gateway's end of a sisnet connection."""

from typing import Any

from msgspec.structs import replace

from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import FORWARDED, Kind, Message, Op, Operation, Topic, anonymous_login, control
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.interest import Interest, pattern_topic, subscribed_by
from wirelake.protocols.redis.translation import PATTERN
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.answer import OK, Answer, failed, write_answer
from wirelake.protocols.sisnet.binary_form import BinaryAnswer
from wirelake.protocols.sisnet.foreign import Redis
from wirelake.protocols.sisnet.json_form import Json
from wirelake.protocols.sisnet.limits import SISNET_HELD_FRAMES_MAX, SISNET_UNSUB_BYTES_MAX
from wirelake.protocols.sisnet.names import SisnetFrame, own_name
from wirelake.protocols.sisnet.opcodes import BYTES_FORMATS, Dialect
from wirelake.protocols.sisnet.peer import Asked, Heard, Peer, Question
from wirelake.protocols.sisnet.provider_subscriptions import ProviderSubscription, ProviderSubscriptions
from wirelake.protocols.sisnet.redis_form import RedisForm
from wirelake.protocols.sisnet.request import forwarded
from wirelake.protocols.sisnet.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.sisnet.subscriptions import Subscriptions
from wirelake.protocols.sisnet.translation import (
    answer_from_message,
    answer_to_message,
    notification_to_answer,
    request_to_message,
)
from wirelake.protocols.texts import word_of

_FORMATS = frozenset({"", "json"}) | BYTES_FORMATS
_COMPRESSIONS = frozenset({"", "none", snappy.NAME})


class ServerSession(Peer):
    """Pushes: a NOTIFICATION goes out under the name of the request that subscribed.

    Its `correlation` is the one that request was handed up with; else it is found by the topic of its target. With
    neither, it goes out under an empty name, unless it has a correlation: that was of a subscription which is over, and
    the push is dropped. A RESPONSE with a failure and the correlation of a subscription
    ends it: the client hears ans -1, or -100 where the failure's code is that.

    A client that provides a service pushes in the same way: what it says under the name of a `sub` of ours that it
    answered with 0 goes up as further RESPONSEs, with that request's correlation, until `app unsubscribe` with it.
    """

    side = Sender.SERVER
    state_machine = SERVER_MACHINE
    __slots__ = ("_held", "_login_question", "_provided", "_redis", "_subscriptions")

    def __init__(self, now_s: float, settings: SessionSettings = SessionSettings()) -> None:
        super().__init__(now_s, settings)
        self.deadlines["login"] = now_s + settings.login_s
        self._held: list[Frame] = []
        self._login_question: Question | None = None  # None: the login was not the client's own
        self._subscriptions: Subscriptions[Question] = Subscriptions()
        self._provided = ProviderSubscriptions()
        self._redis: RedisForm | None = None  # once a message of that form came

    @property
    def frame_bytes_max(self) -> int:
        settings = self.settings
        logged_in = settings.open or self.state is ServerState.READY
        return settings.message_bytes_max if logged_in else settings.login_frame_bytes_max

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    def _listen(self, frame: Frame) -> tuple[str, Any]:
        """A frame that is held is looked at when the login is decided: only then it is known how it was packed."""
        return ("held", frame) if self.state is ServerState.CHECKING else super()._listen(frame)

    def _login(self, heard: Heard, _now_s: float, step: Step) -> None:
        self._dialect = heard.request.dialect
        question = self._login_question = self._question(heard)
        message = replace(request_to_message(heard.request, heard.frame), correlation="login")
        fmt = heard.request.fmt or word_of(message.fields.get("format"))
        compress = word_of(message.fields.get("compress"))
        for value, known, what in ((fmt, _FORMATS, "format"), (compress, _COMPRESSIONS, "compress")):
            if value not in known:
                self.state = ServerState.CLOSED
                self._say_login(question, failed(f"{what} is not supported: {value[:32]}"), step)
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
            if self._login_question is not None:
                self._say_login(self._login_question, failed(message.failure.text), step)
            step.closing = Closing("login_refused", message.failure.text)
            return
        self.state = ServerState.READY
        if self._login_question is not None:
            self._say_login(self._login_question, OK, step)
        held, self._held = self._held, []
        for frame in held:
            self._take_up(frame, now_s, step)

    def _say_login(self, question: Question, answer: Answer, step: Step) -> None:
        """Never compressed: whether it will be is what this tells."""
        answer = replace(answer, dialect=question.dialect)
        step.frames.append(write_answer(answer, question.name, binary=question.binary, login=True))

    def _take_up(self, frame: Frame, now_s: float, step: Step) -> None:
        if self.state is not ServerState.READY:
            return
        try:
            event, argument = self._listen(frame)
        except ProtocolError as error:
            event, argument = "app fail", error
        row = self.state_machine.find_frame(self.state, event)
        if row is not None:
            self._apply(row, argument, now_s, step)

    def _hold(self, frame: Frame, _now_s: float, step: Step) -> None:
        if len(self._held) >= SISNET_HELD_FRAMES_MAX:
            self.state = ServerState.CLOSED
            self._say_logout("too many frames before the login was decided", step)
            step.closing = Closing("too_many_requests", "too many frames before the login was decided")
            return
        self._held.append(frame)

    def _not_logged_in(self, heard: Heard, now_s: float, step: Step) -> None:
        if not self.settings.open:
            self._reply(self._question(heard), failed("log in first"), step)
            return
        self.state = ServerState.CHECKING
        self._dialect = heard.request.dialect
        self._hold(heard.frame, now_s, step)
        step.messages.append(anonymous_login("sisnet", "login"))

    def _second_login(self, heard: Heard, _now_s: float, step: Step) -> None:
        self._reply(self._question(heard), failed("already logged in"), step)

    def _logged_out(self, heard: Heard, _now_s: float, step: Step) -> None:
        question = self._question(heard)
        if heard.request.command and question.dialect is Dialect.OLD:
            self._say_logout("ok", step, question.name)
        elif heard.request.command:
            self._reply(question, OK, step)
        step.messages.append(control(Op.LOGOUT, name=heard.frame.name, protocol="sisnet"))
        step.closing = Closing("logout")

    def _ask_above(self, heard: Heard, now_s: float, step: Step) -> None:
        if isinstance(heard.frame, Redis):
            self._ask_redis(heard, heard.frame, step)
        else:
            super()._ask_above(heard, now_s, step)

    def _ask_redis(self, heard: Heard, frame: Redis, step: Step) -> None:
        question = self._question(heard)
        if self._redis is None:
            self._redis = RedisForm()
        try:
            command = self._redis.read(frame.content)
        except ProtocolError as error:
            self._reply(question, failed(f"Protocol error: {error.text}"), step)
            return
        content = self._redis.answer_at_once(command)
        if content is None:
            asked, message = self._redis.ask(command)
            if message is not None:
                self._put(replace(question, redis=asked), message, frame, step)
                return
            content = self._redis.answer(asked, Message(kind=Kind.RESPONSE))
        self._say(Redis(question.name, content), step)

    def _put(self, question: Question, message: Message, frame: SisnetFrame, step: Step) -> None:
        if message.kind is Kind.REQUEST:
            message = forwarded(message, frame)
        super()._put(question, message, frame, step)

    def _has_room(self, interest: Interest) -> bool:
        pending = [question.subscribes for question in self._open.values() if question.subscribes is not None]
        return self._subscriptions.has_room([interest, *pending])

    def _answer(self, message: Message, now_s: float, step: Step) -> None:
        question = self._open.get(message.correlation)
        if question is None:
            self._end_subscription(message, step)
            return
        if question.redis is not None and self._redis is not None:
            self._say(Redis(question.name, self._redis.answer(question.redis, message)), step)
            del self._open[message.correlation]
        else:
            super()._answer(message, now_s, step)
        if message.failure is None and not message.more:
            if question.subscribes is not None:
                self._subscriptions.add(message.correlation, question.subscribes, question)
            if question.unsubscribes is not None:
                self._subscriptions.call_off(question.unsubscribes)

    def _reply_with(self, question: Question, message: Message, step: Step) -> None:
        """Answer with the frame that the message came in, where it is of the question's own dialect and form."""
        frame = message.headers.get(FORWARDED)
        if isinstance(frame, Json | BinaryAnswer) and _suits(frame, question):
            self._say(replace(frame, message_name=question.name), step)
        else:
            super()._reply_with(question, message, step)

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
        question = Question("", self._dialect) if found is None else found[1]
        if question.redis is not None and self._redis is not None:
            self._say(Redis(question.name, self._redis.push(message)), step)
            return
        self._reply(question, notification_to_answer(message), step)

    # What this client provides.

    def _ask(self, message: Message, correlation: str | None, now_s: float, step: Step) -> None:
        if subscribed_by(message) is None:
            super()._ask(message, correlation, now_s, step)
            return
        pending = sum(asked.subscribes is not None for asked in self._asked.values())
        if not self._provided.has_room(pending + 1):
            raise StateError("too many subscriptions")
        super()._ask(message, correlation, now_s, step)
        name = str(self._asked_count)
        self._asked[name] = replace(self._asked[name], unsub=self._unsub(message))

    def _unsub(self, message: Message) -> SisnetFrame:
        """Build what ends a subscription: asked under no name, because nobody waits for the answer."""
        target = message.target
        if not isinstance(target, Operation):
            raise TranslationError("a subscription to no service")
        unsub = replace(message, target=replace(target, op="unsub"), payload=b"")
        frame = self._request_frame(unsub, "")
        if len(frame.encode()) <= SISNET_UNSUB_BYTES_MAX:
            return frame
        fields = {name: message.fields[name] for name in ("key", "sdb") if name in message.fields}
        return self._request_frame(replace(unsub, fields=fields, headers={}), "")

    def _settled(self, name: str, asked: Asked, answer: Message) -> Message:
        if asked.subscribes is None or asked.unsub is None or asked.correlation is None:
            return answer
        if answer.fields or answer.payload:
            return answer  # a command that happens to be called `sub`
        self._provided.add(ProviderSubscription(name, asked.correlation, asked.subscribes, asked.unsub))
        return replace(answer, continues=True)

    def _hear_answer(self, heard: Heard, now_s: float, step: Step) -> None:
        provided = self._provided.find(own_name(heard.frame.message_name))
        if provided is None:
            super()._hear_answer(heard, now_s, step)
            return
        headers = {name: value for name, value in heard.answer.headers.items() if name != "command"}
        message = answer_to_message(replace(heard.answer, headers=headers), heard.frame)
        if message.failure is not None:
            self._provided.drop(provided.correlation)
        step.messages.append(replace(message, correlation=provided.correlation))

    def _stop_pushes(self, message: Message, _now_s: float, step: Step) -> None:
        unsub = self._provided.drop(message.correlation)
        if unsub is not None:
            self._say(unsub, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        self._say_logout("no login in time", step)
        step.closing = Closing("login_timeout")

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(write_answer(failed(error.text), ""))
        step.closing = Closing(error.code, str(error))

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        self._say_logout(closing.text or closing.code, step)
        step.closing = closing

    def _say_logout(self, why: str, step: Step, name: str = "") -> None:
        step.frames.append(Json.of(name, {"logout": why}))


def _suits(frame: Json | BinaryAnswer, question: Question) -> bool:
    """Whether the asker can be given the frame as it is, under its own name. Its `lnk` would have to go in."""
    if question.lnk is not None:
        return False
    if isinstance(frame, BinaryAnswer):
        return question.binary and (":" not in question.name or frame.can_be_relayed)
    return not question.binary and question.dialect is Dialect.NEW
