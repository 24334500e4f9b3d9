"""URLs that can be fetched, and the list of those that may be."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.gateway.fetch.addresses import IpAddress, literal
from wirelake.limits import FETCH_URL_CHARS_MAX

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
_PRINTABLE: Final = re.compile(r"[!-\[\]-~]+")  # ASCII without spaces, controls and the backslash
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~"
_UNQUOTED_MAX: Final = 4  # times that a path is decoded, to see what it comes to
LOCALHOST: Final = "localhost"


class Url(Struct, frozen=True):
    scheme: str
    host: str  # without brackets
    port: int
    path: str  # begins with a slash
    query: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" + (f"?{self.query}" if self.query else "")


def read_url(text: str) -> Url:
    """Raises InputError, which says what is wrong with it."""
    if len(text) > FETCH_URL_CHARS_MAX:
        raise InputError(f"URL must have at most {FETCH_URL_CHARS_MAX} characters")
    if _PRINTABLE.fullmatch(text) is None:
        raise InputError("URL must not contain spaces, backslashes, control characters or non-ASCII letters")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"not a URL: {text}") from error
    if parts.scheme not in _PORTS:
        raise InputError("URL must begin with http:// or https://")
    if "@" in parts.netloc or parts.fragment:
        raise InputError("URL must not contain a user or a fragment")
    if _HOST.fullmatch(host) is None or (":" in host and literal(host) is None) or port == 0:
        raise InputError(f"invalid host or port in URL: {text}")
    path = parts.path or "/"
    _check_path(path)
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], path, parts.query)


def below(base: Url, method: str) -> Url:
    """The URL of one of its methods: the words behind the base."""
    if base.query:
        raise InputError("base URL must not contain a query: put it into ask")
    if not method:
        return base
    path = base.path.removesuffix("/") + "/" + quote(method.removeprefix("/"), safe=_PATH_SAFE)
    _check_path(path)
    return Url(base.scheme, base.host, base.port, path)


def redirected(url: Url, location: str) -> Url:
    """Where an answer sends us."""
    if _PRINTABLE.fullmatch(location) is None:
        raise InputError("redirected to an invalid URL")
    try:
        joined = urljoin(str(url), location)
    except ValueError as error:
        raise InputError("redirected to an invalid URL") from error
    return read_url(joined.partition("#")[0])


def _check_path(path: str) -> None:
    """However often somebody on the way decodes it, it must not climb."""
    for _ in range(_UNQUOTED_MAX):
        if any(part in {".", ".."} for part in re.split(r"[/\\]", path)):
            raise InputError('path must not contain "." or ".."')
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded
    raise InputError("path is percent-encoded repeatedly")


class AllowList:
    """Base URLs: what lies below one of them may be fetched."""

    def __init__(self, bases: Iterable[str]) -> None:
        self._bases = [self._base(text) for text in bases]
        self._explicit = {(literal(base.host), base.port) for base in self._bases}

    def covers(self, url: Url) -> bool:
        return any(base.origin == url.origin and _is_below(url.path, base.path) for base in self._bases)

    def names_address(self, url: Url, address: IpAddress) -> bool:
        """Whether somebody wrote this very address into the list; `localhost` is a way to write loopback."""
        return (address, url.port) in self._explicit or (url.host == LOCALHOST and address.is_loopback)

    @staticmethod
    def _base(text: str) -> Url:
        try:
            base = read_url(text)
        except InputError as error:
            raise InputError(f"settings: fetch.allow: {text!r}: {error}") from error
        if base.query:
            raise InputError(f"settings: fetch.allow: {text!r}: base URL must not contain a query")
        return base


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base if base.endswith("/") else base + "/")
