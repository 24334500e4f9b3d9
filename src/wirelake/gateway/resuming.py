"""magline sessions: for a while after its connection is gone, the sid alone brings identity and subscriptions back.

A session whose old connection is still open, because nobody noticed yet that the line is dead, moves to the new one.
"""

import logging
from typing import TYPE_CHECKING, Final

from wirelake.broker.services import failed
from wirelake.errors import StorageError
from wirelake.gateway.connection import Connection
from wirelake.message import Kind, Message
from wirelake.protocols.magline.opcodes import ErrorNumber
from wirelake.protocols.magline.server import ServerSession
from wirelake.protocols.session import Closing
from wirelake.state.sessions import Session as Kept

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

RESUME: Final = "resume"
_OVER: Final = frozenset({"fin_normal", "replaced"})  # closings after which nobody comes back for the session

_log = logging.getLogger(__name__)


class Resuming:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._live: dict[bytes, Connection] = {}  # by sid
        self._sids: dict[str, bytes] = {}  # by the connection's id: its session may have begun anew meanwhile

    def logged_in(self, connection: Connection) -> None:
        if isinstance(connection.session, ServerSession):
            sid = connection.session.sid
            self._live[sid] = connection
            self._sids[connection.id] = sid

    def closed(self, connection: Connection, closing: Closing) -> None:
        """Keep what a resume would need, if it was logged in."""
        session, had_one = connection.session, self._forget(connection)
        over = closing.code in _OVER or self._gateway.stopping
        if had_one and not over and isinstance(session, ServerSession):
            self._keep(connection, session)

    def start_anew(self, connection: Connection) -> None:
        """A SYN without a sid on a live connection: whoever it is, it is nobody until it logs in."""
        gateway = self._gateway
        self._forget(connection)
        gateway.broker.left(connection)
        gateway.recorder.event(connection, "logout", {})
        connection.identity = ""
        gateway.flush_soon()

    def resume(self, connection: Connection, message: Message) -> None:
        gateway = self._gateway
        sid = bytes.fromhex(message.fields["sid"])
        self._take_from_live(sid)
        kept = gateway.state.sessions.find(sid, gateway.now_ms())
        if kept is None or kept.protocol != connection.protocol:
            gateway.recorder.event(connection, "refuse", {"reason": "unknown_session"})
            connection.say(failed(message.correlation, "no such session", ErrorNumber.UNKNOWN_SESSION))
            return
        gateway.state.sessions.remove(sid)
        connection.identity = kept.identity
        gateway.recorder.event(connection, "login", {"resumed": True})
        connection.say(Message(kind=Kind.RESPONSE, correlation=message.correlation))
        self.logged_in(connection)
        for topic in kept.topics:
            gateway.broker.rejoin(connection, topic)
        gateway.flush_soon()

    def _take_from_live(self, sid: bytes) -> None:
        connection = self._live.get(sid)
        if connection is None or not isinstance(connection.session, ServerSession):
            return
        self._forget(connection)
        self._keep(connection, connection.session)
        self._gateway.broker.left(connection)
        connection.end(Closing("replaced", "the session was taken up by another connection"))

    def _forget(self, connection: Connection) -> bool:
        """Whether it had a session."""
        sid = self._sids.pop(connection.id, None)
        return sid is not None and self._live.pop(sid, None) is not None

    def _keep(self, connection: Connection, session: ServerSession) -> None:
        gateway = self._gateway
        until_ms = gateway.now_ms() + int(session.settings.resume_s * 1000)
        topics = gateway.broker.topics_of(connection)
        try:
            gateway.state.sessions.save(
                Kept(session.sid, connection.protocol, connection.identity, until_ms, tuple(topics))
            )
        except StorageError as error:  # then it logs in anew, and its durable subscriptions are its identity's
            _log.warning("session %s cannot be kept for a resume: %s", connection.id, error)
