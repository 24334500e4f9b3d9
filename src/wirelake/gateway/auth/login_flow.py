"""Answer logins: check the credentials, record the outcome, and replace an older session."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from wirelake.broker.broker import Broker
from wirelake.broker.services import failed
from wirelake.config import Settings
from wirelake.errors import StorageError
from wirelake.gateway.auth.admission import host_of
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.auth.client_certificates import certificate_name, certified_names
from wirelake.gateway.auth.logins import Logins, Verdict
from wirelake.gateway.auth.resumption import SessionResumption
from wirelake.gateway.metrics import Counters
from wirelake.gateway.scheduling import Spawn
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import GATEWAY_LOGIN_DELAY_MAX_S
from wirelake.message import Credentials, FailureCode, Kind, Message
from wirelake.protocols import registry
from wirelake.protocols.protocol import Refusal, SecondSession
from wirelake.protocols.session import LOGIN, Closing

_log = logging.getLogger(__name__)

# An unknown name and a wrong token get the same answer: peers must not find out which names exist.
REFUSALS: Final = {
    "unknown": (Refusal.INVALID, "invalid token"),
    "wrong_token": (Refusal.INVALID, "invalid token"),
    "expired": (Refusal.INVALID, "invalid token"),
    "key_lost": (Refusal.INVALID, "invalid token"),
    "certificate": (Refusal.INVALID, "invalid token"),
    "unknown_device": (Refusal.INVALID, "unknown device"),
    "busy": (Refusal.BUSY, "too many logins at once; try again"),
    "connected": (Refusal.CONNECTED, "this client is connected already"),
}


class LoginFlow:
    """Answer the logins of all connections."""

    def __init__(
        self,
        settings: Settings,
        logins: Logins,
        resumption: SessionResumption,
        broker: Broker,
        audit: AuditLog,
        counters: Counters,
        connections: Mapping[str, Connection],
        flush_soon: Callable[[], None],
        spawn: Spawn,
        now_s: Callable[[], float],
    ) -> None:
        """`connections` are the open ones by id."""
        self._settings = settings
        self._logins = logins
        self._resumption = resumption
        self._broker = broker
        self._audit = audit
        self._counters = counters
        self._connections = connections
        self._flush_soon = flush_soon
        self._spawn = spawn
        self._now_s = now_s
        self._checks: dict[str, set[asyncio.Task[None]]] = {}  # under way, by connection
        self._single: dict[tuple[str, str], Connection] = {}  # of protocols with one session for an identity

    def apply(self, settings: Settings) -> None:
        """Use these settings for logins from now on."""
        self._settings = settings

    def start(self, connection: Connection, message: Message, credentials: Credentials) -> None:
        """Answer a login: at once if the credentials need no slow check, else when it is done."""
        verdict = self._logins.known(credentials, certified_names(self._settings.tls, connection.certificate))
        if verdict is not None:
            self._decide(connection, message, credentials, verdict)
        else:
            checks = self._checks.setdefault(connection.id, set())
            checks.add(check := self._spawn(self._check(connection, message, credentials)))
            check.add_done_callback(checks.discard)

    def on_close(self, connection: Connection) -> None:
        """Forget a connection, and cancel its checks: nobody waits for their result."""
        for check in self._checks.pop(connection.id, ()):
            check.cancel()
        key = (connection.protocol, connection.identity)
        if self._single.get(key) is connection:
            del self._single[key]

    async def _check(self, connection: Connection, message: Message, credentials: Credentials) -> None:
        now_s = self._now_s()
        left_s = connection.session.deadlines.get(LOGIN, now_s + GATEWAY_LOGIN_DELAY_MAX_S) - now_s
        names = certified_names(self._settings.tls, connection.certificate)
        try:
            verdict = await self._logins.check(credentials, host_of(connection.address), max(left_s, 0.0), names)
        except StorageError as error:
            connection.on_storage_error(error)
            return
        self._decide(connection, message, credentials, verdict)

    def _decide(self, connection: Connection, message: Message, credentials: Credentials, verdict: Verdict) -> None:
        """Answer a login. If the outcome cannot be recorded, close the connection and change nothing else."""
        if connection.id not in self._connections:
            return  # closed during the check
        identity, reason = verdict.identity, verdict.reason
        second_session = self._second_session(connection)
        if identity and second_session == "refuse" and self._is_connected(connection, identity):
            reason = "connected"
        before = connection.identity
        try:
            if reason:
                self._audit.login_refused(connection, reason, user=credentials.user)
            else:
                connection.identity = identity
                certificate = certificate_name(connection.certificate)
                self._audit.login(connection, certificate=certificate, token_id=verdict.token)
        except StorageError as error:
            connection.identity = before
            connection.on_storage_error(error)
            return
        if reason:
            self._refuse(connection, message, reason)
        else:
            connection.token_id = verdict.token
            self._accept(connection, message, second_session)

    def _refuse(self, connection: Connection, message: Message, reason: str) -> None:
        self._counters.logins[connection.protocol, reason] += 1
        extra = {"session": connection.id, "address": connection.address, "reason": reason}
        _log.info("login refused", extra=extra)
        refusal, text = REFUSALS[reason]
        codes = registry.get(connection.protocol).refusal_codes
        default = FailureCode.BUSY if refusal is Refusal.BUSY else 0
        connection.send(failed(message.correlation, text, codes.get(refusal, default)))

    def _accept(self, connection: Connection, message: Message, second_session: SecondSession) -> None:
        self._counters.logins[connection.protocol, "accepted"] += 1
        if second_session != "allow":
            self._replace(connection)
        self._resumption.on_login(connection)
        connection.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
        self._broker.on_login(connection)
        self._flush_soon()

    def _second_session(self, connection: Connection) -> SecondSession:
        """Return what the protocol does with a second session of one identity."""
        protocol = registry.get(connection.protocol)
        return protocol.second_session(self._settings.section(protocol))

    def _is_connected(self, connection: Connection, identity: str) -> bool:
        other = self._single.get((connection.protocol, identity))
        return other is not None and other.id in self._connections

    def _replace(self, connection: Connection) -> None:
        """Close the older session of an identity that may have one only."""
        key = (connection.protocol, connection.identity)
        other = self._single.get(key)
        self._single[key] = connection
        if other is not None and other.id in self._connections:
            self._broker.on_close(other)
            other.close(Closing("replaced", "this client connected elsewhere"))
