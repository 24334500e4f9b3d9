"""Serves requests with `fmt: "http"`: fetches what they name, if that is allowed, and answers with what came."""

# Why not httpcore with a network backend that connects to vetted addresses only: of this package it could replace
# `exchange.py` and `HttpRequest.encode`. The allow list, the vetting of addresses, the check of each redirect and the
# translation of requests and answers stay ours, and a backend, a limit for bodies and a mapping of httpcore's errors
# come on top. It would also weaken a limit: httpcore fixes the size of a response's head at 100 KiB, with no documented
# way to lower it to FETCH_HEAD_BYTES_MAX, and applies it to each 1xx response anew. Here all heads count together.

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.config import FetchSection
from wirelake.errors import EncodeError, FetchError, InputError, ProtocolError, TranslationError
from wirelake.gateway.fetch.addresses import IpAddress, is_public, literal
from wirelake.gateway.fetch.exchange import HttpResponse, exchange
from wirelake.gateway.fetch.request import HttpRequest, read_asked
from wirelake.gateway.fetch.urls import AllowList, Url, redirected
from wirelake.limits import FETCH_ERROR_CHARS, FETCH_WAITING_MAX
from wirelake.message import FailureCode, Kind, Message
from wirelake.protocols.jsontext import read_json
from wirelake.protocols.texts import text_of

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)
Resolve = Callable[[str, int], Awaitable[list[str]]]  # host and port → addresses

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})
_CHARSET: Final = re.compile(r"charset=\"?([\w-]+)", re.IGNORECASE)


class Fetcher:
    def __init__(self, gateway: "Gateway", resolve: Resolve | None = None) -> None:
        self.resolve = resolve or _resolve
        self._gateway = gateway
        self._waiting = 0
        self.apply(gateway.settings.fetch)

    def check(self, settings: FetchSection) -> None:
        """InputError where they cannot be used."""
        AllowList(settings.allow)
        _tls(settings)

    def apply(self, settings: FetchSection) -> None:
        """For what is asked from now on."""
        self._settings, self._allowed, self._tls = settings, AllowList(settings.allow), _tls(settings)
        self._turns = asyncio.Semaphore(settings.open_max)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        asked = read_asked(message)  # what is wrong with it is the broker's to tell
        self._check(asked.url)
        if self._waiting >= FETCH_WAITING_MAX:
            peer.send(failed(message.correlation, "too many fetches are queued; try again", FailureCode.BUSY))
            return
        self._waiting += 1
        self._gateway.spawn(self._serve(peer, message, asked))

    async def _serve(self, peer: Peer, message: Message, asked: HttpRequest) -> None:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.timeout_s):
                answer = await self._fetch(asked)
        except TimeoutError:
            answer = failed("", f"no complete response within {settings.timeout_s:g} s", FailureCode.TIMEOUT)
        except (FetchError, InputError) as error:
            answer = failed("", str(error), FailureCode.PROVIDER_LOST)
        except (OSError, ssl.SSLError) as error:
            answer = failed("", f"{asked.url.host}: {error}", FailureCode.PROVIDER_LOST)
        finally:
            self._waiting -= 1
        if answer.failure is not None:
            _log.info("fetch failed", extra={"session": peer.id, "host": asked.url.host, "reason": answer.failure.text})
        if message.correlation and not self._gateway.stopping:
            _say(peer, replace(answer, correlation=message.correlation))

    async def _fetch(self, asked: HttpRequest) -> Message:
        async with self._turns:
            for _ in range(self._settings.redirects_max + 1):
                reply = await self._ask(asked)
                location = reply.headers.get("location")
                if reply.status not in _REDIRECTS or location is None:
                    return _read(reply)
                url = redirected(asked.url, location)
                self._check(url)
                asked = asked.moved(url, as_get=reply.status not in _KEEPS_METHOD)
        raise FetchError(f"more than {self._settings.redirects_max} redirects")

    async def _ask(self, asked: HttpRequest) -> HttpResponse:
        """On one of the addresses that were looked at: nothing is looked up a second time."""
        trouble: OSError | None = None
        tls = self._tls if asked.url.scheme == "https" else None
        for address in await self._addresses(asked.url):
            try:
                return await exchange(asked, address, tls, self._settings.bytes_max)
            except ConnectionRefusedError as error:
                trouble = error
        raise trouble or FetchError(f"{asked.url.host} has no address")

    async def _addresses(self, url: Url) -> list[IpAddress]:
        named = literal(url.host)
        found = [named] if named is not None else [ip_address(each) for each in await self.resolve(url.host, url.port)]
        fit = [address for address in found if is_public(address) or self._allowed.names_address(url, address)]
        if found and not fit:
            raise InputError(f"{url.host} has an address that may not be fetched from")
        return fit

    def _check(self, url: Url) -> None:
        if not self._allowed.covers(url):
            raise InputError(f"{url.scheme}://{url.authority}{url.path} is not below any URL of fetch.allow")


def _say(peer: Peer, answer: Message) -> None:
    """Where the asker's protocol cannot carry it, that is the answer."""
    try:
        peer.send(answer)
    except (EncodeError, TranslationError) as error:
        peer.send(failed(answer.correlation, f"the response cannot be encoded: {error}", FailureCode.UNENCODABLE))


def _read(reply: HttpResponse) -> Message:
    """Return the answer as an object, a text, a list, a number, or bytes."""
    body, kind = reply.body, reply.headers.get("content-type", "").lower()
    if reply.headers.get("content-encoding", "identity").lower() != "identity":
        raise FetchError("the response is compressed, which was not requested")
    if not 200 <= reply.status < 300:
        said = " ".join(text_of(body[: 4 * FETCH_ERROR_CHARS]).split())[:FETCH_ERROR_CHARS]
        why = "".join(char if char.isprintable() else "?" for char in said)  # it ends up in logs and on terminals
        code = reply.status if reply.status >= 400 else FailureCode.PROVIDER_LOST
        return failed("", f"HTTP {reply.status}{': ' if why else ''}{why}", code)
    if not body:
        return Message(kind=Kind.RESPONSE)
    if "json" in kind or body.lstrip()[:1] in (b"{", b"["):
        value, is_json = _json(body)
        if is_json:
            return Message(kind=Kind.RESPONSE, fields=value if isinstance(value, dict) else {"msg": value})
    text = _text(body, kind)
    if text is None:
        return Message(kind=Kind.RESPONSE, payload=body)
    return Message(kind=Kind.RESPONSE, fields={"msg": text})


def _json(body: bytes) -> tuple[Any, bool]:
    try:
        return read_json(text_of(body).encode()), True
    except ProtocolError:
        return None, False


def _text(body: bytes, kind: str) -> str | None:
    """None for what is no text."""
    charset = _CHARSET.search(kind)
    if charset is not None:
        try:
            return body.decode(charset[1])
        except (LookupError, UnicodeDecodeError):
            pass
    if kind.startswith("text/"):
        return text_of(body)
    try:
        return None if b"\0" in body else body.decode()
    except UnicodeDecodeError:
        return None


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part of the name is too long to be asked for
        raise FetchError(f"{host} is not a valid host name") from error
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def _tls(settings: FetchSection) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"settings: cannot use fetch.ca: {error}") from error
