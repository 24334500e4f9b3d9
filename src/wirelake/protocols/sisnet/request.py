"""Read and write requests, in any form and dialect."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.message import FETCH_FORMAT, FORWARDED, FORWARDED_BYTES, Message
from wirelake.protocols.registry import is_private_header
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest, Extension
from wirelake.protocols.sisnet.constants import Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis
from wirelake.protocols.text import read_json, text_of, word_of, write_json

DEFAULT_SERVICE = "sisdb"
REDIS_SERVICE = "redis"


# Keys of a JSON request that have a meaning; all others become headers.
_OWN_KEYS = frozenset({"service", "command", "cmd", "ask", "argv", "key", "sdb", "fmt", "ans", "msg", "fuc"})
_OLDER_KEYS = frozenset({"cmd", "argv"})
_NEWER_KEYS = frozenset({"service", "ask"})
_JSON_STARTS = frozenset(b'{["-0123456789tfn')


class Request(Struct, frozen=True, kw_only=True):
    """A request. `ask` is a JSON value; bytes are in `payload`."""

    service: str = ""
    command: str = ""
    ask: Any = None
    payload: bytes = b""
    fmt: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    dialect: Dialect = Dialect.NEW


def read_request(frame: SisnetFrame) -> Request:
    """Return the request in a frame."""
    return _READ[type(frame)](frame)


def write_json_request(request: Request, name: str) -> Json:
    """Encode a request as JSON, in its dialect."""
    new = request.dialect is Dialect.NEW
    values: dict[str, Any] = {}
    if new:
        if request.service:
            values["service"] = request.service
        values["command"] = request.command
    else:
        values["cmd"] = f"{request.service}.{request.command}" if request.service else request.command
    if request.ask is not None:
        values["ask" if new else "argv"] = request.ask
    if request.fmt:
        values["fmt"] = request.fmt
    return Json.of(name, values | headers_for_keys(request.headers))


def write_binary_request(request: Request, name: str) -> BinaryRequest:
    """Encode a request in the binary form. A payload, which must not look like JSON, is the `ask`."""
    headers = headers_for_keys(request.headers)
    extensions = tuple(
        Extension(key.encode(), word_of(value).encode()) for key, value in headers.items() if key not in {"ver", "lnk"}
    )
    return BinaryRequest(
        message_name=name,
        ver=_optional(headers.get("ver")),
        command=request.command.encode(),
        service=_optional(request.service),
        ask=write_json(request.ask) if request.ask is not None else request.payload or None,
        fmt=_optional(request.fmt),
        lnk=_optional(headers.get("lnk")),
        extensions=extensions or None,
    )


def _content_bytes(frame: SisnetFrame) -> int:
    if isinstance(frame, Json):
        return len(frame.text)
    if isinstance(frame, BinaryRequest):
        return len(frame.ask or b"") + len(frame.data or b"")
    if isinstance(frame, BinaryAnswer):
        return len(frame.msg or b"") + len(frame.data or b"")
    return 0


def forwarded(message: Message, frame: SisnetFrame) -> Message:
    """Return the message with its frame, for relays; those of JSON need the bytes only."""
    stored = replace(frame, values=None) if isinstance(frame, Json) else frame
    return replace(message, headers={**message.headers, FORWARDED: stored, FORWARDED_BYTES: _content_bytes(frame)})


def headers_for_keys(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the headers that cannot be mistaken for keys of sisnet."""
    return {key: value for key, value in headers.items() if key not in _OWN_KEYS and not is_private_header(key)}


def read_value(data: bytes) -> tuple[Any, bytes]:
    """Read bytes that may be JSON. Return its value and no bytes, or None and the bytes."""
    if data and data[0] in _JSON_STARTS:
        try:
            return read_json(data), b""
        except ProtocolError:
            pass
    return None, data


def _optional(value: Any) -> bytes | None:
    return word_of(value).encode() or None


def _read_json(frame: Json) -> Request:
    return _from_values(frame.values)


def _from_values(values: dict[str, Any]) -> Request:
    service = word_of(values.get("service"))
    command = word_of(values.get("command"))
    if "cmd" in values and not command:
        command = word_of(values["cmd"])
        if not service:
            service, _, command = command.rpartition(".")
    ask = values.get("ask", values.get("argv"))
    named: dict[str, Any] = {key: values[key] for key in ("key", "sdb") if key in values}
    if named:
        ask = _with_key(named, ask, command)
    return Request(
        service=service,
        command=command,
        ask=ask,
        fmt=word_of(values.get("fmt")),
        headers=headers_for_keys(values),
        dialect=_dialect(values),
    )


def _dialect(values: dict[str, Any]) -> Dialect:
    """Return the dialect, by its keys. The authors' clients mix both, `{service, cmd, ask}`, and expect `ans`."""
    older = not _OLDER_KEYS.isdisjoint(values) and _NEWER_KEYS.isdisjoint(values)
    return Dialect.OLD if older else Dialect.NEW


def _with_key(named: dict[str, Any], argv: Any, command: str) -> dict[str, Any]:
    """Return argv together with key and sdb, which the older dialect has beside it."""
    if isinstance(argv, dict):
        return named | argv
    if argv is None:
        return named
    return named | {"data" if command == "set" else "msg": argv}


def _read_binary(frame: BinaryRequest) -> Request:
    headers: dict[str, Any] = {text_of(each.name): text_of(each.data) for each in frame.extensions or ()}
    for key, value in (("ver", frame.ver), ("lnk", frame.lnk)):
        if value is not None:
            headers[key] = text_of(value)
    ask, payload = (None, frame.data) if frame.data is not None else read_value(frame.ask or b"")
    return Request(
        service=text_of(frame.service or b""),
        command=text_of(frame.command or b""),
        ask=ask,
        payload=payload,
        fmt=text_of(frame.fmt or b""),
        headers=headers_for_keys(headers),
    )


def _read_data_line(frame: DataLine) -> Request:
    named = {"key": frame.key, "sdb": frame.sdb}
    return Request(service=DEFAULT_SERVICE, command=frame.command, ask=named, payload=frame.data)


def _read_http(frame: Http) -> Request:
    """Read an HTTP request. The letter H means `fmt: "http"`, and JSON follows it."""
    values, payload = read_value(frame.content)
    if isinstance(values, dict):
        found = _from_values(values)
        return Request(
            service=found.service, command=found.command, ask=found.ask, fmt=FETCH_FORMAT, headers=found.headers
        )
    return Request(service=FETCH_FORMAT, ask=values, payload=payload, fmt=FETCH_FORMAT)


def _read_redis(frame: Redis) -> Request:
    return Request(service=REDIS_SERVICE, payload=frame.content)


_READ: dict[type[SisnetFrame], Callable[[Any], Request]] = {
    Json: _read_json,
    BinaryRequest: _read_binary,
    DataLine: _read_data_line,
    Http: _read_http,
    Redis: _read_redis,
}
