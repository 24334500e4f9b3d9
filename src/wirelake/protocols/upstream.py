"""A server that serves some of the gateway's services, as the settings of its protocol name it."""

from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from wirelake.address import Address
from wirelake.errors import InputError
from wirelake.limits import BROKER_SERVICES_PER_PEER_MAX
from wirelake.message import GATEWAY_SERVICE

WEBSOCKET_PORTS: Final = {"ws": 80, "wss": 443}
STREAM_SCHEMES: Final = ("tcp", "tls")


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a protocol's `upstreams`."""

    name: Annotated[str, Meta(min_length=1)]
    url: str  # ws://, wss://, tcp:// or tls://HOST:PORT
    services: Annotated[tuple[str, ...], Meta(min_length=1, max_length=BROKER_SERVICES_PER_PEER_MAX)]
    user: str = ""
    password: str = ""
    ca: str = ""  # with wss and tls, who is trusted, as a file in PEM form; the system's authorities if empty

    def parse_url(self, stream_port: int) -> tuple[str, Address]:
        """Return scheme and address. A port that is not given is that of the web, or `stream_port`."""
        ports = {**WEBSOCKET_PORTS, **dict.fromkeys(STREAM_SCHEMES, stream_port)}
        try:
            parts = urlsplit(self.url)
            port = parts.port or ports[parts.scheme]
        except (KeyError, ValueError) as error:
            schemes = ", ".join(f"{scheme}://" for scheme in ports)
            raise InputError(f"settings: upstream {self.name}: {self.url!r} is none of {schemes}") from error
        if not parts.hostname or "@" in parts.netloc or parts.fragment:
            raise InputError(f"settings: upstream {self.name}: a URL has a host; user and password have their own keys")
        return parts.scheme, Address(parts.hostname, port)


def check_upstreams(upstreams: tuple[UpstreamSettings, ...], key: str, stream_port: int) -> None:
    """Raise InputError for a URL or a service that cannot be used; `key` is the setting they are from."""
    if len({upstream.name for upstream in upstreams}) < len(upstreams):
        raise InputError(f"settings: two of {key} have the same name")
    for upstream in upstreams:
        upstream.parse_url(stream_port)
        if GATEWAY_SERVICE in upstream.services or "" in upstream.services:
            raise InputError(f"settings: upstream {upstream.name}: a service has a name, and not {GATEWAY_SERVICE}")
