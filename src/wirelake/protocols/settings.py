"""The base of the settings of protocols, and of the servers that they name.

A protocol's `Settings` is its section of wirelake.toml: the fields are the keys, the annotations are what is checked
when the file is read, and the comment on each field's line is its documentation. Checks across fields belong in
`__post_init__`, which raises ValueError or InputError.
"""

from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from wirelake.address import Address
from wirelake.errors import InputError
from wirelake.limits import BROKER_SERVICES_PER_PEER_MAX
from wirelake.message import GATEWAY_SERVICE

ByteCount = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
SecondsOrNever = Annotated[float, Meta(ge=0)]  # 0 is never

# The sections of wirelake.toml that belong to the gateway: no protocol can have these names.
SECTIONS: Final = frozenset(
    {"data", "listen", "tls", "auth", "log", "lake", "limits", "broker", "fetch", "http", "pipeline", "roles", "state"}
)


class ProtocolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every protocol's `Settings`, and the settings of a protocol that has none."""


# ── servers that the gateway connects to

WEBSOCKET_PORTS: Final = {"ws": 80, "wss": 443}
STREAM_SCHEMES: Final = ("tcp", "tls")


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that provides some of the gateway's services: one table of a protocol's `upstreams`."""

    name: Annotated[str, Meta(min_length=1)]
    url: str  # ws://, wss://, tcp:// or tls://HOST:PORT
    services: Annotated[tuple[str, ...], Meta(min_length=1, max_length=BROKER_SERVICES_PER_PEER_MAX)]
    user: str = ""
    password: str = ""
    ca: str = ""  # for wss and tls: trusted certificates, a PEM file; those of the system if empty

    def parse_url(self, stream_port: int) -> tuple[str, Address]:
        """Return scheme and address. The default port is 80 or 443 for WebSocket, else `stream_port`."""
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
    """Raise InputError for an invalid URL or service. `key` is the setting that has them."""
    if len({upstream.name for upstream in upstreams}) < len(upstreams):
        raise InputError(f"settings: two of {key} have the same name")
    for upstream in upstreams:
        upstream.parse_url(stream_port)
        if GATEWAY_SERVICE in upstream.services or "" in upstream.services:
            raise InputError(f"settings: upstream {upstream.name}: a service has a name, and not {GATEWAY_SERVICE}")
