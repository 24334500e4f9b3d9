"""A connection from its beginning to its login: whether it is let in, and what it may cost until then."""

from typing import TYPE_CHECKING

from wirelake.errors import StorageError
from wirelake.gateway.transport.endpoint import Endpoint
from wirelake.limits import GATEWAY_QUOTA_WAIT_S
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.transport.connection import Connection


def open_session(connection: "Connection", endpoint: Endpoint) -> Closing | None:
    """Admit the connection and begin its session; or answer why there is none, with everything as it was."""
    gateway = endpoint.gateway
    closing = Closing(endpoint.admit(connection))
    if closing.code:
        connection.id = gateway.new_id()
    else:
        try:
            gateway.on_open(connection)
        except StorageError as error:
            closing = Closing("storage", str(error))
            endpoint.on_close(connection)
    if not closing.code:
        return None
    gateway.counters.refused[connection.protocol, closing.code] += 1
    return closing


def account_for(connection: "Connection", size: int) -> None:
    """So many bytes came: count what the peer makes the gateway hold. All peers without a login have one bound."""
    slot = connection.slot
    if slot is None:
        return
    slot.deciding_bytes = slot.deciding_bytes + size if connection.session.is_deciding_login else 0
    if not slot.hold(connection.held_bytes + slot.deciding_bytes):
        connection.give_up("unauthenticated_bytes", "peers without a login use too much memory")


def charge(connection: "Connection", frames: int, size: int) -> float:
    """Count the records of these frames and of their answers; answers how long the peer should be read no more."""
    wait_s = 0.0 if connection.slot is None else connection.slot.charge(2 * frames, 2 * size)
    if wait_s > GATEWAY_QUOTA_WAIT_S:
        connection.give_up("unauthenticated_records", "peers without a login write to the log too fast")
    return wait_s
