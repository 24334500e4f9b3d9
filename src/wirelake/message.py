"""Define the common message that the frames of every protocol translate to.

A frame of any protocol translates to one `Message`, and a message translates to a frame of any protocol that can encode
it. The broker, the tables and the console use messages only.

Requests to the gateway itself (log in, subscribe, acknowledge …) are messages of kind CONTROL whose target is an
operation of the service `wirelake`, whatever frame requested it; `Op` lists the operations.
"""

from enum import IntEnum, StrEnum
from typing import Any, Final

from msgspec import Struct, field, json

from wirelake.errors import TranslationError
from wirelake.limits import BROKER_TOPIC_CHARS_MAX

INTERNAL_HEADERS: Final = ("relay.", "records.")  # begin the names of headers that no frame carries
FORWARDED: Final = "relay.frame"  # header: the frame that a message came in, for a relay to pass on as it is
FORWARDED_BYTES: Final = "relay.bytes"  # header: about how many bytes that holds, beside fields and payload
ROWS: Final = "records.rows"  # header: the answer is a list of rows, also where it is empty
PACKED: Final = "records.packed"  # header: the bytes of the records that the field `data` holds
LAYOUT: Final = "dict"  # name of a CONTROL message: how records are packed, by table
FETCH_FORMAT: Final = "http"  # header `fmt` of a request that the gateway is to fetch by HTTP
# A topic's name, as a regular expression: no control, format or noncharacters, which would not show in a log.
TOPIC: Final = (
    r"[^\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]"
    f"{{1,{BROKER_TOPIC_CHARS_MAX}}}"
)
GATEWAY_SERVICE: Final = "wirelake"
DEVICES_SERVICE: Final = "devices"  # also provided by the gateway; its only operation is COMMAND
COMMAND: Final = "command"
EVERY_DEVICE: Final = "*"  # in place of a serial
BROADCAST_DEVICE_TYPE: Final = 0xFF  # in place of the device's own
UNITS: Final = "units"  # header of telemetry: units of its fields by name, where the layout does not have them
BROADCAST: Final = "broadcast"  # header of what a device reports to all, or is to report so
TRACE: Final = "trace"  # name of an event that reports one hop of a request: fields hop, at_ms, node


class Kind(StrEnum):
    REQUEST = "request"  # to a service or a device; a session gets those for what its peer provides or is
    RESPONSE = "response"  # to the request or CONTROL message with the same correlation
    NOTIFICATION = "notification"  # published on a topic; a session gets those that its peer subscribed to
    EVENT = "event"  # a request without a response, or a hop of a traced one
    TELEMETRY = "telemetry"  # what a device reports; no session gets one
    CONTROL = "control"  # a request to the gateway itself: see `Op`


class Op(StrEnum):
    """List the operations of the gateway itself, with the fields they take."""

    LOGIN = "login"  # credentials
    LOGOUT = "logout"
    PING = "ping"
    SUBSCRIBE = "subscribe"  # topics: list of names
    UNSUBSCRIBE = "unsubscribe"  # topics: list of names
    ACK = "ack"  # ids: list of message ids
    TOPICS = "topics"  # answered with topics: list of names
    BACKLOG = "backlog"  # the fields are `BacklogLimits`; answered with one message that has `parts`
    REGISTER = "register"  # service: name; group: name, if wanted
    UNREGISTER = "unregister"  # the same
    PUBLISH = "publish"  # the target is the topic, the kind NOTIFICATION


_OPS: Final = {op.value: op for op in Op}


class Topic(Struct, frozen=True, tag_field="to", tag="topic"):
    """Address a topic. A name that starts with `@` is durable, any other is live only."""

    name: str

    @property
    def is_durable(self) -> bool:
        return self.name.startswith("@")


class Operation(Struct, frozen=True, tag_field="to", tag="operation"):
    """Address an operation of a service."""

    service: str
    op: str = ""
    object: str = ""
    host: str = ""
    group: str = ""


class Device(Struct, frozen=True, tag_field="to", tag="device"):
    """Address a device by its serial."""

    serial: str
    type: int = 0


Target = Topic | Operation | Device


class FailureCode(IntEnum):
    """Say why the gateway itself refuses a request, as HTTP status codes; protocols translate them to their own."""

    BAD_REQUEST = 400
    ACCESS_DENIED = 403
    NOT_FOUND = 404
    GONE = 410  # a subscription is over: what it was to is no longer there
    TOO_LARGE = 413
    BUSY = 429
    UNENCODABLE = 501  # the request or the answer cannot be encoded in the peer's protocol
    PROVIDER_LOST = 502
    STORAGE = 503
    TIMEOUT = 504


class Failure(Struct, frozen=True):
    """Say why a request failed. `code` is a `FailureCode`, the provider's own number, or 0."""

    text: str
    code: int = 0


class Credentials(Struct, frozen=True):
    """Hold the login. It is separate from `fields`, so that no log line, table or page shows a token by accident."""

    user: str
    token: str
    is_device: bool = False  # `user` is a device's serial: it has no token, and has to be registered

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, token=…)"


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Carry what a frame of any protocol says."""

    kind: Kind
    name: str = ""  # its name in the protocol itself
    protocol: str = ""
    id: str = ""  # assigned by the gateway; for a notification, what an ack refers to
    source: str = ""  # identity, serial or service that sent it
    target: Target | None = None
    correlation: str = ""  # matches an answer to its request on one connection
    headers: dict[str, Any] = field(
        default_factory=dict
    )  # about the message; dropped where a protocol has no place for them
    fields: dict[str, Any] = field(default_factory=dict)  # named values
    payload: bytes = b""
    failure: Failure | None = None
    type: int = 0  # a notification's own type number
    at_ms: int = 0  # when it was created, milliseconds since 1970, 0 if unknown
    more: int = 0  # how many parts of the same answer follow
    continues: bool = False  # of an answer: pushes follow it under the same correlation
    traced: bool = False  # the requester wants an event for every hop
    parts: tuple["Message", ...] = ()  # notifications, if a frame contains several
    credentials: Credentials | None = None


def control(op: Op, /, **rest: Any) -> Message:
    """Build a request to the gateway itself."""
    return Message(kind=Kind.CONTROL, target=Operation(GATEWAY_SERVICE, op), **rest)


def anonymous_login(protocol: str, correlation: str) -> Message:
    """Build the login of a peer that does not log in, for gateways that admit everybody."""
    return control(Op.LOGIN, protocol=protocol, correlation=correlation, credentials=Credentials("", ""))


def control_op(message: Message) -> Op | None:
    """Return the operation of the gateway that the message requests, or None."""
    target = message.target
    if isinstance(target, Operation) and target.service == GATEWAY_SERVICE:
        return _OPS.get(target.op)
    return None


def content_of(message: Message) -> bytes:
    """Return the content for protocols with a single one: the payload, or the fields as JSON."""
    if message.fields and message.payload:
        raise TranslationError("a message with both fields and payload cannot be encoded as a single content")
    return json.encode(message.fields) if message.fields else message.payload
