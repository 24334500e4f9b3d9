"""Check which web pages may connect by WebSocket, by the `Origin` header that browsers send and other clients omit.

Browsers let any page open a WebSocket to any host, so without this check a foreign page could connect to a gateway that
only this machine can reach. It would still need a token, because the login is part of the protocol and does not use
cookies; with `auth.open` it would need nothing. So a page may connect if

- it was served by this gateway's HTTP listener (the host of the WebSocket and the port of that listener), or from the
  host and port of the WebSocket itself, as behind a proxy that serves both; or
- its origin is listed in the protocol's setting (`WebSocketOptions.origins_setting`).

With `auth.open`, a page of the same host may connect only if the host is an IP address or `localhost`: anybody can make
a domain name resolve to this machine (DNS rebinding).
"""

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_origin_allowed(
    origin: str,
    host: str,
    http_port: int | None,
    *,
    secure: bool,
    listed: Collection[str] = (),
    open_to_all: bool = False,
) -> bool:
    """Return whether a page may connect.

    `origin` and `host` are the request headers, `http_port` is the port of the gateway's own pages, `secure` says
    whether the listener uses TLS.
    """
    if "*" in listed or origin.lower() in {each.lower().rstrip("/") for each in listed}:
        return True
    page, target = _split(origin), _split(f"//{host}")
    if page is None or target is None or page.scheme not in _DEFAULT_PORTS or page.hostname != target.hostname:
        return False
    if open_to_all and not is_address(page.hostname or ""):
        return False
    port = page.port or _DEFAULT_PORTS[page.scheme]
    own_scheme = page.scheme == ("https" if secure else "http")
    return (own_scheme and port == http_port) or port == (target.port or _DEFAULT_PORTS[page.scheme])


class OriginPolicy:
    """Apply the origin check with the gateway's HTTP port and settings."""

    def __init__(self, http_port: Callable[[], int | None], is_open: Callable[[], bool], *, has_tls: bool) -> None:
        """`http_port` returns the port of the gateway's own pages, `is_open` whether clients need no login."""
        self._http_port = http_port
        self._is_open = is_open
        self._has_tls = has_tls

    def allows(self, origin: str, host: str, listed: Collection[str]) -> bool:
        return is_origin_allowed(
            origin, host, self._http_port(), secure=self._has_tls, listed=listed, open_to_all=self._is_open()
        )


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a port number
    except ValueError:
        return None
    return parts if parts.hostname else None


def host_name(host: str) -> str:
    """Return the host name of a Host header without the port, or "" if the header is malformed."""
    parts = _split(f"//{host}")
    return "" if parts is None else (parts.hostname or "").removesuffix(".")


def is_address(host: str) -> bool:
    """Return whether a host is an IP address or `localhost`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
