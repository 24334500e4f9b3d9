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
from wirelake.gateway.auth.admission import host_of
from wirelake.gateway.devices.peer import DevicePeer, Origin, ReportStream, Stranger
from wirelake.gateway.devices.publications import DevicePublications
from wirelake.gateway.devices.seals import Seals
from wirelake.gateway.transport.outbox import Outbox
from wirelake.limits import GATEWAY_DEVICES_MAX, QUARANTINE_BYTES_MAX
from wirelake.log.interface import FixedSizeFrames
from wirelake.message import EVERY_DEVICE, Topic
from wirelake.protocols import registry
from wirelake.protocols.apostol.fast_path import Run, skim
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.session import Settings
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class DeviceSessions:
    """All devices heard from, by serial."""

    def __init__(self, gateway: "Gateway") -> None:
        self.peers: dict[str, DevicePeer] = {}
        self.lines: dict[bytes, ReportStream] = {}  # by what their reports begin with: those that can be skimmed
        self.assembling_bytes = 0  # of all devices' packets that wait for others
        self.streams: set[asyncio.Transport] = set()  # TCP connections that carry packets
        # Whose broadcasts come from there: of the devices whose commands go there, the last heard.
        self._by_origin: dict[tuple[str, bool], DevicePeer] = {}
        self.seals = Seals()
        self.publications = DevicePublications(gateway.state)
        self._gateway = gateway
        self.protocol = registry.get("apostol")

    @property
    def settings(self) -> Settings:
        """Return the settings in force now: a reload holds for devices that are heard from then on."""
        section: Settings = self._gateway.settings.section(self.protocol)
        return section

    def assembling(self, more_bytes: int) -> bool:
        """So many more bytes wait for the rest of their commands; whether that is now too much in all."""
        self.assembling_bytes += more_bytes
        return self.assembling_bytes > self.settings.assembling_bytes

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
        peer = self._by_origin.get(origin.key) if packet.broadcast else self.peers.get(packet.serial)
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

    def _take(self, run: Run[ReportStream], came_from: Sequence[Origin], *, sent: bool) -> Commit | None:
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
            published = gateway.on_device_reports(said)
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

    def locate(self, peer: DevicePeer, before: Origin | None, now: Origin) -> None:
        """Take broadcasts that come from there for this device's from now on, and none from where it was before."""
        if before is not None and before.key != now.key:
            self._leave(peer, before)
        self._by_origin[now.key] = peer

    def _leave(self, peer: DevicePeer, origin: Origin) -> None:
        if self._by_origin.get(origin.key) is peer:
            del self._by_origin[origin.key]

    def stream_lost(self, origin: Origin) -> None:
        """Forget who was heard there: the next connection from that address and port is somebody else's."""
        self._by_origin.pop(origin.key, None)

    def gone(self, peer: DevicePeer, closing: Closing, origin: Origin | None) -> None:
        """End a device's session; `origin` is where its commands went. Every step runs, whatever the log refuses."""
        if origin is not None:
            self._leave(peer, origin)
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
        peer.forget_lines()
        self.assembling(-peer.assembling_bytes)
        self._gateway.on_device_close(peer, closing)

    def _meet(self, raw: bytes, packet: Packet, origin: Origin) -> DevicePeer | None:
        gateway = self._gateway
        known = gateway.state.devices.find(packet.serial) is not None
        reason = ""
        is_name = packet.serial not in {"", EVERY_DEVICE}  # a broadcast has none: nobody is known where it came from
        if not known and not (self.settings.open and is_name):
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
        gateway.on_device_open(peer)
        self.peers[packet.serial] = peer
        return peer
