"""The section [sisnet] of wirelake.toml."""

from typing import Annotated, Final

from msgspec import Meta

from wirelake.errors import InputError
from wirelake.limits import UPSTREAM_KEEP_S
from wirelake.message import DEVICES_SERVICE, GATEWAY_SERVICE
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.sisnet.limits import (
    SISNET_IDLE_S,
    SISNET_INFLATED_BYTES_MAX,
    SISNET_LOGIN_FRAME_BYTES_MAX,
    SISNET_LOGIN_S,
    SISNET_MESSAGE_BYTES_MAX,
)
from wirelake.protocols.upstream import UpstreamSettings, check_upstreams

TCP_PORT: Final = 7330
_RESERVED: Final = frozenset({GATEWAY_SERVICE, "redis", DEVICES_SERVICE})  # services of the gateway's own
_NOT_IN_NAMES: Final = frozenset("{}():,* ")


class Settings(ProtocolSettings, frozen=True):
    login_s: Seconds = SISNET_LOGIN_S  # from connecting to a decided login
    idle_s: Seconds = SISNET_IDLE_S  # a silent connection is closed
    message_bytes_max: Annotated[int, Meta(ge=1, le=SISNET_MESSAGE_BYTES_MAX)] = SISNET_MESSAGE_BYTES_MAX  # a message
    login_frame_bytes_max: Count = (
        SISNET_LOGIN_FRAME_BYTES_MAX  # a message before the login; of a WebSocket, its handshake too
    )
    inflated_bytes_max: Count = SISNET_INFLATED_BYTES_MAX  # the same, with snappy, unpacked
    lenient: bool = False  # True admits WebSocket clients as the authors wrote theirs: no Host, any key, no masks
    data_sets: tuple[str, ...] = ("sisdb",)  # each is a service that keeps records
    origins: tuple[str, ...] = ()  # pages of other sites that may connect, as https://HOST:PORT, or "*" for all
    keep_s: Seconds = UPSTREAM_KEEP_S  # what an upstream sent is kept so long, for those who join later
    upstreams: tuple[UpstreamSettings, ...] = ()  # sisnet servers that serve some of our services

    def __post_init__(self) -> None:
        for name in self.data_sets:
            if name in _RESERVED or not name or not _NOT_IN_NAMES.isdisjoint(name):
                raise InputError(f'settings: sisnet.data_sets: "{name}" cannot be the name of a data set')
        check_upstreams(self.upstreams, "sisnet.upstreams", TCP_PORT)
