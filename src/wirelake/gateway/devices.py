"""Devices: one session for each serial, wherever its packets come from.

A device is not a connection: its UDP address may change between two packets, and one TCP connection may carry several
devices. So packets are sorted by serial here.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from wirelake.commit import Commit
from wirelake.errors import FullError, ProtocolError, StorageError
from wirelake.gateway.admission import host_of
from wirelake.gateway.device_peer import DevicePeer, Line, Origin, Stranger
from wirelake.gateway.device_publications import DevicePublications
from wirelake.gateway.outbox import Outbox
from wirelake.gateway.seals import Seals
from wirelake.limits import GATEWAY_DEVICES_MAX, QUARANTINE_BYTES_MAX
from wirelake.log.interface import FixedSizeFrames
from wirelake.message import Topic
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.session import Settings as SessionSettings
from wirelake.protocols.apostol.skimming import Run, skim
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class Devices:
    """All devices heard from, by serial."""

    def __init__(self, gateway: "Gateway") -> None:
        self.peers: dict[str, DevicePeer] = {}
        self.lines: dict[bytes, Line] = {}  # by what their reports begin with: those that can be skimmed
        self.assembling_bytes = 0  # of all devices' packets that wait for others
        self.streams: set[asyncio.Transport] = set()  # TCP connections that carry packets
        self.seals = Seals()
        self.publications = DevicePublications(gateway.state)
        self._gateway = gateway

    @property
    def session_settings(self) -> SessionSettings:
        """Looked up for each device: a reload holds for those that are heard from then on."""
        chosen = self._gateway.settings.apostol
        return SessionSettings(
            idle_s=chosen.idle_s,
            request_s=chosen.request_s,
            receipt_s=chosen.receipt_s,
            resends_max=chosen.resends_max,
            assembly_s=chosen.assembly_s,
            command_bytes_max=chosen.command_bytes_max,
            inflated_bytes_max=chosen.inflated_bytes_max,
            assembling_max=chosen.assembling_per_device,
            packet_data_bytes=chosen.packet_data_bytes,
            require_seal=chosen.require_seal,
            replay_window_s=chosen.replay_window_s,
        )

    def assembling(self, more_bytes: int) -> bool:
        """So many more bytes wait for the rest of their commands; whether that is now too much in all."""
        self.assembling_bytes += more_bytes
        return self.assembling_bytes > self._gateway.settings.apostol.assembling_bytes

    def refuses(self, reports: int) -> bool:
        """Return whether so many reports cannot be published now, and are not taken: their devices send them again."""
        if not Topic(self._gateway.broker.devices_topic).is_durable:
            return False
        refusal = self.publications.refusal()
        if refusal is None:
            return False
        self._gateway.counters.errors["apostol", "not_published"] += reports
        self.publications.log_refusal(refusal)
        return True

    def receive(self, raw: bytes, packet: Packet, origin: Origin) -> bool:
        """Hand a packet to its device's session; answers whether the device is known."""
        gateway = self._gateway
        gateway.counters.frames_in["apostol"] += 1
        peer = self.peers.get(packet.serial)
        if peer is None:
            peer = self._meet(raw, packet, origin)
            if peer is None:
                return False
        peer.receive(raw, packet, origin)
        return True

    def skim(
        self, frames: Sequence[bytes], start: int, reach: int, origins: Sequence[Origin], together: Outbox | None
    ) -> int:
        """Take the reports from `start` on, `reach` at most, that need no reading one by one; answers how many.

        `origins` says of each frame where it came from. Their receipts go `together`, or else as each device's own.
        """
        self.publications.settle()
        run = skim(frames, start, reach, self.lines)
        if run is None:
            return 0
        recorder, count = self._gateway.recorder, len(run.of)
        sessions, identities = tuple([line.id for line in run.of]), tuple([line.identity for line in run.of])
        came_from = origins[start : start + count]
        one = came_from.count(came_from[0]) == count  # a stream has one origin, datagrams each their own
        addresses = came_from[0].address if one else tuple([origin.address for origin in came_from])
        # Before anything is changed: what the log refuses has not come.
        recorder.rows("apostol", "in", sessions, identities, addresses, FixedSizeFrames(run.joined, run.frame_bytes))
        self._gateway.counters.frames_in["apostol"] += count
        if self.refuses(count):
            return count
        try:
            published = self._take(run, came_from, sent=together is not None)
        except StorageError as error:
            self.publications.log_refusal(error)
            if isinstance(error, FullError):
                for line in run.counts:
                    line.peer.forget_lines()
            return count
        receipts = FixedSizeFrames(run.receipts(), run.receipt_bytes)
        recorded = recorder.rows("apostol", "out", sessions, identities, addresses, receipts)
        commit = self.publications.promise(recorded, published)
        if together is not None:
            together.hold(receipts.joined, commit)
        else:
            for line, receipt, origin in zip(run.of, receipts.split(), came_from, strict=True):
                line.peer.hold(receipt, commit, origin)
        return count

    def _take(self, run: Run[Line], came_from: Sequence[Origin], *, sent: bool) -> Commit | None:
        """They are in the log: publish what they say, and return what their receipts wait for beside the log."""
        gateway = self._gateway
        now_s, frame_bytes = gateway.now_s(), run.frame_bytes
        repeats = set(run.finish(now_s))
        last = dict(zip(run.of, came_from, strict=True))
        for line, count in run.counts.items():
            bytes_out = count * run.receipt_bytes if sent else 0
            line.peer.skimmed(count, count * frame_bytes, bytes_out, last[line], now_s)
        if not gateway.broker.devices_topic:
            return None
        reports = zip(range(len(run.of)), run.of, run.numbers, run.contents, strict=True)
        said = [
            (line.peer, message)
            for place, line, command_no, content in reports
            if place not in repeats
            for message in line.peer.reported(line, command_no, content, now_s)
        ]
        try:
            published = gateway.heard_reports(said)
        except StorageError:
            run.forget(repeats)
            raise
        if published is not None:
            self.publications.add(published, partial(run.forget, repeats))
        return published

    def quarantine(self, data: bytes, error: ProtocolError, address: str) -> Commit:
        self._gateway.counters.frames_in["apostol"] += 1
        return self._gateway.quarantine(Stranger(address), data[:QUARANTINE_BYTES_MAX], error)

    def quarantine_datagram(self, data: bytes, error: ProtocolError, address: str) -> None:
        """The same for what anybody can send from any address: beyond the quota, no record is made of it."""
        gateway, kept = self._gateway, data[:QUARANTINE_BYTES_MAX]
        if gateway.admission.droppable_quota.admits(host_of(address), len(kept), gateway.now_s()):
            self.quarantine(kept, error, address)
        else:
            gateway.counters.frames_in["apostol"] += 1
            gateway.counters.errors["apostol", error.code] += 1
            gateway.recorder.drop("apostol", "quarantine", len(data))

    def gone(self, peer: DevicePeer, closing: Closing) -> None:
        """End a device's session. Every step runs, whatever the log refuses meanwhile."""
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
        peer.forget_lines()
        self.assembling(-peer.assembling_bytes)
        self._gateway.device_gone(peer, closing)

    def _meet(self, raw: bytes, packet: Packet, origin: Origin) -> DevicePeer | None:
        gateway = self._gateway
        known = gateway.state.devices.find(packet.serial) is not None
        reason = ""
        if packet.broadcast or not (known or gateway.settings.apostol.open) or not packet.serial:
            reason = "unknown_device"
        elif len(self.peers) >= GATEWAY_DEVICES_MAX:
            reason = "devices_max"
        if reason:
            gateway.counters.refused["apostol", reason] += 1
            if gateway.admission.droppable_quota.admits(host_of(origin.address), len(raw), gateway.now_s()):
                stranger = Stranger(origin.address, packet.serial)
                gateway.recorder.event(stranger, "refuse", {"reason": reason}, "in", raw)
            else:
                gateway.recorder.drop("apostol", "refuse", len(raw))
            return None
        peer = DevicePeer(gateway, packet.serial, origin)
        gateway.device_met(peer)
        self.peers[packet.serial] = peer
        return peer
