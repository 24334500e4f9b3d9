"""Call the HTTP API of a running gateway from commands."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from wirelake.address import parse_address
from wirelake.cli.support.limits import (
    CLI_ANSWER_BYTES_MAX,
    CLI_ANSWER_S,
    CLI_CONNECT_S,
    CLI_LINE_BYTES_MAX,
    CLI_SILENCE_S,
)
from wirelake.config import Settings
from wirelake.errors import AnswerError, ClientError, InputError, LateError, LostError, ProtocolError
from wirelake.protocols.text import read_json, write_json

_WILDCARD_HOSTS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (listen address → address to connect to)
Query = list[tuple[str, str]]


class ApiClient:
    def __init__(self, settings: Settings, token_file: Path | None = None, token: str = "") -> None:
        """`token_file` holds NAME:TOKEN of an identity; without it, the admin token of the data folder is used."""
        address = parse_address(settings.listen.http, "listen.http")
        if address is None:
            raise InputError('listen.http is "off": commands need the HTTP API of the gateway')
        self.address = address
        self._settings = settings
        self._token_file = token_file
        self._token = token or _read_token(token_file or Path(settings.data) / "keys" / "admin.token")

    def request(
        self, method: str, path: str, body: Any = None, query: Query | None = None, wait_s: float = CLI_ANSWER_S
    ) -> Any:
        """Send a request and return the response's JSON. `path` must be quoted: see `quoted`."""
        connection = self._send(method, path, body, query, wait_s)
        try:
            response = connection.getresponse()
            data = response.read(CLI_ANSWER_BYTES_MAX + 1)
        except TimeoutError as error:
            raise LateError(f"no response from the gateway at {self.address} within {wait_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise LostError(
                f"the gateway at {self.address} closed the connection before it responded: {error}"
            ) from error
        finally:
            connection.close()
        if len(data) > CLI_ANSWER_BYTES_MAX:
            raise ClientError(f"the response exceeds {CLI_ANSWER_BYTES_MAX} bytes (CLI_ANSWER_BYTES_MAX)")
        value = self._value(data)
        if response.status >= http.client.BAD_REQUEST:
            raise self._refusal(response.status, value)
        return value

    def pages(self, path: str, rows: str) -> Iterator[dict[str, Any]]:
        """Yield every row of a list, page by page."""
        query: Query = []
        while True:
            page = self.request("GET", path, query=query)
            yield from page[rows]
            if page.get("next") is None:
                return
            query = [("after", page["next"])]

    def events(self, path: str, query: Query) -> Iterator[dict[str, Any]]:
        """Yield notifications as they arrive; raise LostError when the gateway ends the stream."""
        connection = self._send("GET", path, None, query, CLI_SILENCE_S)
        try:
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise self._refusal(response.status, self._value(response.read(CLI_ANSWER_BYTES_MAX)))
            yield from self._events(response)
        except TimeoutError as error:
            raise LateError(f"nothing received from the gateway at {self.address} for {CLI_SILENCE_S:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"the gateway at {self.address} closed the connection: {error}") from error
        finally:
            connection.close()

    def _events(self, response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        kind = ""
        while line := response.readline(CLI_LINE_BYTES_MAX):
            name, _, value = line.rstrip(b"\r\n").partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data" and kind == "end":
                raise LostError(f"the gateway ended the stream: {self._value(value)['message']}")
            elif name == b"data":
                yield self._value(value)
        raise LostError(f"the gateway at {self.address} closed the connection")

    def _send(
        self, method: str, path: str, body: Any, query: Query | None, wait_s: float
    ) -> http.client.HTTPConnection:
        host = reachable(self.address.host)
        tls = tls_context(self._settings)
        connection = (
            http.client.HTTPConnection(host, self.address.port, timeout=CLI_CONNECT_S)
            if tls is None
            else http.client.HTTPSConnection(host, self.address.port, timeout=CLI_CONNECT_S, context=tls)
        )
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json, text/event-stream"}
        data = None
        if body is not None:
            data = write_json(body)
            headers["Content-Type"] = "application/json"
        try:
            connection.connect()
            connection.sock.settimeout(wait_s)
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            text = f"no gateway at {self.address}: is `wirelake serve` running there?"
            raise LostError(f"{text} ({_reason(error)})") from error
        return connection

    def _value(self, data: bytes) -> Any:
        if not data:
            return None
        try:
            return read_json(data)
        except ProtocolError as error:
            raise ClientError(f"the server at {self.address} is not a gateway: {error}") from error

    def _refusal(self, status: int, value: Any) -> ClientError:
        try:
            text = str(value["error"]["message"])
        except (TypeError, KeyError):
            return ClientError(f"the server at {self.address} is not a gateway: HTTP status {status}")
        if status == http.client.UNAUTHORIZED:
            whose = f"the data folder {self._settings.data}"
            if self._token_file is not None:
                whose = f"the NAME:TOKEN in {self._token_file}"
            text += f"; does the gateway at {self.address} use {whose}?"
        return AnswerError(text, status)


def reachable(host: str) -> str:
    """Return the host to connect to for a gateway that listens on `host`."""
    return _WILDCARD_HOSTS.get(host, host)


def quoted(*parts: str) -> str:
    """Build a path from names that may contain any characters."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _read_token(path: Path) -> str:
    try:
        if token := path.read_text().strip():
            return token
        raise InputError(f"{path} is empty: it should contain a token")
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist: no gateway has run with this data folder yet (see --data)") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the token in {path}: {error}") from error


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context that trusts the certificate in the settings, which is the gateway's own."""
    if not settings.tls.cert:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls.cert)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if settings.tls.client_ca:
            context.load_cert_chain(settings.tls.cert, settings.tls.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"settings: cannot use the files in [tls]: {error}") from error
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower() or "no response"
