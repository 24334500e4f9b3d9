"""magline sessions that lost their connection: for a while the sid alone brings identity and subscriptions back."""

from typing import TYPE_CHECKING, Final

from wirelake.broker.services import failed
from wirelake.gateway.connection import Connection
from wirelake.message import Kind, Message
from wirelake.protocols.magline.opcodes import ErrorNumber
from wirelake.protocols.magline.server import ServerSession
from wirelake.state.sessions import Session as Kept

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

RESUME: Final = "resume"


def leave_behind(gateway: "Gateway", connection: Connection) -> None:
    """The connection is gone: keep what a resume would need, if it was logged in."""
    session = connection.session
    if not isinstance(session, ServerSession) or not connection.identity or gateway.stopping:
        return
    until_ms = gateway.now_ms() + int(session.settings.resume_s * 1000)
    topics = tuple(gateway.broker.durable.lag(connection))
    gateway.state.sessions.save(Kept(session.sid, connection.protocol, connection.identity, until_ms, topics))


def resume(gateway: "Gateway", connection: Connection, message: Message) -> None:
    sid = bytes.fromhex(message.fields["sid"])
    kept = gateway.state.sessions.find(sid, gateway.now_ms())
    if kept is None or kept.protocol != connection.protocol:
        gateway.recorder.event(connection, "refuse", {"reason": "unknown_session"})
        connection.say(failed(message.correlation, "no such session", ErrorNumber.UNKNOWN_SESSION))
        return
    gateway.state.sessions.remove(sid)
    connection.identity = kept.identity
    gateway.recorder.event(connection, "login", {"resumed": True})
    connection.say(Message(kind=Kind.RESPONSE, correlation=message.correlation))
    for topic in kept.topics:
        gateway.broker.durable.attach(connection, topic)
    gateway.flush_soon()
