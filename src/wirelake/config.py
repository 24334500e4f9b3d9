"""Settings: a TOML file, then the environment, then the command line. Every key has a default.

`[listen] comet` in the file is `WIRELAKE_LISTEN_COMET` in the environment. A key that does not exist is an error that
names it: a misspelt setting must not be silently the default.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct, defstruct
from msgspec.structs import asdict

from wirelake.address import OFF, Address, parse_address
from wirelake.errors import InputError
from wirelake.limits import (
    BROKER_CALL_S,
    BROKER_IMPLICIT_ACK_S,
    BROKER_RESEND_S,
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
    MIB,
    STATE_KEEP_S,
)
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.settings import ByteCount, Count, Seconds

DEFAULT_FILE: Final = Path("wirelake.toml")
ENVIRONMENT_PREFIX: Final = "WIRELAKE_"
_HOST: Final = "127.0.0.1"  # listeners are for this machine alone unless the settings say otherwise
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_Struct = TypeVar("_Struct", bound=Struct)


class ListenSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where each listener is, as HOST:PORT, or "off". Every transport of every installed protocol has a key."""

    http: str = f"{_HOST}:7080"  # API and console


class TlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in PEM form. With `cert` and `key`, every TCP and WebSocket door speaks TLS."""

    cert: str = ""  # the certificate, and those between it and the authority
    key: str = ""  # its private key
    handshake_s: Seconds = GATEWAY_TLS_HANDSHAKE_S  # from an accepted connection to a finished handshake
    client_ca: str = ""  # clients need a certificate of this authority


class AuthSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: bool = False  # True lets anybody in, with any name


class LogSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fsync: bool = True  # False confirms what the operating system has: a power failure may take it
    segment_mb: Count = 64  # a file of the log is sealed at this size
    keep_days: Count = 30  # older segments go, once every consumer has read them
    keep_bytes: ByteCount = 0  # the same when all segments together are larger, oldest first; 0: no limit
    disk_bytes_max: ByteCount = 0  # the same, and when that does not help, nothing is accepted until there is room


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections: Count = GATEWAY_CONNECTIONS_MAX  # at all doors
    connections_per_address: Count = GATEWAY_CONNECTIONS_PER_ADDRESS_MAX  # of one peer's address
    unauthenticated_share: Annotated[float, Meta(gt=0, le=1)] = (
        GATEWAY_UNAUTHENTICATED_SHARE  # of `connections`, for peers that have not logged in; half of it for one address
    )
    unauthenticated_bytes: Count = (
        GATEWAY_UNAUTHENTICATED_BYTES_MAX  # that these hold together; the one that passes it is closed
    )
    unauthenticated_records: Count = (
        GATEWAY_UNAUTHENTICATED_RECORDS  # of the log, a second, that these cause; half for one address
    )
    unauthenticated_log_bytes: Count = GATEWAY_UNAUTHENTICATED_LOG_BYTES  # the same as for records, in bytes of frames
    frames_per_second: Count = GATEWAY_FRAMES_PER_SECOND  # of one connection; beyond that it is read more slowly
    bytes_per_second: Count = GATEWAY_BYTES_PER_SECOND  # the same, in bytes
    pending_bytes: Count = GATEWAY_PENDING_BYTES  # written to one connection and not taken by it: then it is slow
    unread_bytes: Count = GATEWAY_STALLED_BYTES_MAX  # of all slow connections together; beyond that, the largest go
    stall_s: Seconds = GATEWAY_STALL_S  # for a slow connection to take half of pending_bytes; then it is closed
    failed_logins: Count = GATEWAY_FAILED_LOGINS_MAX  # of one name from one address; beyond, answers are delayed


class BrokerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slow: Literal["cut", "conflate"] = "cut"  # what happens to a slow subscriber of a live name
    resend_s: Seconds = BROKER_RESEND_S  # until an unacked notification is sent again
    implicit_ack_s: Seconds = BROKER_IMPLICIT_ACK_S  # until one counts as acked by a silent subscriber without acks
    call_s: Seconds = BROKER_CALL_S  # for a service's answer, where the request names no time of its own
    expire_s: Seconds = STATE_KEEP_S  # until one that nobody acked is given up
    devices_topic: str = (
        "@devices"  # a device's telemetry is published on this, a slash and its serial; "" switches off
    )


class FetchSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sisnet clients may have fetched for them by HTTP."""

    allow: tuple[str, ...] = ()  # base URLs: what lies below them; addresses of one's own only where written out
    timeout_s: Seconds = FETCH_S  # for one request, its turn and redirects included
    bytes_max: Count = FETCH_BYTES_MAX  # of an answer
    open_max: Count = FETCH_OPEN_MAX  # at once
    redirects_max: Annotated[int, Meta(ge=0)] = FETCH_REDIRECTS_MAX  # each is held to `allow`
    ca: str = ""  # who is trusted, as a file in PEM form; the system's authorities if empty


class HttpSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP API and the console."""

    hosts: tuple[str, ...] = ()  # names of this gateway, for requests without a token, beside localhost
    metrics: Literal["loopback", "token", "open"] = (
        "loopback"  # when /metrics needs no token: if `listen.http` is on loopback; "token": never; "open": always
    )


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway's own sections. What `load` and `default_settings` return also has one for each protocol."""

    data: str = "data"  # the data folder
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    auth: AuthSection = AuthSection()
    log: LogSection = LogSection()
    limits: LimitsSection = LimitsSection()
    broker: BrokerSection = BrokerSection()
    fetch: FetchSection = FetchSection()
    http: HttpSection = HttpSection()

    def section(self, protocol: Protocol) -> Any:
        """Return the settings of a protocol, an instance of its own `Settings`."""
        return getattr(self, protocol.name)

    def address(self, key: str) -> Address | None:
        """Return where [listen] has this listener, None for "off"."""
        return parse_address(getattr(self.listen, key), f"listen.{key}")


@cache
def settings_type() -> type[Settings]:
    """Return `Settings` with the listeners and sections of all installed protocols."""
    installed = registry.all_protocols()
    places = {
        transport.setting: f"{_HOST}:{transport.port}" if protocol.name in registry.BUILT_IN else OFF
        for protocol in installed
        for transport in protocol.transports
        if protocol.server_session is not None
    }
    listen = _extend(ListenSection, {key: (str, place) for key, place in places.items()})
    sections = {protocol.name: (protocol.settings, protocol.settings()) for protocol in installed}
    return _extend(Settings, {"listen": (listen, listen()), **sections})


def _extend(base: type[_Struct], fields: dict[str, tuple[type, Any]]) -> type[_Struct]:
    extended = [(name, *rest) for name, rest in fields.items()]
    made = defstruct(
        base.__name__, extended, bases=(base,), module=__name__, frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return cast(type[_Struct], made)


def default_settings() -> Settings:
    """Return the settings in force where nothing is set."""
    return settings_type()()


def load(
    file: Path | None = None, data_folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings in force. Without `file`, wirelake.toml is read if it is there."""
    values: dict[str, Any] = {}
    path = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if path is not None:
        values = _read(path)
        _convert(values, str(path))  # so that a fault in the file is told as one of the file
    _merge(values, os.environ if environment is None else environment)
    if data_folder is not None:
        values["data"] = str(data_folder)
    settings = _convert(values, "the environment")
    for name in settings.listen.__struct_fields__:
        settings.address(name)
    if bool(settings.tls.cert) != bool(settings.tls.key):
        raise InputError("settings: tls.cert and tls.key go together")
    check_log(settings.log)
    return settings


def check_log(log: LogSection) -> None:
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


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"settings: {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"settings: {path}: {error}") from error


def _convert(values: dict[str, Any], place: str) -> Settings:
    try:
        return msgspec.convert(values, settings_type(), strict=False)
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
    return reduce(getattr, path, default_settings())


def _keys() -> dict[str, tuple[str, ...]]:
    """Environment variable → path of the setting."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, default in asdict(default_settings()).items():
        inner = default.__struct_fields__ if isinstance(default, Struct) else ()
        paths: list[tuple[str, ...]] = [(name, key) for key in inner] or [(name,)]
        for path in paths:
            keys[ENVIRONMENT_PREFIX + "_".join(path).upper()] = path
    return keys
