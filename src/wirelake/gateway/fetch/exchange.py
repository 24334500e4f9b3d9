"""Build an HTTP request from a message, send it to an address that was checked before, and parse the response."""

import asyncio
import re
import ssl
from typing import Any, Final
from urllib.parse import urlencode

import httptools
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import FetchError, InputError
from wirelake.gateway.fetch.urls import IpAddress, Url, below, read_url
from wirelake.limits import (
    FETCH_HEAD_BYTES_MAX,
    FETCH_HEADERS_BYTES_MAX,
    FETCH_HEADERS_MAX,
    FETCH_URL_CHARS_MAX,
    KIB,
)
from wirelake.message import Message, Operation
from wirelake.protocols.text import write_json

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_VERBS: Final = frozenset({"GET", "POST"})  # as a command they are HTTP's own methods, not one of the API
# Headers about the connection or the body's length are set here: a client's could contradict what is sent.
_RESERVED_HEADERS: Final = frozenset(
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
_RESERVED_PREFIX: Final = "proxy-"
_READ_BYTES: Final = 64 * KIB
_FINAL_STATUS_MIN: Final = 200  # a lower status announces a response that is still to come


class HttpRequest(Struct, frozen=True):
    """An HTTP request: a POST if it has a body, else a GET."""

    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def encode(self) -> bytes:
        method = "GET" if self.body is None else "POST"
        target = f"{self.url.path}?{self.url.query}" if self.url.query else self.url.path
        lines = [
            f"{method} {target} HTTP/1.1",
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

    def redirect(self, url: Url, *, as_get: bool) -> "HttpRequest":
        """Return the request to send after a redirect. Another origin does not get the headers."""
        headers = self.headers if url.origin == self.url.origin else ()
        return replace(self, url=url, headers=headers, body=None if as_get else self.body)


def build_request(message: Message) -> HttpRequest:
    """Build the request that a message of the format `http` describes. Raise InputError if that is impossible.

    The service is the base URL, the command the method below it, and `ask` the query.
    """
    target = message.target
    if not isinstance(target, Operation) or message.payload:
        raise InputError("to fetch, service must be a base URL and ask an object")
    fields = dict(message.fields)
    post, headers = fields.pop("post", None), fields.pop("headers", None)
    try:
        url = below(read_url(target.service), "" if target.op in _VERBS else target.op)
        query = urlencode([pair for name, value in fields.items() for pair in _query_pairs(name, value)])
    except UnicodeEncodeError as error:
        raise InputError("query contains half a surrogate pair") from error
    if len(query) > FETCH_URL_CHARS_MAX:
        raise InputError(f"query has {len(query)} characters, limit {FETCH_URL_CHARS_MAX}")
    body = None if post is None and target.op != "POST" else write_json({} if post is None else post)
    return HttpRequest(replace(url, query=query), _headers(headers), body)


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
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
    headers = tuple((_header_name(name), _header_value(name, value)) for name, value in given.items())
    if len({name.lower() for name, _ in headers}) < len(headers):
        raise InputError("duplicate header")
    if sum(len(name) + len(value) for name, value in headers) > FETCH_HEADERS_BYTES_MAX:
        raise InputError(f"headers exceed {FETCH_HEADERS_BYTES_MAX} bytes")
    return headers


def _header_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InputError(f"invalid header name: {name[:64]!r}")
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIX):
        raise InputError(f"header {name[:64]} may not be set")
    return name


def _header_value(name: str, value: Any) -> str:
    text = _text(value)
    if _VALUE.fullmatch(text) is None or text != text.strip():
        raise InputError(f"invalid value of header {name[:64]}")
    return text


class HttpResponse:
    """Collect a response from the bytes that `feed` gets. Raise FetchError when it exceeds a limit."""

    def __init__(self, body_bytes_max: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._body_bytes_max = body_bytes_max
        self._parts: list[bytes] = []
        self._body_bytes = 0
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._in_head = True

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    def feed(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise FetchError(f"the response is not HTTP: {error or type(error).__name__}") from error
        if self._in_head and self._head_bytes > FETCH_HEAD_BYTES_MAX:
            raise FetchError(f"the response's headers exceed {FETCH_HEAD_BYTES_MAX} bytes")
        if self._body_bytes > self._body_bytes_max:
            raise FetchError(f"the response exceeds {self._body_bytes_max} bytes")

    def feed_eof(self) -> None:
        """End the response because the server closed the connection. Raise FetchError if that is too early."""
        has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._in_head or (has_length and not self.is_complete):
            raise FetchError("the response ended early")
        self.is_complete = True

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self.headers = {}
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) <= FETCH_HEADERS_MAX:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._in_head = False
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._body_bytes_max:
            self._body_bytes = int(length)  # `feed` refuses it before the body arrives

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes <= self._body_bytes_max:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = self.status >= _FINAL_STATUS_MIN
        self._in_head = not self.is_complete


async def exchange(
    request: HttpRequest, address: IpAddress, tls: ssl.SSLContext | None, body_bytes_max: int
) -> HttpResponse:
    """Send a request on a connection of its own and return the response. The caller bounds the time.

    Raise OSError if there is no connection, FetchError if the response is unusable.
    """
    reader, writer = await asyncio.open_connection(
        str(address),
        request.url.port,
        ssl=tls,
        server_hostname=request.url.host if tls is not None else None,
        limit=_READ_BYTES,
    )
    response = HttpResponse(body_bytes_max)
    try:
        writer.write(request.encode())
        while not response.is_complete:
            data = await reader.read(_READ_BYTES)
            if data:
                response.feed(data)
            else:
                response.feed_eof()
    finally:
        writer.transport.abort()
    return response
