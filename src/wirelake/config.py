"""Load the settings: from a TOML file, then the environment, then the command line. Every key has a default.

`[listen] comet` in the file is `WIRELAKE_LISTEN_COMET` in the environment. A key that does not exist is an error that
names it, so that a misspelt setting does not silently keep its default.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, defstruct
from msgspec.structs import asdict

from wirelake.address import OFF, Address, parse_address
from wirelake.errors import InputError
from wirelake.key_source import state_key
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
    LAKE_HISTORY_DAYS,
    LOG_SEGMENTS_MIN,
    MIB,
    PIPELINE_BUCKETS_MAX,
    STATE_KEEP_S,
)
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.settings import ByteCount, Count, Seconds
from wirelake.roles import Role, check_roles

DEFAULT_FILE: Final = Path("wirelake.toml")
ENVIRONMENT_PREFIX: Final = "WIRELAKE_"
MASK: Final = "***"  # instead of a credential
_AZURE: Final = ("abfs", "abfss", "az")  # container@account stands where a host does
_STORES: Final = ("", "file", "s3", "s3a", "gs", *_AZURE)
_PUBLIC_OPTIONS: Final = (  # how the names of options end that are no credentials
    "endpoint",
    "endpoint_url",
    "region",
    "allow_http",
    "virtual_hosted_style_request",
    "conditional_put",
    "skip_signature",
    "account_name",
    "timeout",
)
_HOST: Final = "127.0.0.1"  # listeners are local unless the settings say otherwise
_SOME_ROLE: Final = "$.roles[...]"  # the path of any role in an error of msgspec
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_Struct = TypeVar("_Struct", bound=Struct)


class ListenSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of each listener, HOST:PORT or "off". Every transport of every installed protocol has a key."""

    http: str = f"{_HOST}:7080"  # API and console


class TlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in PEM format. With `cert` and `key`, every TCP and WebSocket listener uses TLS."""

    cert: str = ""  # the certificate, followed by any intermediate certificates
    key: str = ""  # its private key
    handshake_s: Seconds = GATEWAY_TLS_HANDSHAKE_S  # from an accepted connection to a finished handshake
    client_ca: str = ""  # clients need a certificate that this authority signed
    client_identity: Literal["", "cn", "san"] = (
        ""  # what in it must be the name of the identity that logs in: the common name, or an alternative name
    )


class AuthSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: bool = False  # True admits everybody, with any name


class LogSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fsync: bool = True  # False: a commit means "handed to the operating system", and a power failure may lose it
    segment_mb: Count = 64  # a segment of the log is sealed at this size
    keep_days: Count = 30  # older segments are removed, once every consumer has read them
    keep_bytes: ByteCount = 0  # the oldest segments are removed while the log is larger; 0: no limit
    disk_bytes_max: ByteCount = 0  # the same; if that is not enough, the log accepts no more records


class StateSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identities, devices, topics and values in state.db."""

    key: str = (
        ""  # that encrypts secrets in it: file:PATH, env:NAME or command:WORDS; "" generates the file `keys/state.key`
    )


class LakeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables of the pipeline."""

    url: str = ""  # where they are: s3://bucket/prefix, gs://…, abfss://…, file:///…; "" is the folder `lake` of `data`
    options: dict[str, str] = {}  # of the object store: aws_endpoint, aws_region, aws_access_key_id and others
    history_days: Count = LAKE_HISTORY_DAYS  # how long versions and replaced files are kept, for downstream streams


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections: Count = GATEWAY_CONNECTIONS_MAX  # open at once, of all listeners
    connections_per_address: Count = GATEWAY_CONNECTIONS_PER_ADDRESS_MAX  # open at once, of one address
    unauthenticated_share: Annotated[float, Meta(gt=0, le=1)] = (
        GATEWAY_UNAUTHENTICATED_SHARE  # of `connections`, for peers without a login; half of it for one address
    )
    unauthenticated_bytes: Count = (
        GATEWAY_UNAUTHENTICATED_BYTES_MAX  # memory of all peers without a login; the one that exceeds it is closed
    )
    unauthenticated_records: Count = (
        GATEWAY_UNAUTHENTICATED_RECORDS  # records of the log per second that they cause; half of it for one address
    )
    unauthenticated_log_bytes: Count = GATEWAY_UNAUTHENTICATED_LOG_BYTES  # the same in bytes of frames
    frames_per_second: Count = GATEWAY_FRAMES_PER_SECOND  # of one connection; beyond this, it is read more slowly
    bytes_per_second: Count = GATEWAY_BYTES_PER_SECOND  # the same in bytes
    pending_bytes: Count = GATEWAY_PENDING_BYTES  # written to a connection and not read by it; beyond this, it is slow
    unread_bytes: Count = GATEWAY_STALLED_BYTES_MAX  # of all slow connections; beyond this, the largest are closed
    stall_s: Seconds = GATEWAY_STALL_S  # for a slow connection to read half of pending_bytes; then it is closed
    failed_logins: Count = GATEWAY_FAILED_LOGINS_MAX  # of one name from one address; beyond this, responses are delayed


class BrokerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slow: Literal["cut", "conflate"] = "cut"  # a slow subscriber of a live topic is closed, or gets the newest only
    resend_s: Seconds = BROKER_RESEND_S  # after which an unacked notification is sent again
    implicit_ack_s: Seconds = BROKER_IMPLICIT_ACK_S  # after which what a silent subscriber without acks got is acked
    call_s: Seconds = BROKER_CALL_S  # timeout of a request to a service that names none
    expire_s: Seconds = STATE_KEEP_S  # after which an unacked notification expires
    devices_topic: str = (
        "@devices"  # reports of devices are published on this, a slash and the serial; "" switches it off
    )


class FetchSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of clients that the gateway fetches by HTTP."""

    allow: tuple[str, ...] = ()  # base URLs of what may be fetched; private addresses must be written out
    timeout_s: Seconds = FETCH_S  # for one request, with its wait and its redirects
    bytes_max: Count = FETCH_BYTES_MAX  # body of a response
    open_max: Count = FETCH_OPEN_MAX  # requests at once
    redirects_max: Annotated[int, Meta(ge=0)] = FETCH_REDIRECTS_MAX  # each is checked against `allow`
    ca: str = ""  # trusted authorities, a file in PEM format; those of the system if empty


class HttpSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP API and the console."""

    hosts: tuple[str, ...] = ()  # names of this gateway besides localhost, for requests without a token
    metrics: Literal["loopback", "token", "open"] = (
        "loopback"  # when /metrics needs no token: if `listen.http` is on loopback; "token": never; "open": always
    )


class PipelineSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Spark job that fills the tables."""

    buckets: Annotated[int, Meta(ge=0, le=PIPELINE_BUCKETS_MAX)] = (
        0  # parts into which calls, commands, deliveries and sessions are divided, one task each; 0: one for each core
    )


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. What `load` and `default_settings` return also has a section for each protocol."""

    data: str = "data"  # the data folder
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    auth: AuthSection = AuthSection()
    log: LogSection = LogSection()
    state: StateSection = StateSection()
    lake: LakeSection = LakeSection()
    limits: LimitsSection = LimitsSection()
    broker: BrokerSection = BrokerSection()
    fetch: FetchSection = FetchSection()
    http: HttpSection = HttpSection()
    pipeline: PipelineSection = PipelineSection()
    roles: dict[str, Role] = {}  # by name: what identities with this role may do, besides the built-in roles

    def section(self, protocol: Protocol) -> Any:
        """Return the settings of a protocol, an instance of its own `Settings`."""
        return getattr(self, protocol.name)

    def address(self, key: str) -> Address | None:
        """Return the address of a listener, or None for "off"."""
        return parse_address(getattr(self.listen, key), f"listen.{key}")


@registry.cached_until_refresh
def settings_type() -> type[Settings]:
    """Return `Settings` with the listeners and sections of all installed protocols."""
    installed = registry.all_protocols()
    addresses = {
        transport.setting: f"{_HOST}:{transport.port}" if protocol.name in registry.BUILT_IN else OFF
        for protocol in installed
        for transport in protocol.transports
        if protocol.server_session is not None
    }
    listen = _extend(ListenSection, {key: (str, address) for key, address in addresses.items()})
    sections = {protocol.name: (protocol.settings, protocol.settings()) for protocol in installed}
    return _extend(Settings, {"listen": (listen, listen()), **sections})


def _extend(base: type[_Struct], fields: dict[str, tuple[type, Any]]) -> type[_Struct]:
    extended = [(name, *rest) for name, rest in fields.items()]
    made = defstruct(
        base.__name__, extended, bases=(base,), module=__name__, frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return cast(type[_Struct], made)


def default_settings() -> Settings:
    """Return the settings if nothing is set."""
    return settings_type()()


def load(
    file: Path | None = None, data_folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings in force. Without `file`, read wirelake.toml if it exists."""
    values: dict[str, Any] = {}
    path = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if path is not None:
        values = _read(path)
        _convert(values, str(path))  # reports an error in the file as one of the file
    _merge(values, os.environ if environment is None else environment)
    if data_folder is not None:
        values["data"] = str(data_folder)
    settings = _convert(values, "the environment")
    for name in settings.listen.__struct_fields__:
        settings.address(name)
    if bool(settings.tls.cert) != bool(settings.tls.key):
        raise InputError("settings: tls.cert and tls.key go together")
    if settings.tls.client_identity and not settings.tls.client_ca:
        raise InputError("settings: tls.client_identity needs tls.client_ca, and with it tls.cert and tls.key")
    check_log(settings.log)
    check_lake(settings.lake)
    check_state(settings.state)
    check_roles(settings.roles)
    return settings


def check_log(log: LogSection) -> None:
    """Raise InputError if the sizes contradict each other."""
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


def check_state(state: StateSection) -> None:
    """Raise InputError if the key is not a source of keys. Whether there is a key is checked when it is needed."""
    try:
        state_key(state.key, Path())
    except InputError as error:
        raise InputError(f"settings: {error}") from error


def check_lake(lake: LakeSection) -> None:
    """Raise InputError for a URL that no store has."""
    parts = urlsplit(lake.url)
    if parts.scheme not in _STORES or (parts.scheme and not (parts.netloc or parts.scheme == "file")):
        names = ", ".join(f"{name}://" for name in _STORES if name)
        raise InputError(f"settings: lake.url = {lake.url} is no URL that begins with one of {names}")
    if "@" in parts.netloc and parts.scheme not in _AZURE:
        raise InputError("settings: lake.url has credentials: set them in [lake.options], or in the environment")


def public_values(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values, without the credentials of the object store."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    options = values["lake"]["options"]
    values["lake"]["options"] = {
        name: value if name.endswith(_PUBLIC_OPTIONS) else MASK for name, value in options.items()
    }
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"settings: {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"settings: {path}: {error}") from error


def _convert(values: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(values, settings_type(), strict=False)
    except msgspec.ValidationError as error:
        text = str(error).replace(_SOME_ROLE, f"$.roles.{_invalid_role(values)}")
        raise InputError(f"settings: {source}: {_explain(text)}") from error


def _invalid_role(values: dict[str, Any]) -> str:
    """Return the name of the first role that is not valid: msgspec does not name keys of a dict."""
    roles = values.get("roles")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        try:
            msgspec.convert(role, Role, strict=False)
        except msgspec.ValidationError:
            return str(name)
    return "…"


def _explain(text: str) -> str:
    """Reword an error of msgspec (`Expected … - at `$.section.key``, unknown fields) with the key as in the file."""
    problem, _, path = text.partition(" - at `")
    where = path.removesuffix("`").removeprefix("$").removeprefix(".")
    if (unknown := _UNKNOWN.fullmatch(problem)) is None:
        return f"{where}: {problem[0].lower()}{problem[1:]}" if where else text
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
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        table[key] = _parse_text(variable, text, _default(known[variable]))


def _parse_text(variable: str, text: str, default: object) -> Any:
    if isinstance(default, tuple):
        return _parse_list(variable, text)
    return _parse_table(variable, text) if isinstance(default, dict) else text


def _parse_table(variable: str, text: str) -> Any:
    """Parse a table in a variable: name=value separated by commas, or JSON if that is not enough."""
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InputError(f"settings: {variable} starts like JSON, but is not valid: {error}") from error
    pairs = [word.partition("=") for word in text.split(",") if word.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise InputError(f"settings: {variable} is not of the form name=value,name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse_list(variable: str, text: str) -> Any:
    """Parse a list in a variable: words separated by commas, or JSON if that is not enough."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"settings: {variable} starts like JSON, but is not valid: {error}") from error


def _default(path: tuple[str, ...]) -> object:
    return reduce(getattr, path, default_settings())


def _keys() -> dict[str, tuple[str, ...]]:
    """Return the path of each setting by its environment variable."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, default in asdict(default_settings()).items():
        inner = default.__struct_fields__ if isinstance(default, Struct) else ()
        paths: list[tuple[str, ...]] = [(name, key) for key in inner] or [(name,)]
        for path in paths:
            keys[ENVIRONMENT_PREFIX + "_".join(path).upper()] = path
    return keys
