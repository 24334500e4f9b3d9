"""Serve requests of the format `http`: fetch the URL that they name, if that is allowed, and return the response."""

# Why not httpcore with a network backend that connects to checked addresses only: it could replace `exchange` and
# `HttpRequest.encode`. The allow list, the check of addresses and of each redirect, and the translation of requests and
# responses would stay here, and a backend, a limit for bodies and a mapping of httpcore's errors would come on top. It
# would also weaken a limit: httpcore fixes the size of a response's head at 100 KiB, with no documented way to lower it
# to FETCH_HEAD_BYTES_MAX, and applies it to each 1xx response anew. Here all heads count together.

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final

from msgspec.structs import replace

from wirelake.broker.access import AccessPolicy
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed, failed_with
from wirelake.config import FetchSection
from wirelake.errors import AccessDeniedError, EncodeError, FetchError, InputError, ProtocolError, TranslationError
from wirelake.gateway.fetch.exchange import HttpRequest, HttpResponse, build_request, exchange
from wirelake.gateway.fetch.urls import AllowList, IpAddress, Url, is_public, parse_address, redirected
from wirelake.gateway.scheduling import Spawn
from wirelake.limits import FETCH_ERROR_CHARS, FETCH_WAITING_MAX
from wirelake.message import FailureCode, Kind, Message
from wirelake.protocols.text import read_json, text_of
from wirelake.roles import Action

_log = logging.getLogger(__name__)
Resolve = Callable[[str, int], Awaitable[list[str]]]  # host and port → addresses

_SERVICE: Final = "fetch"  # in the target of the right to call
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})
_CHARSET: Final = re.compile(r"charset=\"?([\w-]+)", re.IGNORECASE)


class Fetcher:
    """Fetch for the broker, a limited number at once, and answer the peer that asked."""

    def __init__(
        self,
        settings: FetchSection,
        spawn: Spawn,
        is_stopping: Callable[[], bool],
        access: AccessPolicy,
    ) -> None:
        """Run fetches with `spawn`, for peers that `access` allows to call `fetch/HOST`.

        While `is_stopping` returns True, peers get no more responses.
        """
        self.resolve: Resolve = _resolve
        self._spawn = spawn
        self._is_stopping = is_stopping
        self._access = access
        self._waiting = 0
        self.apply(settings)

    def check(self, settings: FetchSection) -> None:
        """Raise InputError if these settings cannot be used."""
        AllowList(settings.allow)
        _tls(settings)

    def apply(self, settings: FetchSection) -> None:
        """Use these settings for fetches that start from now on."""
        self._settings, self._allowed, self._tls = settings, AllowList(settings.allow), _tls(settings)
        self._slots = asyncio.Semaphore(settings.open_max)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        request = build_request(message)  # the broker answers its InputError
        self._check(peer, request.url)
        if self._waiting >= FETCH_WAITING_MAX:
            peer.send(failed(message.correlation, "too many fetches are queued; try again", FailureCode.BUSY))
            return
        self._waiting += 1
        self._spawn(self._serve(peer, message, request))

    async def _serve(self, peer: Peer, message: Message, request: HttpRequest) -> None:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.timeout_s):
                answer = await self._fetch(peer, request)
        except TimeoutError:
            answer = failed("", f"no complete response within {settings.timeout_s:g} s", FailureCode.TIMEOUT)
        except AccessDeniedError as error:  # of a redirect
            answer = failed_with(error)
        except (FetchError, InputError) as error:
            answer = failed("", str(error), FailureCode.PROVIDER_LOST)
        except (OSError, ssl.SSLError) as error:
            answer = failed("", f"{request.url.host}: {error}", FailureCode.PROVIDER_LOST)
        finally:
            self._waiting -= 1
        if answer.failure is not None:
            extra = {"session": peer.id, "host": request.url.host, "reason": answer.failure.text}
            _log.info("fetch failed", extra=extra)
        if message.correlation and not self._is_stopping():
            _send(peer, replace(answer, correlation=message.correlation))

    async def _fetch(self, peer: Peer, request: HttpRequest) -> Message:
        async with self._slots:
            for _ in range(self._settings.redirects_max + 1):
                response = await self._exchange(request)
                location = response.headers.get("location")
                if response.status not in _REDIRECTS or location is None:
                    return _to_message(response)
                url = redirected(request.url, location)
                self._check(peer, url)
                request = request.redirect(url, as_get=response.status not in _KEEPS_METHOD)
        raise FetchError(f"more than {self._settings.redirects_max} redirects")

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        """Try the checked addresses in turn. The name is not resolved again, so nobody can change it in between."""
        refused: OSError | None = None
        tls = self._tls if request.url.scheme == "https" else None
        for address in await self._addresses(request.url):
            try:
                return await exchange(request, address, tls, self._settings.bytes_max)
            except ConnectionRefusedError as error:
                refused = error
        raise refused or FetchError(f"{request.url.host} has no address")

    async def _addresses(self, url: Url) -> list[IpAddress]:
        literal = parse_address(url.host)
        if literal is not None:
            found = [literal]
        else:
            found = [ip_address(each) for each in await self.resolve(url.host, url.port)]
        allowed = [address for address in found if is_public(address) or self._allowed.names_address(url, address)]
        if found and not allowed:
            raise InputError(f"{url.host} has an address that may not be fetched from")
        return allowed

    def _check(self, peer: Peer, url: Url) -> None:
        self._access.authorize(peer, Action.CALL, f"{_SERVICE}/{url.host}")
        if not self._allowed.covers(url):
            raise InputError(f"{url.scheme}://{url.authority}{url.path} is not below any URL of fetch.allow")


def _send(peer: Peer, answer: Message) -> None:
    """Send the answer, or a failure if the peer's protocol cannot encode it."""
    try:
        peer.send(answer)
    except (EncodeError, TranslationError) as error:
        peer.send(failed(answer.correlation, f"the response cannot be encoded: {error}", FailureCode.UNENCODABLE))


def _to_message(response: HttpResponse) -> Message:
    """Return the response as a message with JSON fields, a text, or bytes."""
    body, content_type = response.body, response.headers.get("content-type", "").lower()
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise FetchError("the response is compressed, which was not requested")
    if not 200 <= response.status < 300:
        excerpt = " ".join(text_of(body[: 4 * FETCH_ERROR_CHARS]).split())[:FETCH_ERROR_CHARS]
        reason = "".join(char if char.isprintable() else "?" for char in excerpt)  # it gets into logs and terminals
        code = response.status if response.status >= 400 else FailureCode.PROVIDER_LOST
        return failed("", f"HTTP {response.status}{': ' if reason else ''}{reason}", code)
    if not body:
        return Message(kind=Kind.RESPONSE)
    if "json" in content_type or body.lstrip()[:1] in (b"{", b"["):
        value, is_json = _parse_json(body)
        if is_json:
            return Message(kind=Kind.RESPONSE, fields=value if isinstance(value, dict) else {"msg": value})
    text = _decode_text(body, content_type)
    if text is None:
        return Message(kind=Kind.RESPONSE, payload=body)
    return Message(kind=Kind.RESPONSE, fields={"msg": text})


def _parse_json(body: bytes) -> tuple[Any, bool]:
    try:
        return read_json(text_of(body).encode()), True
    except ProtocolError:
        return None, False


def _decode_text(body: bytes, content_type: str) -> str | None:
    """Return the body as text, or None if it is binary."""
    charset = _CHARSET.search(content_type)
    if charset is not None:
        try:
            return body.decode(charset[1])
        except (LookupError, UnicodeDecodeError):
            pass
    if content_type.startswith("text/"):
        return text_of(body)
    try:
        return None if b"\0" in body else body.decode()
    except UnicodeDecodeError:
        return None


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of the name is too long
        raise FetchError(f"{host} is not a valid host name") from error
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def _tls(settings: FetchSection) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"settings: cannot use fetch.ca: {error}") from error
