"""Resume sessions, where their protocol can: a client that lost its connection goes on for a while as who it was.

A sid goes over the line in clear, so it only says which session is meant. A proof, made with a secret of the old
session, says that the session is the client's own. Nothing happens to the old session before the proof was
found to hold. Only then a session whose old connection is still open, because nobody noticed yet that the line is dead,
moves to the new one. Each sid serves once: who resumes gets a new one.
"""

import logging
import os
from typing import TYPE_CHECKING, Final

from wirelake.broker.services import failed
from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.transport.connection import Connection
from wirelake.message import Kind, Message, Op, control_op
from wirelake.protocols import registry
from wirelake.protocols.protocol import Refusal
from wirelake.protocols.session import REKEY, RESUME, RESUME_SECRET_BYTES, Closing, Resumption
from wirelake.state.sessions import ResumableSession as Kept

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_OVER: Final = frozenset({"fin_normal", "replaced"})  # closings after which nobody comes back for the session

_log = logging.getLogger(__name__)


class SessionResumption:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._live: dict[bytes, Connection] = {}  # by sid
        self._sids: dict[str, bytes] = {}  # by the connection's id: its session may have begun anew meanwhile
        self._no_secret = os.urandom(RESUME_SECRET_BYTES)  # so that an unknown sid takes as long as a wrong proof

    def handle(self, connection: Connection, message: Message) -> bool:
        """Take what is about resuming sessions; return whether it was."""
        if connection.session.resumption is None:
            return False
        if control_op(message) is Op.LOGOUT:
            self._start_anew(connection)
        elif message.kind is Kind.CONTROL and message.name == RESUME:
            self._resume(connection, message)
        elif message.kind is Kind.CONTROL and message.name == REKEY:
            if self._forget(connection):  # else it is not logged in yet
                self.logged_in(connection)
        else:
            return False
        return True

    def logged_in(self, connection: Connection) -> None:
        """It has an identity; and where its protocol can resume, its session can be."""
        if connection.slot is not None:
            connection.slot.authenticate()
        resumption = connection.session.resumption
        if resumption is not None:
            self._live[resumption.sid] = connection
            self._sids[connection.id] = resumption.sid

    def closed(self, connection: Connection, closing: Closing) -> None:
        """Keep what a resume would need, if it was logged in."""
        resumption, had_one = connection.session.resumption, self._forget(connection)
        over = closing.code in _OVER or self._gateway.stopping
        if had_one and not over and resumption is not None:
            try:
                self._gateway.state.sessions.save(self._to_keep(connection, resumption))
            except StorageError as error:  # then it logs in anew, and its durable subscriptions are its identity's
                _log.warning("cannot store session %s for resumption: %s", connection.id, error)

    def _start_anew(self, connection: Connection) -> None:
        """A SYN without a sid on a live connection: whoever it is, it is nobody until it logs in."""
        gateway = self._gateway
        gateway.recorder.event(connection, "logout", {})  # first: if it is refused, nothing has changed
        self._forget(connection)
        gateway.broker.on_close(connection)
        connection.identity = ""
        if connection.slot is not None:
            connection.slot.revoke()
        gateway.flush_soon()

    def _resume(self, connection: Connection, message: Message) -> None:
        gateway, session = self._gateway, connection.session
        sid = bytes.fromhex(message.fields["sid"])
        live = self._live.get(sid)
        kept = self._find(sid, live, connection.protocol)
        if not session.may_resume(self._no_secret if kept is None else kept.resume_secret) or kept is None:
            reason = "unknown_session" if kept is None else "wrong_proof"
            gateway.counters.logins[connection.protocol, reason] += 1
            gateway.recorder.event(connection, "refuse", {"reason": reason})
            about = {"session": connection.id, "address": connection.address, "reason": reason}
            _log.info("resume refused", extra=about)
            self._refuse(connection, message)  # in the same words for both
            return
        before, connection.identity = connection.identity, kept.identity
        try:
            gateway.recorder.event(connection, "login", {"resumed": True})
            used_up = gateway.state.sessions.remove(sid)
        except StorageError:  # the session waits on for whoever comes next
            connection.identity = before
            raise
        if live is not None:
            self._forget(live)
            gateway.broker.on_close(live)
            live.close(Closing("replaced", "the session was resumed by another connection"))
        used_up.add_done_callback(lambda commit: self._resumed(connection, message, kept, commit))

    def _resumed(self, connection: Connection, message: Message, kept: Kept, used_up: Commit) -> None:
        """The old sid is used up for good: not even a crash lets the same SYN be played again."""
        gateway = self._gateway
        if connection.closing is not None or connection.id not in gateway.connections:
            return
        if used_up.error is not None:
            connection.identity = ""
            self._refuse(connection, message)
            return
        connection.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
        self.logged_in(connection)
        for topic in kept.topics:
            gateway.broker.rejoin(connection, topic)
        gateway.flush_soon()

    def _refuse(self, connection: Connection, message: Message) -> None:
        code = registry.get(connection.protocol).refusal_codes.get(Refusal.NO_SESSION, 0)
        connection.send(failed(message.correlation, "no such session", code))

    def _find(self, sid: bytes, live: Connection | None, protocol: str) -> Kept | None:
        """What is known of the session; changes nothing."""
        resumption = None if live is None else live.session.resumption
        if live is not None and resumption is not None:
            return self._to_keep(live, resumption)
        kept = self._gateway.state.sessions.find(sid, self._gateway.now_ms())
        return kept if kept is not None and kept.protocol == protocol else None

    def _forget(self, connection: Connection) -> bool:
        """Whether it had a session."""
        sid = self._sids.pop(connection.id, None)
        return sid is not None and self._live.pop(sid, None) is not None

    def _to_keep(self, connection: Connection, resumption: Resumption) -> Kept:
        gateway = self._gateway
        until_ms = gateway.now_ms() + int(resumption.valid_s * 1000)
        topics = tuple(gateway.broker.topics_of(connection))
        return Kept(
            resumption.sid, connection.protocol, connection.identity, until_ms, topics, resume_secret=resumption.secret
        )
