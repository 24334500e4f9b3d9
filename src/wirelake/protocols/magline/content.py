"""The JSON inside data frames to and from the gateway itself.

Content is bytes; in JSON it is text, or base64 beside `"encoding": "base64"` when it is not UTF-8.
"""

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, Final, TypeVar

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder

from wirelake.errors import ProtocolError
from wirelake.message import Message, content_of
from wirelake.message import Topic as TopicTarget
from wirelake.protocols.jsontext import write_json

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


class Published(Struct, frozen=True):
    topic: _Name
    content: str
    encoding: str = ""


class Commanded(Struct, frozen=True, omit_defaults=True):
    """As the service `devices` takes it."""

    serial: _Name
    type: int
    data: str = ""  # hex
    wait_ms: int = 0


class Notified(Struct, frozen=True):
    topic: str
    content: str
    id: str = ""
    type: _I64 = 0
    ts: _I64 = 0  # milliseconds since 1970
    encoding: str = ""


LOGIN: Final = Decoder(Login)
TOPICS: Final = Decoder(Topics)
IDS: Final = Decoder(Ids)
PUBLISHED: Final = Decoder(Published)
COMMANDED: Final = Decoder(Commanded)
NOTIFIED: Final = Decoder(Notified)


def read(decoder: Decoder[_T], data: bytes, offset: int) -> _T:
    """What is written in `data`, which stands at `offset` in its frame."""
    try:
        return decoder.decode(data)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError("bad_json", f"the data is not as its business_cmd wants it: {error}", offset) from error


def read_content(said: Published | Notified, offset: int) -> bytes:
    if not said.encoding:
        return said.content.encode()
    if said.encoding != BASE64:
        raise ProtocolError("bad_json", f"encoding {said.encoding[:32]!r} is not base64", offset)
    try:
        return b64decode(said.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError("bad_json", "content is not base64", offset) from error


def write_publish(message: Message, topic: str) -> bytes:
    return write_json({"topic": topic, **_content(message)})


def write_notification(message: Message) -> bytes:
    topic = message.target.name if isinstance(message.target, TopicTarget) else ""
    said = {"topic": topic, "id": message.id, "type": message.type, **_content(message), "ts": message.at_ms}
    return write_json(said)


def _content(message: Message) -> dict[str, str]:
    content = content_of(message)
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content": b64encode(content).decode(), "encoding": BASE64}
