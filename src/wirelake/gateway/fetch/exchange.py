"""One HTTP request and its answer, on a connection of its own to an address that was chosen before."""

import asyncio
import ssl
from typing import Final

import httptools

from wirelake.errors import FetchError
from wirelake.gateway.fetch.addresses import IpAddress
from wirelake.gateway.fetch.request import HttpRequest
from wirelake.limits import FETCH_HEAD_BYTES_MAX, FETCH_HEADERS_MAX, KIB

_READ_BYTES: Final = 64 * KIB
_FINAL: Final = 200  # what is below tells of an answer to come


class HttpResponse:
    """Filled by the parser as the bytes come. Raises FetchError where there is too much of something."""

    def __init__(self, body_bytes_max: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
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

    def end(self) -> None:
        """The server closed the connection: the end of an answer that has no other."""
        bounded = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._in_head or (bounded and not self.complete):
            raise FetchError("the response ended early")
        self.complete = True

    # The parser's view

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
            self._body_bytes = int(length)  # refused before it comes

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes <= self._body_bytes_max:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        self.complete = self.status >= _FINAL
        self._in_head = not self.complete


async def exchange(
    asked: HttpRequest, address: IpAddress, tls: ssl.SSLContext | None, body_bytes_max: int
) -> HttpResponse:
    """OSError where there is no connection; how long it may take is the caller's to bound."""
    reader, writer = await asyncio.open_connection(
        str(address),
        asked.url.port,
        ssl=tls,
        server_hostname=asked.url.host if tls is not None else None,
        limit=_READ_BYTES,
    )
    reply = HttpResponse(body_bytes_max)
    try:
        writer.write(asked.encode())
        while not reply.complete:
            data = await reader.read(_READ_BYTES)
            if data:
                reply.feed(data)
            else:
                reply.end()
    finally:
        writer.transport.abort()
    return reply
