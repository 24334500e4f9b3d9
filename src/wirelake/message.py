"""What every protocol becomes: the common message.

A frame of any protocol translates to one `Message`, and a message translates to a frame of any protocol
that can carry it. The broker, the tables and the console speak of messages only.

Requests to the gateway itself (log in, subscribe, acknowledge …) are messages of kind CONTROL whose target
is an operation of the service `wirelake`, whatever frame asked for them; the operations are listed in `Op`.
"""

from enum import IntEnum, StrEnum
from typing import Any, Final

from msgspec import Struct, field, json, to_builtins

from wirelake.errors import TranslationError
from wirelake.limits import BROKER_TOPIC_CHARS_MAX

PRIVATE_HEADERS: Final = ("esnp.", "sisnet.")  # begin the names of headers between two peers of that protocol
# A topic's name, as a regular expression: no control, format or noncharacters, which would not show in a log.
TOPIC: Final = (
    r"[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]"
    f"{{1,{BROKER_TOPIC_CHARS_MAX}}}"
)
GATEWAY_SERVICE: Final = "wirelake"
DEVICES_SERVICE: Final = "devices"  # also the gateway itself: its one operation is a device's
COMMAND: Final = "command"
EVERY_DEVICE: Final = "*"  # in place of a serial
BROADCAST: Final = "broadcast"  # header of what a device reports to all, or is to report so
TRACE: Final = "trace"  # name of an event that tells of one hop of a request: fields hop, at_ms, node


class Kind(StrEnum):
    REQUEST = "request"
    RESPONSE = "response"
    NOTIFICATION = "notification"
    EVENT = "event"
    TELEMETRY = "telemetry"
    CONTROL = "control"


class Op(StrEnum):
    """What can be asked of the gateway itself, with the fields it takes."""

    LOGIN = "login"  # credentials
    LOGOUT = "logout"
    PING = "ping"
    SUBSCRIBE = "subscribe"  # topics: list of names
    UNSUBSCRIBE = "unsubscribe"  # topics: list of names
    ACK = "ack"  # ids: list of message ids
    TOPICS = "topics"  # answered with topics: list of names
    BACKLOG = "backlog"  # a session says in the fields what it has room for; answered with one message holding `parts`
    REGISTER = "register"  # service: name; group: name, if wanted
    UNREGISTER = "unregister"  # the same
    PUBLISH = "publish"  # the target is the topic, the kind NOTIFICATION


_OPS: Final = {op.value: op for op in Op}


class Topic(Struct, frozen=True, tag_field="to", tag="topic"):
    """A place to publish to. A name that starts with `@` is durable, any other is live only."""

    name: str

    @property
    def durable(self) -> bool:
        return self.name.startswith("@")


class Operation(Struct, frozen=True, tag_field="to", tag="operation"):
    """Something to be asked of a service."""

    service: str
    op: str = ""
    object: str = ""
    host: str = ""
    group: str = ""


class Device(Struct, frozen=True, tag_field="to", tag="device"):
    """A device known by its serial."""

    serial: str
    type: int = 0


Target = Topic | Operation | Device


class Fault(IntEnum):
    """What the gateway itself finds wrong with a request, in HTTP's numbers; each door says it in its own."""

    BAD_REQUEST = 400
    NOT_FOUND = 404
    TOO_LARGE = 413
    BUSY = 429
    UNSAYABLE = 501  # a protocol on the way has no words for it
    PROVIDER_LOST = 502
    STORAGE = 503
    TIMEOUT = 504


class Failure(Struct, frozen=True):
    """Why an answer is not what was asked for. `code` is a `Fault`, the provider's own number, or 0."""

    text: str
    code: int = 0


class Credentials(Struct, frozen=True):
    """Who wants in. Kept apart from `fields`, so that no log line, table or page shows a token by accident."""

    user: str
    token: str
    is_device: bool = False  # `user` is a device's serial: it has no token, and has to be registered

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, token=…)"


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: Kind
    name: str = ""  # what the protocol itself calls it
    protocol: str = ""
    id: str = ""  # given by the gateway; for a notification, what an ack refers to
    source: str = ""  # identity, serial or service that it comes from
    target: Target | None = None
    correlation: str = ""  # ties an answer to its question on one connection
    headers: dict[str, Any] = field(default_factory=dict)  # about the message, carried along where there is room
    fields: dict[str, Any] = field(default_factory=dict)  # named values
    payload: bytes = b""
    failure: Failure | None = None
    type: int = 0  # a notification's own type number
    at_ms: int = 0  # when it was made, milliseconds since 1970, 0 unknown
    more: int = 0  # how many parts of the same answer still follow
    continues: bool = False  # of an answer: pushes follow it under the same correlation
    traced: bool = False  # whoever asks wants to hear of every hop
    parts: tuple["Message", ...] = ()  # a list of notifications, where a frame holds several
    credentials: Credentials | None = None


def control(op: Op, /, **rest: Any) -> Message:
    """A request to the gateway itself."""
    return Message(kind=Kind.CONTROL, target=Operation(GATEWAY_SERVICE, op), **rest)


def anonymous_login(protocol: str, correlation: str) -> Message:
    """Of a peer that goes on without logging in, where everybody is let in."""
    return control(Op.LOGIN, protocol=protocol, correlation=correlation, credentials=Credentials("", ""))


def control_op(message: Message) -> Op | None:
    """Which operation of the gateway this asks for, if it asks for one."""
    target = message.target
    if isinstance(target, Operation) and target.service == GATEWAY_SERVICE:
        return _OPS.get(target.op)
    return None


def jsonable(value: Any) -> Any:
    """The value with bytes as base64, for protocols and tables that have only text."""
    return to_builtins(value, str_keys=True)


def content_of(message: Message) -> bytes:
    """The one run of bytes for protocols that have only that: the payload, or the fields as JSON."""
    if message.fields and message.payload:
        raise TranslationError("fields and payload together do not fit where there is room for one content")
    return json.encode(message.fields) if message.fields else message.payload
