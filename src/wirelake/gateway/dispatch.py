"""Give the messages of sessions to the part that handles them: the login, the resumption of sessions, or the broker."""

from collections.abc import Callable, Sequence
from itertools import compress

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.gateway.auth.login_flow import LoginFlow
from wirelake.gateway.auth.resumption import SessionResumption
from wirelake.gateway.devices.driver import DeviceDriver
from wirelake.gateway.transport.connection import Connection
from wirelake.message import TRACE, Kind, Message, Op, Topic, control_op
from wirelake.protocols.batches import PublishBatch


class HopReporter:
    """Send the hops of a traced request to the peer that made it."""

    def __init__(self, node: str, now_ms: Callable[[], int]) -> None:
        """`node` is the name of this gateway."""
        self._node = node
        self._now_ms = now_ms

    def __call__(self, peer: Peer, correlation: str, hop: str, by: str) -> None:
        """Report a hop `by` a provider, or by this gateway if that is empty."""
        fields = {"hop": hop, "at_ms": self._now_ms(), "node": by or self._node}
        peer.send(Message(kind=Kind.EVENT, name=TRACE, correlation=correlation, fields=fields))


class MessageDispatcher:
    """Dispatch messages. After each, the broker is flushed at the end of the event loop's turn."""

    def __init__(
        self,
        broker: Broker,
        login_flow: LoginFlow,
        resumption: SessionResumption,
        flush_soon: Callable[[], None],
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._login_flow = login_flow
        self._resumption = resumption
        self.flush_soon = flush_soon
        self._now_s = now_s
        self._now_ms = now_ms

    def on_message(self, connection: Connection, message: Message) -> None:
        if control_op(message) is Op.LOGIN and message.credentials is not None:
            self._login_flow.start(connection, message, message.credentials)
            return
        if message.kind is Kind.CONTROL and self._resumption.on_message(connection, message):
            return
        self._broker.handle(connection, message, self._now_s(), self._now_ms())
        self.flush_soon()

    def on_publish_batch(self, connection: Connection, correlation: str, batch: PublishBatch) -> None:
        """Publish many notifications on one durable topic."""
        self._broker.publish_batch(connection, correlation, batch, self._now_ms())
        self.flush_soon()

    def on_drain(self, peer: Peer) -> None:
        """Continue sending to a peer that has read what was pending for it."""
        self._broker.on_drain(peer)
        self.flush_soon()

    def on_telemetry(self, peer: Peer, report: Message) -> Commit | None:
        """Publish a report. Return its commit, if its topic is durable. Raise StorageError if it is refused."""
        self.flush_soon()
        return self._broker.devices.publish_report(peer, report, self._now_ms())

    def on_device_message(self, peer: DeviceDriver, message: Message) -> None:
        """Handle a message of a device's session that is no telemetry."""
        self._broker.handle(peer, message, self._now_s(), self._now_ms())
        self.flush_soon()

    def on_device_reports(self, messages: Sequence[tuple[DeviceDriver, Message]]) -> Commit | None:
        """Dispatch messages that were decoded together, mostly telemetry. Return the commit of what is published."""
        broker = self._broker
        is_durable = Topic(broker.devices_topic).is_durable
        telemetry = [message.kind is Kind.TELEMETRY and is_durable for _, message in messages]
        for (peer, message), is_published in zip(messages, telemetry, strict=True):
            if not is_published:
                broker.handle(peer, message, self._now_s(), self._now_ms())
        self.flush_soon()
        reports = list(compress(messages, telemetry))
        return broker.devices.publish_reports(reports, self._now_ms())
