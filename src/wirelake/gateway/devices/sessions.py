"""Route frames to device sessions by serial.

A device is not a connection: its UDP address may change between two frames, and a TCP connection may multiplex many
devices.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wirelake.commit import Commit
from wirelake.errors import FullError, ProtocolError, StorageError
from wirelake.gateway.auth.admission import host_of
from wirelake.gateway.devices.driver import DeviceDriver, Origin, UnknownSender
from wirelake.gateway.devices.memory import DeviceMemory
from wirelake.gateway.devices.publications import DevicePublications
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.outbox import Outbox
from wirelake.limits import GATEWAY_DEVICES_MAX, QUARANTINE_BYTES_MAX
from wirelake.log.interface import FixedSizeFrames
from wirelake.message import EVERY_DEVICE, Message, Topic
from wirelake.protocols.batches import TelemetryBatch
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Closing
from wirelake.state.store import StateStore

if TYPE_CHECKING:
    from wirelake.gateway.devices.listener import DeviceListener


class DeviceSessions:
    """Manage the sessions of all online devices, by serial, for every protocol whose frames identify devices."""

    def __init__(self, context: TransportContext, state: StateStore) -> None:
        self.peers: dict[str, DeviceDriver] = {}
        self.registry = state.devices
        self.memory = DeviceMemory(state.devices)
        self.publications = DevicePublications(state)
        self._assembling_bytes = 0  # of all incomplete commands
        # A broadcast has no serial. It belongs to the device that last sent a frame from the same origin.
        self._by_origin: dict[tuple[str, bool], DeviceDriver] = {}
        self._context = context

    def of_protocol(self, protocol: str) -> Iterator[DeviceDriver]:
        """Return the sessions of a protocol."""
        return (peer for peer in self.peers.values() if peer.protocol == protocol)

    def count_assembling(self, more_bytes: int) -> int:
        """Add to the bytes of incomplete commands. Return their total."""
        self._assembling_bytes += more_bytes
        return self._assembling_bytes

    def refuses(self, protocol: str, reports: int) -> bool:
        """Return whether reports cannot be published now, and count them. Their devices resend them."""
        if not Topic(self._context.broker.devices_topic).is_durable:
            return False
        error = self.publications.publish_error()
        if error is None:
            return False
        self._context.counters.errors[protocol, "not_published"] += reports
        self.publications.log_error(error)
        return True

    def receive(self, listener: "DeviceListener", raw: bytes, frame: Frame, origin: Origin) -> bool:
        """Pass a frame to the session of its device. Return whether the device is known."""
        self._context.counters.frames_in[listener.protocol.name] += 1
        serial = listener.device_of(frame)
        peer = self._by_origin.get(origin.key) if serial is None else self.peers.get(serial)
        if peer is None or peer.protocol != listener.protocol.name:
            peer = self._open_session(listener, serial or "", raw, origin)
            if peer is None:
                return False
        peer.receive(raw, frame, origin)
        return True

    def receive_batch(
        self, listener: "DeviceListener", batch: TelemetryBatch, origins: Sequence[Origin], joint: Outbox | None
    ) -> None:
        """Accept a batch of reports. `origins` holds the origin of each frame.

        Replies are sent through the `joint` outbox if there is one, else each to the origin of its frame.
        """
        context, recorder = self._context, self._context.recorder
        protocol, count = listener.protocol.name, len(batch.streams)
        peers: list[DeviceDriver] = [stream.source for stream in batch.streams]
        sessions, identities = tuple([peer.id for peer in peers]), tuple([peer.identity for peer in peers])
        has_one_origin = origins.count(origins[0]) == count  # true for a stream, mostly not for datagrams
        addresses = origins[0].address if has_one_origin else tuple([origin.address for origin in origins])
        # Log before changing any state: a report that the log refuses counts as not received.
        frames = FixedSizeFrames(batch.joined, batch.frame_bytes)
        recorder.rows(protocol, "in", sessions, identities, addresses, frames)
        context.counters.frames_in[protocol] += count
        if self.refuses(protocol, count):
            return
        try:
            published = self._publish(batch, origins, are_replies_joint=joint is not None)
        except StorageError as error:
            self.publications.log_error(error)
            if isinstance(error, FullError):
                for stream in batch.counts:
                    stream.source.read_one_by_one()
            return
        replies = FixedSizeFrames(batch.replies(), batch.reply_bytes)
        logged = recorder.rows(protocol, "out", sessions, identities, addresses, replies)
        commit = self.publications.receipt_commit(logged, published)
        if joint is not None:
            joint.hold(replies.joined, commit)
        else:
            for peer, reply, origin in zip(peers, replies.split(), origins, strict=True):
                peer.hold_reply(reply, commit, origin)

    def _publish(self, batch: TelemetryBatch, origins: Sequence[Origin], *, are_replies_joint: bool) -> Commit | None:
        """Publish the reports of a logged batch. Return the commit that their replies wait for besides the log's."""
        context, now_s = self._context, self._context.now_s()
        batch.accept(now_s)
        last_origins = dict(zip(batch.streams, origins, strict=True))
        for stream, count in batch.counts.items():
            bytes_out = count * batch.reply_bytes if are_replies_joint else 0
            stream.source.on_batch(count, count * batch.frame_bytes, bytes_out, last_origins[stream])
        if not context.broker.devices_topic:
            return None
        reports: list[tuple[DeviceDriver, Message]] = []
        for stream, message in batch.messages(now_s):
            peer: DeviceDriver = stream.source
            peer.count_failure(message)
            reports.append((peer, message))
        try:
            published = context.dispatcher.on_device_reports(reports)
        except StorageError:
            batch.withdraw()
            raise
        if published is not None:
            self.publications.add(published, batch.withdraw)
        return published

    def quarantine(self, protocol: Protocol, data: bytes, error: ProtocolError, address: str) -> Commit:
        """Record the first of these bytes, without the secrets of what may be a login."""
        self._context.counters.frames_in[protocol.name] += 1
        unread = protocol.redact(data[:QUARANTINE_BYTES_MAX], Sender.CLIENT)
        return self._context.sessions.quarantine(UnknownSender(protocol.name, address), unread, error)

    def quarantine_datagram(self, protocol: Protocol, data: bytes, error: ProtocolError, address: str) -> None:
        """Quarantine a datagram, or only count it beyond the quota: its source address may be forged."""
        context, head = self._context, data[:QUARANTINE_BYTES_MAX]
        if context.admission.droppable_quota.admits(host_of(address), len(head), context.now_s()):
            self.quarantine(protocol, head, error, address)
        else:
            context.counters.frames_in[protocol.name] += 1
            context.counters.errors[protocol.name, error.code] += 1
            context.recorder.drop(protocol.name, "quarantine", len(data))

    def locate(self, peer: DeviceDriver, before: Origin | None, now: Origin) -> None:
        """Assign broadcasts from the new origin to this device, and no longer those from its old one."""
        if before is not None and before.key != now.key:
            self._forget_location(peer, before)
        self._by_origin[now.key] = peer

    def _forget_location(self, peer: DeviceDriver, origin: Origin) -> None:
        if self._by_origin.get(origin.key) is peer:
            del self._by_origin[origin.key]

    def on_stream_lost(self, origin: Origin) -> None:
        """Forget the device at this origin: the next connection from that address may be another's."""
        self._by_origin.pop(origin.key, None)

    def on_close(self, peer: DeviceDriver, closing: Closing, location: Origin | None) -> None:
        """Close the session of a device at `location`. Run every step, even if the log refuses a record."""
        if location is not None:
            self._forget_location(peer, location)
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
        peer.read_one_by_one()
        self.count_assembling(-peer.assembling_bytes)
        self._context.sessions.on_device_close(peer, closing)

    def _open_session(self, listener: "DeviceListener", serial: str, raw: bytes, origin: Origin) -> DeviceDriver | None:
        """Open a session for an admitted device, or record and count the refusal."""
        context, protocol = self._context, listener.protocol.name
        is_known = self.registry.find(serial) is not None
        is_name = serial not in {"", EVERY_DEVICE}  # a broadcast has no serial, and no device is known at its origin
        reason = ""
        if not is_known and not (listener.settings.open and is_name):
            reason = "unknown_device"
        elif len(self.peers) >= GATEWAY_DEVICES_MAX:
            reason = "devices_max"
        if reason:
            context.counters.refused[protocol, reason] += 1
            if context.admission.droppable_quota.admits(host_of(origin.address), len(raw), context.now_s()):
                sender = UnknownSender(protocol, origin.address, serial)
                refused = listener.protocol.redact(raw, Sender.CLIENT)
                context.recorder.event(sender, "refuse", {"reason": reason}, "in", refused)
            else:
                context.recorder.drop(protocol, "refuse", len(raw))
            return None
        other = self.peers.get(serial)
        if other is not None:
            other.close(Closing("replaced", f"the device has opened a session with {protocol}"))
        peer = DeviceDriver(context, self, listener, serial, origin)
        context.sessions.on_device_open(peer)
        self.peers[serial] = peer
        return peer
