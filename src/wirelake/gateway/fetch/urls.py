"""Parse URLs, and decide which URLs and addresses the gateway may fetch from."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.limits import FETCH_URL_CHARS_MAX

IpAddress = IPv4Address | IPv6Address

LOCALHOST: Final = "localhost"
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
_PRINTABLE: Final = re.compile(r"[!-\[\]-~]+")  # ASCII without spaces, controls and the backslash
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~"
_UNQUOTED_MAX: Final = 4  # how often a path is decoded to find out what it resolves to
# Networks whose last 32 bits are an IPv4 address: compatible, mapped, translated (SIIT), NAT64.
_IPV4_SUFFIX_NETWORKS: Final = tuple(
    map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)


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
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" + (f"?{self.query}" if self.query else "")


def read_url(text: str) -> Url:
    """Parse an absolute URL. Raise InputError if it cannot be fetched."""
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
    if _HOST.fullmatch(host) is None or (":" in host and parse_address(host) is None) or port == 0:
        raise InputError(f"invalid host or port in URL: {text}")
    path = parts.path or "/"
    _check_path(path)
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], path, parts.query)


def below(base: Url, method: str) -> Url:
    """Return the URL of a method below a base URL."""
    if base.query:
        raise InputError("base URL must not contain a query: put it into ask")
    if not method:
        return base
    path = base.path.removesuffix("/") + "/" + quote(method.removeprefix("/"), safe=_PATH_SAFE)
    _check_path(path)
    return Url(base.scheme, base.host, base.port, path)


def redirected(url: Url, location: str) -> Url:
    """Return the URL that a Location header points to."""
    if _PRINTABLE.fullmatch(location) is None:
        raise InputError("redirected to an invalid URL")
    try:
        joined = urljoin(str(url), location)
    except ValueError as error:
        raise InputError("redirected to an invalid URL") from error
    return read_url(joined.partition("#")[0])


def _check_path(path: str) -> None:
    """Reject "." and "..", also those that appear only after a server on the way decodes the path again."""
    for _ in range(_UNQUOTED_MAX):
        if any(part in {".", ".."} for part in re.split(r"[/\\]", path)):
            raise InputError('path must not contain "." or ".."')
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded
    raise InputError("path is percent-encoded repeatedly")


class AllowList:
    """Hold the base URLs of the setting `fetch.allow`: URLs below one of them may be fetched."""

    def __init__(self, bases: Iterable[str]) -> None:
        self._bases = [self._base(text) for text in bases]
        self._explicit = {(parse_address(base.host), base.port) for base in self._bases}

    def covers(self, url: Url) -> bool:
        return any(base.origin == url.origin and _is_below(url.path, base.path) for base in self._bases)

    def names_address(self, url: Url, address: IpAddress) -> bool:
        """Return whether the list contains this very address; `localhost` stands for loopback."""
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


def is_public(address: IpAddress) -> bool:
    """Return whether an address belongs to the public internet.

    Loopback, private, link-local, multicast, unspecified and reserved addresses do not. An IPv6 address that contains
    an IPv4 address, where its packets end up, is as public as that one.
    """
    if isinstance(address, IPv6Address):
        embedded = _embedded_ipv4(address)
        if embedded:  # the last of these networks is for local use
            return all(map(is_public, embedded)) and address not in _IPV4_SUFFIX_NETWORKS[-1]
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def parse_address(host: str) -> IpAddress | None:
    """Return the address that the host part of a URL denotes, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _embedded_ipv4(address: IPv6Address) -> tuple[IPv4Address, ...]:
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo  # the server, and the client behind it
    if int(address) > 1 and any(address in network for network in _IPV4_SUFFIX_NETWORKS):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
