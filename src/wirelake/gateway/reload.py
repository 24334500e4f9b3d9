"""Replace the settings of a running gateway: apply what can change, and report what needs a restart.

The limits of connections and the settings of protocols apply to connections that are opened from now on.
"""

import ssl
from typing import Any, Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from wirelake.broker.broker import Broker
from wirelake.config import LogSection, Settings, check_log
from wirelake.gateway.auth.admission import Admission
from wirelake.gateway.auth.login_flow import LoginFlow
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.gateway.builtin_services import BuiltinServices
from wirelake.gateway.fetch.fetcher import Fetcher
from wirelake.gateway.transport.stalls import StallMonitor
from wirelake.gateway.transport.tls import load_certificates, tls_context
from wirelake.gateway.upstream.upstreams import Upstreams
from wirelake.lake.row_filters import check_row_patterns
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import RetentionLimits
from wirelake.state.store import Sweeper

_FIXED: Final = ("data", "listen", "lake", "state")  # cannot change while the gateway runs
_CREDENTIALS: Final = "lake.options."  # whose values are not shown
_LOG_FIXED: Final = ("fsync", "segment_mb")  # neither can these of the log


class Reloaded(Struct):
    """List the changed settings by name, with the old and the new value."""

    applied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # need a restart
    tls: bool = False  # certificate and key were read again


class Reloader:
    """Apply new settings to the parts that hold settings of their own."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        log: SegmentLog,
        sweeper: Sweeper,
        admission: Admission,
        stalls: StallMonitor,
        logins: Logins,
        login_flow: LoginFlow,
        broker: Broker,
        builtin_services: BuiltinServices,
        upstreams: Upstreams,
        fetcher: Fetcher,
        roles: RoleEnforcement,
    ) -> None:
        self._tls = tls
        self._log = log
        self._sweeper = sweeper
        self._admission = admission
        self._stalls = stalls
        self._logins = logins
        self._login_flow = login_flow
        self._broker = broker
        self._builtin_services = builtin_services
        self._upstreams = upstreams
        self._fetcher = fetcher
        self._roles = roles

    def reload(self, old: Settings, new: Settings) -> tuple[Settings, Reloaded]:
        """Apply new settings. Return the settings in force then, and what changed.

        Raise InputError if the new settings cannot be used; nothing has changed then.
        """
        self._upstreams.check(new)
        self._fetcher.check(new.fetch)
        check_row_patterns(new.roles)
        log = replace(new.log, **{name: getattr(old.log, name) for name in _LOG_FIXED})
        check_log(log)
        fixed = {*_FIXED, *(f"log.{name}" for name in _LOG_FIXED)}
        if bool(old.tls.cert) != bool(new.tls.cert) or (old.tls.client_ca and old.tls.client_ca != new.tls.client_ca):
            fixed.add("tls")  # until a restart a listener uses TLS or not, and trusts the same CA
        reloaded = Reloaded()
        for name, change in _changes(to_builtins(old), to_builtins(new)):
            is_fixed = name in fixed or name.partition(".")[0] in fixed
            (reloaded.kept if is_fixed else reloaded.applied).append(f"{name}: {change}")
        if self._tls is not None and "tls" not in fixed:
            tls_context(new)  # fails if the files do not belong together, before the old ones are replaced
            load_certificates(self._tls, new)
            reloaded.tls = True
        sections = fixed & set(new.__struct_fields__)
        settings = replace(new, log=log, **{name: getattr(old, name) for name in sections})
        self._apply(settings)
        return settings, reloaded

    def _apply(self, settings: Settings) -> None:
        self._admission.set_limits(settings.limits)
        self._stalls.stall_s = settings.limits.stall_s
        self._stalls.bytes_max = settings.limits.unread_bytes
        self._logins.apply(settings)
        self._login_flow.apply(settings)
        self._broker.slow_consumers.conflate = settings.broker.slow == "conflate"
        self._broker.call_s = settings.broker.call_s
        self._broker.durable.resend_s = settings.broker.resend_s
        self._broker.durable.implicit_acks.implicit_ack_s = settings.broker.implicit_ack_s
        self._broker.devices.topic = settings.broker.devices_topic
        self._roles.apply(settings.roles)
        self._sweeper.keep_ms = int(settings.broker.expire_s * 1000)
        self._log.set_retention_limits(_retention_limits(settings.log))
        self._builtin_services.apply(settings)
        self._upstreams.apply(settings)
        self._fetcher.apply(settings.fetch)


def _retention_limits(log: LogSection) -> RetentionLimits:
    return RetentionLimits(float(log.keep_days), log.keep_bytes or None, log.disk_bytes_max or None)


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return the names of changed settings, and how each changed."""
    changes: list[tuple[str, str]] = []
    for name in {**old, **new}:
        before, now = old.get(name), new.get(name)
        if prefix == _CREDENTIALS and before != now:
            changes.append((f"{prefix}{name}", "changed"))
        elif isinstance(before, dict) and isinstance(now, dict):
            changes += _changes(before, now, f"{prefix}{name}.")
        elif before != now:
            changes.append((f"{prefix}{name}", f"{_shown(before)} → {_shown(now)}"))
    return changes


def _shown(value: Any) -> Any:
    """Return a value as it may be shown: of tables only the names, because they may contain passwords."""
    if not isinstance(value, list | tuple):
        return value
    return [each.get("name") if isinstance(each, dict) else each for each in value]
