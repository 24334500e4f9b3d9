"""Resume sessions of protocols that can: a client that lost its connection continues its session on a new one.

A sid crosses the network in clear, so it only identifies the session. A proof, made with a secret of the old session,
shows that the session is the client's own; nothing happens to the old session before the proof is verified. If the old
connection is still open, because nobody has noticed yet that it is dead, the session then moves to the new one. A sid
is valid once: a resumed session gets a new one. A session can be resumed as long as the token of its login is valid.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from wirelake.broker.broker import Broker
from wirelake.broker.services import failed
from wirelake.commit import Commit
from wirelake.config import Settings
from wirelake.errors import StorageError
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.auth.client_certificates import certificate_name, certified_names
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.metrics import Counters
from wirelake.gateway.transport.connection import Connection
from wirelake.message import Kind, Message, Op, control_op
from wirelake.protocols import registry
from wirelake.protocols.protocol import Refusal
from wirelake.protocols.session import ACCESS_DENIED, REKEY, RESUME, RESUME_SECRET_BYTES, Closing, Resumption
from wirelake.state.sessions import ResumableSession, Sessions

_FINAL_CLOSINGS: Final = frozenset({"fin_normal", "replaced", ACCESS_DENIED})  # after these nobody resumes the session

_log = logging.getLogger(__name__)


class SessionResumption:
    """Store the sessions of lost connections, and give them to the connections that resume them."""

    def __init__(
        self,
        sessions: Sessions,
        logins: Logins,
        broker: Broker,
        audit: AuditLog,
        counters: Counters,
        connections: Mapping[str, Connection],
        flush_soon: Callable[[], None],
        now_ms: Callable[[], int],
        is_stopping: Callable[[], bool],
        settings: Callable[[], Settings],
    ) -> None:
        """`connections` are the open ones by id. While `is_stopping` returns True, no session is stored."""
        self._sessions = sessions
        self._logins = logins
        self._broker = broker
        self._audit = audit
        self._counters = counters
        self._connections = connections
        self._flush_soon = flush_soon
        self._now_ms = now_ms
        self._is_stopping = is_stopping
        self._settings = settings
        self._live: dict[bytes, Connection] = {}  # by sid
        self._sids: dict[str, bytes] = {}  # by the connection's id: its session may have started anew meanwhile
        self._no_secret = os.urandom(RESUME_SECRET_BYTES)  # so that an unknown sid takes as long as a wrong proof

    def on_message(self, connection: Connection, message: Message) -> bool:
        """Handle a message about resumption. Return whether it was one."""
        if connection.session.resumption is None:
            return False
        if control_op(message) is Op.LOGOUT:
            self._start_anew(connection)
        elif message.kind is Kind.CONTROL and message.name == RESUME:
            self._resume(connection, message)
        elif message.kind is Kind.CONTROL and message.name == REKEY:
            if self._forget(connection):  # else it is not logged in yet
                self.on_login(connection)
        else:
            return False
        return True

    def on_login(self, connection: Connection) -> None:
        """Make the session of a connection that logged in resumable, if its protocol can do that."""
        if connection.slot is not None:
            connection.slot.authenticate()
        resumption = connection.session.resumption
        if resumption is not None:
            self._live[resumption.sid] = connection
            self._sids[connection.id] = resumption.sid

    def on_close(self, connection: Connection, closing: Closing) -> None:
        """Store the session for a client that may resume it, if it was logged in."""
        resumption, was_live = connection.session.resumption, self._forget(connection)
        is_final = closing.code in _FINAL_CLOSINGS or self._is_stopping()
        if was_live and not is_final and resumption is not None:
            try:
                self._sessions.save(self._to_store(connection, resumption))
            except StorageError as error:  # the client has to log in; its identity keeps the durable subscriptions
                _log.warning("cannot store session %s for resumption: %s", connection.id, error)

    def _start_anew(self, connection: Connection) -> None:
        """Log out a live connection whose client starts a new session on it."""
        self._audit.logout(connection)  # first: if the log refuses it, nothing has changed
        self._forget(connection)
        self._broker.on_close(connection)
        connection.identity = connection.token_id = ""
        if connection.slot is not None:
            connection.slot.revoke()
        self._flush_soon()

    def _resume(self, connection: Connection, message: Message) -> None:
        session = connection.session
        sid = bytes.fromhex(message.fields["sid"])
        live = self._live.get(sid)
        stored = self._find(sid, live, connection.protocol)
        is_proven = session.may_resume(self._no_secret if stored is None else stored.resume_secret)
        reason = "unknown_session" if stored is None else self._refusal(connection, stored, is_proven=is_proven)
        if stored is None or reason:
            self._counters.logins[connection.protocol, reason] += 1
            self._audit.login_refused(connection, reason)
            extra = {"session": connection.id, "address": connection.address, "reason": reason}
            _log.info("resume refused", extra=extra)
            self._refuse(connection, message)  # with the same text for all of them
            return
        before, connection.identity = connection.identity, stored.identity
        try:
            self._audit.login(connection, resumed=True, certificate=certificate_name(connection.certificate))
            removed = self._sessions.remove(sid)
        except StorageError:  # the session stays resumable
            connection.identity = before
            raise
        if live is not None:
            self._forget(live)
            self._broker.on_close(live)
            live.close(Closing("replaced", "the session was resumed by another connection"))
        connection.token_id = stored.token
        removed.add_done_callback(lambda commit: self._on_removed(connection, message, stored, commit))

    def _on_removed(self, connection: Connection, message: Message, stored: ResumableSession, removed: Commit) -> None:
        """Continue the session once its old sid is gone for good: not even a crash lets anybody replay the request."""
        if connection.closing is not None or connection.id not in self._connections:
            return
        if removed.error is not None:
            connection.identity = connection.token_id = ""
            self._refuse(connection, message)
            return
        connection.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
        self.on_login(connection)
        for topic in stored.topics:
            self._broker.rejoin(connection, topic)
        self._flush_soon()

    def _refusal(self, connection: Connection, stored: ResumableSession, *, is_proven: bool) -> str:
        """Return why a connection may not resume a session; empty if it may."""
        names = certified_names(self._settings().tls, connection.certificate)
        if not is_proven:
            return "wrong_proof"
        if names is not None and stored.identity not in names:
            return "certificate"
        return "" if self._logins.is_token_valid(stored.identity, stored.token) else "expired"

    def _refuse(self, connection: Connection, message: Message) -> None:
        code = registry.get(connection.protocol).refusal_codes.get(Refusal.NO_SESSION, 0)
        connection.send(failed(message.correlation, "no such session", code))

    def _find(self, sid: bytes, live: Connection | None, protocol: str) -> ResumableSession | None:
        """Return the session of this sid, live or stored."""
        resumption = None if live is None else live.session.resumption
        if live is not None and resumption is not None:
            return self._to_store(live, resumption)
        stored = self._sessions.find(sid, self._now_ms())
        return stored if stored is not None and stored.protocol == protocol else None

    def _forget(self, connection: Connection) -> bool:
        """Remove the connection's live session. Return whether it had one."""
        sid = self._sids.pop(connection.id, None)
        return sid is not None and self._live.pop(sid, None) is not None

    def _to_store(self, connection: Connection, resumption: Resumption) -> ResumableSession:
        return ResumableSession(
            resumption.sid,
            connection.protocol,
            connection.identity,
            self._now_ms() + int(resumption.valid_s * 1000),
            tuple(self._broker.topics_of(connection)),
            resume_secret=resumption.secret,
            token=connection.token_id,
        )
