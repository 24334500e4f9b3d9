"""The JSON in data frames to and from the gateway itself.

Content that is not UTF-8 is base64 in JSON, with `"encoding": "base64"` beside it.
"""

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, Final, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder

from wirelake.errors import ProtocolError
from wirelake.message import Message, content_of
from wirelake.message import Topic as TopicTarget
from wirelake.protocols.text import write_json

_T = TypeVar("_T")
_I64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1)]

BASE64: Final = "base64"


class Login(Struct, frozen=True):
    user: str
    token: str


class Topics(Struct, frozen=True):
    topics: list[_Name]


class Ids(Struct, frozen=True):
    ids: list[_Name]


class Publish(Struct, frozen=True):
    topic: _Name
    content: str
    encoding: str = ""


class DeviceCommand(Struct, frozen=True, omit_defaults=True):
    """A command, as the service `devices` takes it."""

    serial: _Name
    type: int
    data: str = ""  # hex
    wait_ms: int = 0


class Notification(Struct, frozen=True):
    topic: str
    content: str
    id: str = ""
    type: _I64 = 0
    ts: _I64 = 0  # milliseconds since 1970
    encoding: str = ""


LOGIN: Final = Decoder(Login)
TOPICS: Final = Decoder(Topics)
IDS: Final = Decoder(Ids)
PUBLISH: Final = Decoder(Publish)
DEVICE_COMMAND: Final = Decoder(DeviceCommand)
NOTIFICATION: Final = Decoder(Notification)


def read(decoder: Decoder[_T], data: bytes, offset: int) -> _T:
    """Decode `data`, which begins at `offset` in its frame. Raise ProtocolError."""
    try:
        return decoder.decode(data)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError("bad_json", f"the data is not as its business_cmd wants it: {error}", offset) from error


def read_content(given: Publish | Notification, offset: int) -> bytes:
    if not given.encoding:
        return given.content.encode()
    if given.encoding != BASE64:
        raise ProtocolError("bad_json", f"encoding {given.encoding[:32]!r} is not base64", offset)
    try:
        return b64decode(given.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError("bad_json", "content is not base64", offset) from error


def write_publish(message: Message, topic: str) -> bytes:
    return write_json({"topic": topic, **_content(message)})


def write_notification(message: Message) -> bytes:
    topic = message.target.name if isinstance(message.target, TopicTarget) else ""
    given = {"topic": topic, "id": message.id, "type": message.type, **_content(message), "ts": message.at_ms}
    return write_json(given)


def _content(message: Message) -> dict[str, str]:
    content = content_of(message)
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content": b64encode(content).decode(), "encoding": BASE64}
