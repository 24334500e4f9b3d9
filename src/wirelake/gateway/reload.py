"""New settings for a gateway that runs: what can change does, the rest is named.

Limits of a connection, and what a protocol's sessions are made with, hold for those that come from now on.
"""

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from wirelake.config import Settings, check_log
from wirelake.gateway.transport.tls import load_files, tls_context
from wirelake.log.segments.settings import RetentionLimits

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_FIXED: Final = ("data", "listen")  # opened at the start, and open until the end
_LOG_FIXED: Final = ("fsync", "segment_mb")  # the same, of the log


class Reloaded(Struct):
    """Settings by name, with the value before and the one in the file now."""

    applied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # take a restart
    tls: bool = False  # certificate and key were read again


def reload(gateway: "Gateway", new: Settings) -> Reloaded:
    """All of it, or nothing: InputError where the new settings cannot be used."""
    old = gateway.settings
    gateway.upstreams.check(new)
    gateway.fetcher.check(new.fetch)
    log = replace(new.log, **{name: getattr(old.log, name) for name in _LOG_FIXED})
    check_log(log)
    fixed = {*_FIXED, *(f"log.{name}" for name in _LOG_FIXED)}
    if bool(old.tls.cert) != bool(new.tls.cert) or (old.tls.client_ca and old.tls.client_ca != new.tls.client_ca):
        fixed.add("tls")  # a listener uses TLS or not, and trusts the same CA, until a restart
    reloaded = Reloaded()
    for name, change in _changes(to_builtins(old), to_builtins(new)):
        is_fixed = name in fixed or name.partition(".")[0] in fixed
        (reloaded.kept if is_fixed else reloaded.applied).append(f"{name}: {change}")
    if gateway.tls is not None and "tls" not in fixed:
        tls_context(new)  # whether the files go together is found out before the old ones are let go
        load_files(gateway.tls, new)
        reloaded.tls = True
    sections = fixed & set(new.__struct_fields__)
    gateway.settings = replace(new, log=log, **{name: getattr(old, name) for name in sections})
    _hand_on(gateway)
    return reloaded


def _hand_on(gateway: "Gateway") -> None:
    """To those who were given theirs at the start."""
    settings = gateway.settings
    gateway.admission.set_limits(settings.limits)
    gateway.stalls.stall_s = settings.limits.stall_s
    gateway.stalls.bytes_max = settings.limits.unread_bytes
    gateway.logins.failures.failed_max = settings.limits.failed_logins
    gateway.logins.open_to_all = settings.auth.open
    gateway.broker.live.conflate = settings.broker.slow == "conflate"
    gateway.broker.call_s = settings.broker.call_s
    gateway.broker.durable.resend_s = settings.broker.resend_s
    gateway.broker.durable.implicit_acks.implicit_ack_s = settings.broker.implicit_ack_s
    gateway.broker.devices_topic = settings.broker.devices_topic
    gateway.sweep.keep_ms = int(settings.broker.expire_s * 1000)
    log = settings.log
    gateway.log.set_retention_limits(
        RetentionLimits(float(log.keep_days), log.keep_bytes or None, log.disk_bytes_max or None)
    )
    gateway.builtin_services.apply()
    gateway.upstreams.apply(settings)
    gateway.fetcher.apply(settings.fetch)


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    changes: list[tuple[str, str]] = []
    for name, before in old.items():
        now = new[name]
        if isinstance(before, dict):
            changes += _changes(before, now, f"{prefix}{name}.")
        elif before != now:
            changes.append((f"{prefix}{name}", f"{_shown(before)} → {_shown(now)}"))
    return changes


def _shown(value: Any) -> Any:
    """What is told of a setting; of tables their names only, because there may be passwords in them."""
    if not isinstance(value, list | tuple):
        return value
    return [each.get("name") if isinstance(each, dict) else each for each in value]
