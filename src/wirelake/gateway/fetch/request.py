"""A request with the format `http` as an HTTP request: service is the base URL, command the method, ask the query."""

import re
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import InputError
from wirelake.gateway.fetch.urls import Url, below, read_url
from wirelake.limits import FETCH_HEADERS_BYTES_MAX, FETCH_HEADERS_MAX, FETCH_URL_CHARS_MAX
from wirelake.message import Message, Operation
from wirelake.protocols.jsontext import write_json

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_VERBS: Final = frozenset({"GET", "POST"})  # as a command they are HTTP's own methods, not one of the API
# What speaks of the connection or the body's bounds is ours to say: a header from outside could say something else.
_OURS: Final = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "accept-encoding",
        "http2-settings",
    }
)
_PROXY: Final = "proxy-"


class HttpRequest(Struct, frozen=True):
    """An HTTP request. A body makes it a POST."""

    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def encode(self) -> bytes:
        method = "GET" if self.body is None else "POST"
        place = f"{self.url.path}?{self.url.query}" if self.url.query else self.url.path
        lines = [
            f"{method} {place} HTTP/1.1",
            f"Host: {self.url.authority}",
            "Connection: close",
            "Accept-Encoding: identity",
        ]
        given = {name.lower() for name, _ in self.headers}
        if "accept" not in given:
            lines.append("Accept: application/json, text/*;q=0.9, */*;q=0.5")
        if "user-agent" not in given:
            lines.append("User-Agent: wirelake")
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
            if "content-type" not in given:
                lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (self.body or b"")

    def moved(self, url: Url, *, as_get: bool) -> "HttpRequest":
        """After a redirect. What was meant for one server is not told another."""
        headers = self.headers if url.origin == self.url.origin else ()
        return replace(self, url=url, headers=headers, body=None if as_get else self.body)


def read_asked(message: Message) -> HttpRequest:
    """Raises InputError for what cannot be fetched."""
    target = message.target
    if not isinstance(target, Operation) or message.payload:
        raise InputError("to fetch, service must be a base URL and ask an object")
    fields = dict(message.fields)
    post, headers = fields.pop("post", None), fields.pop("headers", None)
    try:
        url = below(read_url(target.service), "" if target.op in _VERBS else target.op)
        query = urlencode([pair for name, value in fields.items() for pair in _pairs(name, value)])
    except UnicodeEncodeError as error:
        raise InputError("query contains half a surrogate pair") from error
    if len(query) > FETCH_URL_CHARS_MAX:
        raise InputError(f"query has {len(query)} characters, limit {FETCH_URL_CHARS_MAX}")
    body = None if post is None and target.op != "POST" else write_json({} if post is None else post)
    return HttpRequest(replace(url, query=query), _headers(headers), body)


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, list | tuple):
        return [(name, _text(each)) for each in value]
    return [] if value is None else [(name, _text(value))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else write_json(value).decode()


def _headers(given: Any) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise InputError("headers must be an object")
    if len(given) > FETCH_HEADERS_MAX:
        raise InputError(f"{len(given)} headers, limit {FETCH_HEADERS_MAX}")
    headers = tuple((_name(name), _header(name, value)) for name, value in given.items())
    if len({name.lower() for name, _ in headers}) < len(headers):
        raise InputError("duplicate header")
    if sum(len(name) + len(value) for name, value in headers) > FETCH_HEADERS_BYTES_MAX:
        raise InputError(f"headers exceed {FETCH_HEADERS_BYTES_MAX} bytes")
    return headers


def _name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InputError(f"invalid header name: {name[:64]!r}")
    if name.lower() in _OURS or name.lower().startswith(_PROXY):
        raise InputError(f"header {name[:64]} may not be set")
    return name


def _header(name: str, value: Any) -> str:
    text = _text(value)
    if _VALUE.fullmatch(text) is None or text != text.strip():
        raise InputError(f"invalid value of header {name[:64]}")
    return text
