"""Which pages may connect by WebSocket. Browsers say in `Origin` where the page came from; other clients say nothing.

A browser lets any page connect anywhere, so without this rule a foreign page could talk to a gateway that only this
machine can reach. It would still need a token, because a login is part of the protocol and no cookie does it; with
`auth.open` it would need nothing at all. So a page may connect if

- it came from this gateway's own HTTP listener: the same host as the WebSocket's, and that listener's port; or from
  the very host and port of the WebSocket itself, as behind a proxy that serves both; or
- its origin is listed in the protocol's own setting (`WebSocketOptions.origins_setting`).

With `auth.open` the host must then be an address or `localhost`: a foreign name that its owner makes to point here
would be "the same host" too.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_allowed(
    origin: str,
    host: str,
    http_port: int | None,
    *,
    secure: bool,
    listed: Collection[str] = (),
    open_to_all: bool = False,
) -> bool:
    """`origin` and `host` are the headers; `http_port` is where our own pages come from; `secure`: by TLS."""
    if "*" in listed or origin.lower() in {each.lower().rstrip("/") for each in listed}:
        return True
    page, asked = _split(origin), _split(f"//{host}")
    if page is None or asked is None or page.scheme not in _DEFAULT_PORTS or page.hostname != asked.hostname:
        return False
    if open_to_all and not is_address(page.hostname or ""):
        return False
    port = page.port or _DEFAULT_PORTS[page.scheme]
    own_scheme = page.scheme == ("https" if secure else "http")
    return (own_scheme and port == http_port) or port == (asked.port or _DEFAULT_PORTS[page.scheme])


def _split(url: str) -> SplitResult | None:
    try:
        found = urlsplit(url)
        _ = found.port  # which raises where it is no number
    except ValueError:
        return None
    return found if found.hostname else None


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port; nothing if it is no host."""
    found = _split(f"//{host}")
    return "" if found is None else (found.hostname or "").removesuffix(".")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
