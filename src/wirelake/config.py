"""Settings: a TOML file, then the environment, then the command line. Every key has a default.

`[listen] comet` in the file is `WIRELAKE_LISTEN_COMET` in the environment. A key that does not exist is an error that
names it: a misspelt setting must not be silently the default.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from wirelake.errors import InputError
from wirelake.limits import (
    APOSTOL_ASSEMBLING_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_HALF_PACKET_S,
    APOSTOL_IDLE_S,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_LOGIN_S,
    APOSTOL_PACKET_DATA_BYTES,
    APOSTOL_RECEIPT_S,
    APOSTOL_REPLAY_WINDOW_S,
    APOSTOL_REQUEST_S,
    APOSTOL_RESENDS_MAX,
    BROKER_CALL_S,
    BROKER_IMPLICIT_ACK_S,
    BROKER_RESEND_S,
    BROKER_SERVICES_PER_PEER_MAX,
    COMET_IDLE_S,
    COMET_LOGIN_FRAME_BYTES_MAX,
    COMET_LOGIN_S,
    ESNP_FRAME_BYTES_MAX,
    ESNP_LOGIN_FRAME_BYTES_MAX,
    ESNP_LOGIN_S,
    FETCH_BYTES_MAX,
    FETCH_OPEN_MAX,
    FETCH_REDIRECTS_MAX,
    FETCH_S,
    GATEWAY_BYTES_PER_SECOND,
    GATEWAY_CONNECTIONS_MAX,
    GATEWAY_CONNECTIONS_PER_ADDRESS_MAX,
    GATEWAY_FAILED_LOGINS_MAX,
    GATEWAY_FRAMES_PER_SECOND,
    GATEWAY_PENDING_BYTES,
    GATEWAY_STALL_S,
    GATEWAY_STALLED_BYTES_MAX,
    GATEWAY_TLS_HANDSHAKE_S,
    GATEWAY_UNAUTHENTICATED_BYTES_MAX,
    GATEWAY_UNAUTHENTICATED_LOG_BYTES,
    GATEWAY_UNAUTHENTICATED_RECORDS,
    GATEWAY_UNAUTHENTICATED_SHARE,
    LOG_SEGMENTS_MIN,
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_IDLE_S,
    MAGLINE_LOGIN_FRAME_BYTES_MAX,
    MAGLINE_LOGIN_S,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_RESUME_S,
    MIB,
    RESP_FRAME_BYTES_MAX,
    RESP_LOGIN_FRAME_BYTES_MAX,
    RESP_LOGIN_S,
    SISNET_IDLE_S,
    SISNET_INFLATED_BYTES_MAX,
    SISNET_LOGIN_FRAME_BYTES_MAX,
    SISNET_LOGIN_S,
    SISNET_MESSAGE_BYTES_MAX,
    STATE_KEEP_S,
    UPSTREAM_KEEP_S,
)

DEFAULT_FILE: Final = Path("wirelake.toml")
ENVIRONMENT_PREFIX: Final = "WIRELAKE_"
OFF: Final = "off"
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_PORT_MAX: Final = 65535
_TAKEN: Final = frozenset({"wirelake", "redis", "devices"})  # services of the gateway's own
_NOT_IN_NAMES: Final = frozenset("{}():,* ")
_OWN_SERVICE: Final = "wirelake"
_UPSTREAM_PORTS: Final = {"ws": 80, "wss": 443, "tcp": 7330, "tls": 7330}
_Bytes = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1)]
_Seconds = Annotated[float, Meta(gt=0)]
_SecondsOrNever = Annotated[float, Meta(ge=0)]


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where each door is, as HOST:PORT, or "off"."""

    comet: str = "127.0.0.1:7334"  # TCP
    magline: str = "127.0.0.1:9757"  # TCP
    apostol: str = "127.0.0.1:7332"  # UDP and TCP
    esnp: str = "127.0.0.1:1080"  # TCP
    sisnet: str = "127.0.0.1:7329"  # WebSocket
    sisnet_tcp: str = "127.0.0.1:7330"  # the same over plain TCP
    redis: str = "127.0.0.1:6380"  # TCP
    http: str = "127.0.0.1:7080"  # API and console


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in PEM form. With `cert` and `key`, every TCP and WebSocket door speaks TLS."""

    cert: str = ""  # the certificate, and those between it and the authority
    key: str = ""  # its private key
    handshake_s: _Seconds = GATEWAY_TLS_HANDSHAKE_S  # from an accepted connection to a finished handshake
    client_ca: str = ""  # clients need a certificate of this authority


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: bool = False  # True lets anybody in, with any name


class Log(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fsync: bool = True  # False confirms what the operating system has: a power failure may take it
    segment_mb: _Count = 64  # a file of the log is sealed at this size
    keep_days: _Count = 30  # older segments go, once every consumer has read them
    keep_bytes: _Bytes = 0  # the same when all segments together are larger, oldest first; 0: no limit
    disk_bytes_max: _Bytes = 0  # the same, and when that does not help, nothing is accepted until there is room


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections: _Count = GATEWAY_CONNECTIONS_MAX  # at all doors
    connections_per_address: _Count = GATEWAY_CONNECTIONS_PER_ADDRESS_MAX  # of one peer's address
    unauthenticated_share: Annotated[float, Meta(gt=0, le=1)] = (
        GATEWAY_UNAUTHENTICATED_SHARE  # of `connections`, for peers that have not logged in; half of it for one address
    )
    unauthenticated_bytes: _Count = (
        GATEWAY_UNAUTHENTICATED_BYTES_MAX  # that these hold together; the one that passes it is closed
    )
    unauthenticated_records: _Count = (
        GATEWAY_UNAUTHENTICATED_RECORDS  # of the log, a second, that these cause; half for one address
    )
    unauthenticated_log_bytes: _Count = GATEWAY_UNAUTHENTICATED_LOG_BYTES  # the same as for records, in bytes of frames
    frames_per_second: _Count = GATEWAY_FRAMES_PER_SECOND  # of one connection; beyond that it is read more slowly
    bytes_per_second: _Count = GATEWAY_BYTES_PER_SECOND  # the same, in bytes
    pending_bytes: _Count = GATEWAY_PENDING_BYTES  # written to one connection and not taken by it: then it is slow
    unread_bytes: _Count = GATEWAY_STALLED_BYTES_MAX  # of all slow connections together; beyond that, the largest go
    stall_s: _Seconds = GATEWAY_STALL_S  # for a slow connection to take half of pending_bytes; then it is closed
    failed_logins: _Count = GATEWAY_FAILED_LOGINS_MAX  # of one name from one address; beyond, answers are delayed


class Broker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slow: Literal["cut", "conflate"] = "cut"  # what happens to a slow subscriber of a live name
    resend_s: _Seconds = BROKER_RESEND_S  # until an unacked notification is sent again
    implicit_ack_s: _Seconds = BROKER_IMPLICIT_ACK_S  # until one counts as acked by a silent subscriber without acks
    call_s: _Seconds = BROKER_CALL_S  # for a service's answer, where the request names no time of its own
    expire_s: _Seconds = STATE_KEEP_S  # until one that nobody acked is given up
    devices_topic: str = (
        "@devices"  # a device's telemetry is published on this, a slash and its serial; "" switches off
    )


class Comet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    require_key: bool = False  # content only for clients that exchanged a key
    second: Literal["replace", "refuse"] = "replace"  # when a client connects that is connected already
    idle_s: _Seconds = COMET_IDLE_S  # a silent connection is closed
    login_s: _Seconds = COMET_LOGIN_S  # from connecting to a decided login
    login_frame_bytes_max: _Count = COMET_LOGIN_FRAME_BYTES_MAX  # a frame before the login


class Magline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    idle_s: _Seconds = MAGLINE_IDLE_S  # a silent connection is closed
    login_s: _Seconds = MAGLINE_LOGIN_S  # from connecting to a decided login
    resume_s: _Seconds = MAGLINE_RESUME_S  # how long a lost session can be taken up again
    resume_without_proof: Literal["never", "tls", "always"] = "never"  # when its sid alone is enough
    login_frame_bytes_max: _Count = MAGLINE_LOGIN_FRAME_BYTES_MAX  # a whole frame before the login
    message_bytes_max: _Count = MAGLINE_MESSAGE_BYTES_MAX  # a frame's body
    header_bytes_max: _Count = MAGLINE_HEADER_BYTES_MAX  # a frame's message header


class Esnp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hosts: tuple[str, ...] = ()  # names of this node in addresses, beside `local`, the machine's name and loopback's
    login_s: _Seconds = ESNP_LOGIN_S  # from connecting to a decided login
    idle_s: _SecondsOrNever = 0.0  # a silent connection is closed; 0: never
    frame_bytes_max: Annotated[int, Meta(ge=1, le=ESNP_FRAME_BYTES_MAX)] = ESNP_FRAME_BYTES_MAX  # after the login
    login_frame_bytes_max: _Count = ESNP_LOGIN_FRAME_BYTES_MAX  # a message before the login


class Apostol(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: bool = False  # True takes devices that are not registered
    require_seal: bool = False  # commands in clear from devices that have a key are refused, and so are replayed ones
    replay_window_s: _Seconds = APOSTOL_REPLAY_WINDOW_S  # how far behind a device's newest sealed command one may be
    receipt_s: _Seconds = APOSTOL_RECEIPT_S  # without a receipt for this long, a packet is sent again
    resends_max: _Count = APOSTOL_RESENDS_MAX  # then it is given up
    request_s: _Seconds = APOSTOL_REQUEST_S  # for a device's answer
    assembly_s: _Seconds = APOSTOL_ASSEMBLY_S  # from a command's first packet to its last
    command_bytes_max: _Count = APOSTOL_COMMAND_BYTES_MAX  # the joined packets of one command
    inflated_bytes_max: _Count = APOSTOL_INFLATED_BYTES_MAX  # the same, unzipped
    assembling_per_device: _Count = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of which packets are missing
    assembling_bytes: _Count = APOSTOL_ASSEMBLING_BYTES_MAX  # of such commands, of all devices together
    packet_data_bytes: _Count = APOSTOL_PACKET_DATA_BYTES  # of a command, in each packet sent
    idle_s: _Seconds = APOSTOL_IDLE_S  # a silent device is forgotten, a silent TCP connection closed
    login_s: _Seconds = APOSTOL_LOGIN_S  # over TCP, from connecting to the first packet of a known device
    half_packet_s: _Seconds = APOSTOL_HALF_PACKET_S  # over TCP, from a packet's first byte to its last


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sisnet server that serves some of our services."""

    name: Annotated[str, Meta(min_length=1)]
    url: str  # ws://, wss://, tcp:// or tls://HOST:PORT
    services: Annotated[tuple[str, ...], Meta(min_length=1, max_length=BROKER_SERVICES_PER_PEER_MAX)]
    user: str = ""
    password: str = ""
    ca: str = ""  # with wss and tls, who is trusted, as a file in PEM form; the system's authorities if empty


class Redis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    login_s: _Seconds = RESP_LOGIN_S  # from connecting to a decided login
    idle_s: _SecondsOrNever = 0.0  # a silent connection is closed; 0: never
    frame_bytes_max: Annotated[int, Meta(ge=1, le=RESP_FRAME_BYTES_MAX)] = RESP_FRAME_BYTES_MAX  # a command
    login_frame_bytes_max: _Count = RESP_LOGIN_FRAME_BYTES_MAX  # a command before the login


class Sisnet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    login_s: _Seconds = SISNET_LOGIN_S  # from connecting to a decided login
    idle_s: _Seconds = SISNET_IDLE_S  # a silent connection is closed
    message_bytes_max: Annotated[int, Meta(ge=1, le=SISNET_MESSAGE_BYTES_MAX)] = SISNET_MESSAGE_BYTES_MAX  # a message
    login_frame_bytes_max: _Count = (
        SISNET_LOGIN_FRAME_BYTES_MAX  # a message before the login; of a WebSocket, its handshake too
    )
    inflated_bytes_max: _Count = SISNET_INFLATED_BYTES_MAX  # the same, with snappy, unpacked
    lenient: bool = False  # True takes WebSocket clients that send no Host header or do not mask their frames
    data_sets: tuple[str, ...] = ("sisdb",)  # each is a service that keeps records
    origins: tuple[str, ...] = ()  # pages of other sites that may connect, as https://HOST:PORT, or "*" for all
    keep_s: _Seconds = UPSTREAM_KEEP_S  # what an upstream sent is kept so long, for those who join later
    upstreams: tuple[Upstream, ...] = ()  # sisnet servers that serve some of our services


class Fetch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sisnet clients may have fetched for them by HTTP."""

    allow: tuple[str, ...] = ()  # base URLs: what lies below them; addresses of one's own only where written out
    timeout_s: _Seconds = FETCH_S  # for one request, its turn and redirects included
    bytes_max: _Count = FETCH_BYTES_MAX  # of an answer
    open_max: _Count = FETCH_OPEN_MAX  # at once
    redirects_max: Annotated[int, Meta(ge=0)] = FETCH_REDIRECTS_MAX  # each is held to `allow`
    ca: str = ""  # who is trusted, as a file in PEM form; the system's authorities if empty


class Http(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP API and the console."""

    hosts: tuple[str, ...] = ()  # names of this gateway, for requests without a token, beside localhost
    metrics: Literal["loopback", "token", "open"] = (
        "loopback"  # when /metrics needs no token: if `listen.http` is on loopback; "token": never; "open": always
    )


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str = "data"  # the data folder
    listen: Listen = Listen()
    tls: Tls = Tls()
    auth: Auth = Auth()
    log: Log = Log()
    limits: Limits = Limits()
    broker: Broker = Broker()
    comet: Comet = Comet()
    magline: Magline = Magline()
    esnp: Esnp = Esnp()
    apostol: Apostol = Apostol()
    sisnet: Sisnet = Sisnet()
    redis: Redis = Redis()
    fetch: Fetch = Fetch()
    http: Http = Http()


class Address(Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def load(
    file: Path | None = None, data_folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings in force. Without `file`, wirelake.toml is read if it is there."""
    values: dict[str, Any] = {}
    path = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if path is not None:
        values = _read(path)
        _convert(values, str(path))  # so that a fault in the file is told as one of the file
    _merge(values, os.environ if environment is None else environment)
    if data_folder is not None:
        values["data"] = str(data_folder)
    settings = _convert(values, "the environment")
    for name in Listen.__struct_fields__:
        parse_address(getattr(settings.listen, name), f"listen.{name}")
    for name in settings.sisnet.data_sets:
        if name in _TAKEN or not name or not _NOT_IN_NAMES.isdisjoint(name):
            raise InputError(f'settings: sisnet.data_sets: "{name}" cannot be the name of a data set')
    if bool(settings.tls.cert) != bool(settings.tls.key):
        raise InputError("settings: tls.cert and tls.key go together")
    check_log(settings.log)
    _check_upstreams(settings.sisnet.upstreams)
    return settings


def check_log(log: Log) -> None:
    """Raise InputError if the sizes do not go together."""
    least = LOG_SEGMENTS_MIN * log.segment_mb * MIB
    if 0 < log.disk_bytes_max < least:
        raise InputError(
            f"settings: log.disk_bytes_max = {log.disk_bytes_max} is below {LOG_SEGMENTS_MIN} segments of "
            f"log.segment_mb = {log.segment_mb} ({least} bytes)"
        )
    if 0 < log.disk_bytes_max < log.keep_bytes:
        raise InputError(
            f"settings: log.keep_bytes = {log.keep_bytes} is above log.disk_bytes_max = {log.disk_bytes_max}"
        )


def parse_upstream(upstream: Upstream) -> tuple[str, Address]:
    """The URL's scheme and address. Ports that are not given are those of the web, or sisnet's own."""
    try:
        parts = urlsplit(upstream.url)
        port = parts.port or _UPSTREAM_PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        schemes = ", ".join(f"{scheme}://" for scheme in _UPSTREAM_PORTS)
        raise InputError(f"settings: upstream {upstream.name}: {upstream.url!r} is none of {schemes}") from error
    if not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise InputError(f"settings: upstream {upstream.name}: a URL has a host; user and password have their own keys")
    return parts.scheme, Address(parts.hostname, port)


def _check_upstreams(upstreams: tuple[Upstream, ...]) -> None:
    if len({upstream.name for upstream in upstreams}) < len(upstreams):
        raise InputError("settings: two of sisnet.upstreams have the same name")
    for upstream in upstreams:
        parse_upstream(upstream)
        if _OWN_SERVICE in upstream.services or "" in upstream.services:
            raise InputError(f"settings: upstream {upstream.name}: a service has a name, and not {_OWN_SERVICE}")


def parse_address(text: str, key: str) -> Address | None:
    """HOST:PORT, [IPv6]:PORT, or None for "off"."""
    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise InputError(f'settings: {key} = "{text}" is not HOST:PORT and not "{OFF}"')
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"settings: {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"settings: {path}: {error}") from error


def _convert(values: dict[str, Any], place: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"settings: {place}: {_in_words(str(error))}") from error


def _in_words(text: str) -> str:
    """msgspec's `Expected … - at `$.section.key`` and unknown fields, as one writes and looks for them in the file."""
    fault, _, path = text.partition(" - at `")
    where = path.removesuffix("`").removeprefix("$").removeprefix(".")
    if (unknown := _UNKNOWN.fullmatch(fault)) is None:
        return f"{where}: {fault[0].lower()}{fault[1:]}" if where else text
    name = f"{where}.{unknown[1]}".removeprefix(".")
    keys = [".".join(path) for path in _keys().values()]
    sections = {key.partition(".")[0] for key in keys}
    near = difflib.get_close_matches(name, [*keys, *sections], n=1)
    return f"there is no setting {name}" + (f"; did you mean {near[0]}?" if near else "")


def _merge(values: dict[str, Any], environment: Mapping[str, str]) -> None:
    known = _keys()
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in known:
            raise InputError(f"settings: the environment has {variable}, but no setting has that name")
        *sections, key = known[variable]
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = _listed(variable, text) if isinstance(_default(known[variable]), tuple) else text


def _listed(variable: str, text: str) -> Any:
    """A list in a variable: words between commas, or JSON where that is not enough."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"settings: {variable} begins like JSON, and is none: {error}") from error


def _default(path: tuple[str, ...]) -> object:
    return reduce(getattr, path, Settings())


def _keys() -> dict[str, tuple[str, ...]]:
    """Environment variable → path of the setting."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, default in ((name, getattr(Settings(), name)) for name in Settings.__struct_fields__):
        inner = default.__struct_fields__ if isinstance(default, Struct) else ()
        paths: list[tuple[str, ...]] = [(name, key) for key in inner] or [(name,)]
        for path in paths:
            keys[ENVIRONMENT_PREFIX + "_".join(path).upper()] = path
    return keys
