"""Import a capture into the log: every connection becomes a session, every frame a record with the capture's time.

The import opens the data folder as a gateway does, so there is one writer at a time. It writes the same counters, so
the ledger compares the imported frames as it does those of a gateway.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from wirelake.capture.imported_session import ImportedSession, SessionInfo, address_text
from wirelake.capture.ip_packets import HostPort, IpParser, TcpSegment, UdpDatagram
from wirelake.capture.packet_reader import CaptureReader
from wirelake.capture.protocol_choice import Choice, Conversation, ProtocolChooser
from wirelake.capture.tcp_reassembly import TcpReassembly
from wirelake.commit import Commit
from wirelake.config import Settings
from wirelake.errors import InUseError
from wirelake.gateway.lifecycle import attach_log_to_state
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.stores import log_settings, open_stores
from wirelake.key_source import state_key
from wirelake.limits import (
    CAPTURE_COMMIT_BYTES,
    CAPTURE_COMMIT_S,
    CAPTURE_COUNTED_HOURS_MAX,
    CAPTURE_FLOWS_MAX,
    CAPTURE_LEFT_OUT_SHOWN_MAX,
    CAPTURE_WAITING_BYTES_MAX,
    UDP_IDLE_S,
)
from wirelake.log.imported import imported_session_id
from wirelake.log.interface import EventLog
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol

_UDP_IDLE_US: Final = int(UDP_IDLE_S * 1_000_000)
_FIRST_BYTES_SHOWN: Final = 16
_LATEST_US: Final = 253_402_300_799_000_000  # the end of the year 9999, for times of damaged captures
_FlowKey = tuple[bool, HostPort, HostPort]


class LeftOutConnection(Struct, frozen=True):
    """A connection that is not in the log, and why."""

    first: str  # the end that sent the first packet
    second: str
    transport: str
    reason: str
    bytes: int
    begins_with: str  # hex


class ImportReport(Struct):
    """What an import read, wrote and left out."""

    file: str
    session_prefix: str = ""
    packets: int = 0
    captured_from: str = ""
    captured_until: str = ""
    protocols: dict[str, dict[str, int]] = {}  # sessions, frames_in, frames_out, bytes_in, bytes_out, unreadable, gaps
    left_out_count: int = 0
    left_out: list[LeftOutConnection] = field(default_factory=list)
    left_out_by: dict[str, int] = {}
    skipped: dict[str, int] = {}


def import_capture(
    path: Path, folder: Path, settings: Settings, named: Protocol | None = None, now_us: Callable[[], int] | None = None
) -> ImportReport:
    """Import a file into the log of a data folder. Raise InUseError if a gateway has the folder open."""
    now_us = now_us or (lambda: time.time_ns() // 1000)
    reader = CaptureReader(path)
    first = next(iter(reader), None)  # an unreadable file must not leave a trace in the log
    with ExitStack() as opened:
        try:
            key = state_key(settings.state.key, folder)
            stores = open_stores(folder, log_settings(settings.log), key=key, now_us=now_us)
        except InUseError as error:
            raise InUseError(
                f"{error}: a log has one writer, so stop the gateway, import the capture, and start it again"
            ) from error
        opened.callback(stores.log.close)
        opened.callback(stores.state.close)
        imported_at_us = now_us()
        writer = CaptureWriter(stores.log, imported_at_us)
        attach_log_to_state(stores, writer.recorder)
        chooser = ProtocolChooser(settings, named)
        captured_at_us = 0 if first is None else first.at_us
        report = _Import(path, CaptureReader(path), chooser, writer, captured_at_us).run()
        writer.finish(now_us())
    return report


class CaptureWriter:
    """Write records with the times of the capture, and wait for the disk from time to time."""

    def __init__(self, log: EventLog, imported_at_us: int) -> None:
        self.imported_at_us = imported_at_us
        self.redated = 0  # records that the capture dates after the import
        self.recorder = Recorder(log, self._time)
        self._at_us = imported_at_us
        self._bytes = 0
        self.recorder.counters()  # whatever the last gateway had open is over

    def set_time(self, at_us: int) -> None:
        """Set the time of the records to come. A time after the import would make everything else seem old."""
        self.redated += at_us > self.imported_at_us
        self._at_us = max(0, min(at_us, self.imported_at_us))

    def on_commit(self, commit: Commit, size: int) -> None:
        self._bytes += size
        if self._bytes >= CAPTURE_COMMIT_BYTES:
            commit.wait(CAPTURE_COMMIT_S)
            self._bytes = 0
        if len(self.recorder.counts) >= CAPTURE_COUNTED_HOURS_MAX:
            self._at_us = self.imported_at_us
            self.recorder.counters()

    def finish(self, now_us: int) -> None:
        self._at_us = max(now_us, self.imported_at_us)
        self.recorder.counters().wait(CAPTURE_COMMIT_S)

    def _time(self) -> int:
        return self._at_us


class _Flow:
    """One connection, or the datagrams between two ends: first undecided, then a session, or left out."""

    def __init__(self, owner: "_Import", first: HostPort, second: HostPort, at_us: int, *, is_datagrams: bool) -> None:
        self.first_at_us = self.last_at_us = at_us
        self.is_finished = False
        self.streams = {first: TcpReassembly(), second: TcpReassembly()}
        self.began: set[HostPort] = set()  # ends whose SYN was captured
        self.talk = Conversation(first, second, is_datagrams, data={})
        self._owner = owner
        self._items: list[tuple[HostPort, int, bytes, int]] = []  # end, time, bytes, missing bytes; while undecided
        self._session: ImportedSession | None = None
        self._choice: Choice | None = None
        self._bytes = 0
        self._begins_with = b""

    # TCP

    def is_other_connection(self, segment: TcpSegment) -> bool:
        """Tell whether a segment with these ends belongs to a later connection."""
        stream = self.streams[segment.source]
        if segment.syn:
            return stream.first_seq is not None and stream.first_seq != (segment.seq + 1) % (1 << 32)
        return bool(segment.data) and not stream.is_inside_window(segment.seq)

    def receive(self, segment: TcpSegment) -> None:
        stream, end, seq = self.streams[segment.source], segment.source, segment.seq
        self.last_at_us = max(self.last_at_us, segment.at_us)
        if segment.syn:
            seq += 1
            stream.start(seq)
            self.began.add(end)
            self.talk.client = self.talk.other(end) if segment.ack else end
        if segment.data or segment.fin:
            for piece in stream.receive(segment.at_us, seq, segment.data, fin=segment.fin):
                self._deliver(end, piece.at_us, piece.data)
        if stream.waiting_bytes > CAPTURE_WAITING_BYTES_MAX:
            self._skip_gap(end)
        if segment.rst:
            self.finish("reset")
        elif all(each.is_complete for each in self.streams.values()):
            self.finish("peer_closed")

    def _skip_gap(self, end: HostPort) -> None:
        missing, pieces = self.streams[end].skip_gap()
        if missing:
            self._deliver(end, pieces[0].at_us if pieces else self.last_at_us, b"", missing)
        for piece in pieces:
            self._deliver(end, piece.at_us, piece.data)

    # Both

    def receive_datagram(self, datagram: UdpDatagram) -> None:
        self.last_at_us = max(self.last_at_us, datagram.at_us)
        self._deliver(datagram.source, datagram.at_us, datagram.data, datagram.missing_bytes)

    def finish(self, reason: str) -> None:
        """End the session. What still waits for missing bytes comes after a gap."""
        if self.is_finished:
            return
        self.is_finished = True
        for end, stream in self.streams.items():
            while stream.waiting_bytes or (stream.end is not None and stream.position < stream.end):
                self._skip_gap(end)
        self.talk.is_over = True
        if self._choice is None:
            self._decide()
        if self._session is not None:
            repeated_bytes = sum(stream.repeated_bytes for stream in self.streams.values())
            self._session.close(self.last_at_us, reason, repeated_bytes)
            self._owner.count(self._session)
        elif self._choice is not None and self._bytes:
            ends = address_text(self.talk.first), address_text(self.talk.second)
            transport = "udp" if self.talk.is_datagrams else "tcp"
            self._owner.leave_out(
                LeftOutConnection(*ends, transport, self._choice.reason, self._bytes, self._begins_with.hex())
            )
        self._items.clear()

    def _deliver(self, end: HostPort, at_us: int, data: bytes, missing_bytes: int = 0) -> None:
        self._bytes += len(data)
        self._begins_with = self._begins_with or data[:_FIRST_BYTES_SHOWN]
        if self._session is not None:
            self._write(self._session, end, at_us, data, missing_bytes)
        elif self._choice is None:
            self._items.append((end, at_us, data, missing_bytes))
            if data:
                self.talk.data.setdefault(end, []).append(data)
            self._decide()

    def _decide(self) -> None:
        self._choice = self._owner.chooser.choose(self.talk)
        if self._choice is None or self._choice.protocol is None:
            return
        self._session = self._owner.new_session(self._choice, self)
        self._session.open(self.first_at_us)
        for item in self._items:
            self._write(self._session, *item)
        self._items.clear()
        self.talk.data.clear()

    def _write(self, session: ImportedSession, end: HostPort, at_us: int, data: bytes, missing_bytes: int) -> None:
        if self.talk.is_datagrams:
            session.receive_datagram(end, at_us, data, missing_bytes)
        elif missing_bytes:
            session.skip(end, at_us, missing_bytes)
        else:
            session.receive(end, at_us, data)


class _Import:
    """Read the packets of one file, flow by flow."""

    def __init__(
        self, path: Path, reader: CaptureReader, chooser: ProtocolChooser, writer: CaptureWriter, captured_at_us: int
    ) -> None:
        self.chooser = chooser
        self._reader = reader
        self._writer = writer
        self._parser = IpParser(reader.skipped)
        self._flows: dict[_FlowKey, _Flow] = {}  # the one that was silent longest first
        self._numbers = 0
        self._report = ImportReport(path.name)
        self._totals: dict[str, Counter[str]] = {}
        self._left_out: Counter[str] = Counter()
        self._note = {
            "import": path.name,
            "imported_at": _iso(writer.imported_at_us),
            "captured_at": _iso(captured_at_us),
        }

    def run(self) -> ImportReport:
        report, first_us, last_us = self._report, None, 0
        for packet in self._reader:
            report.packets += 1
            first_us = packet.at_us if first_us is None else min(first_us, packet.at_us)
            last_us = max(last_us, packet.at_us)
            found = self._parser.parse(packet)
            if isinstance(found, TcpSegment):
                self._on_segment(found)
            elif found is not None:
                self._on_datagram(found)
        self._parser.finish()
        for flow in self._flows.values():
            flow.finish("capture_ended")
        report.captured_from = "" if first_us is None else _iso(first_us)
        report.captured_until = _iso(last_us) if last_us else ""
        report.session_prefix = imported_session_id(self._writer.imported_at_us, 0).rpartition("-")[0]
        report.protocols = {name: dict(totals) for name, totals in sorted(self._totals.items())}
        report.left_out_by = dict(self._left_out.most_common())
        skipped = self._reader.skipped
        skipped["records dated after the import, which have its time"] += self._writer.redated
        report.skipped = {reason: count for reason, count in skipped.most_common() if count}
        return report

    def _on_segment(self, segment: TcpSegment) -> None:
        key = _key(segment.source, segment.target, is_datagrams=False)
        flow = self._flows.pop(key, None)
        if flow is not None and flow.is_other_connection(segment):
            flow.finish("replaced")
            flow = None
        if flow is None:
            if segment.rst or not (segment.syn or segment.data):
                return  # of a connection that ended before the capture
            flow = self._new_flow(segment.source, segment.target, segment.at_us, is_datagrams=False)
        self._flows[key] = flow
        if not flow.is_finished:
            flow.receive(segment)
        elif segment.data:
            self._reader.skipped["segments after the end of their connection"] += 1

    def _on_datagram(self, datagram: UdpDatagram) -> None:
        key = _key(datagram.source, datagram.target, is_datagrams=True)
        flow = self._flows.pop(key, None)
        if flow is not None and datagram.at_us - flow.last_at_us > _UDP_IDLE_US:
            flow.finish("idle")
            flow = None
        if flow is None:
            flow = self._new_flow(datagram.source, datagram.target, datagram.at_us, is_datagrams=True)
        self._flows[key] = flow
        flow.receive_datagram(datagram)

    def _new_flow(self, first: HostPort, second: HostPort, at_us: int, *, is_datagrams: bool) -> _Flow:
        if len(self._flows) >= CAPTURE_FLOWS_MAX:
            self._flows.pop(next(iter(self._flows))).finish("flows_max")
        return _Flow(self, first, second, at_us, is_datagrams=is_datagrams)

    # What flows need

    def new_session(self, choice: Choice, flow: _Flow) -> ImportedSession:
        assert choice.protocol is not None  # noqa: S101 (for the type checker)
        self._numbers += 1
        talk, client = flow.talk, choice.client
        server = talk.other(client)
        inside = {end for end in (client, server) if end not in flow.began and not talk.is_datagrams}
        note: dict[str, Any] = self._note | {
            "server": address_text(server),
            "transport": choice.carrier,
            "protocol_by": choice.reason,
        }
        info = SessionInfo(
            id=imported_session_id(self._writer.imported_at_us, self._numbers),
            protocol=choice.protocol,
            carrier=choice.carrier,
            client=client,
            server=server,
            note=note,
            begins_inside=frozenset(Sender.CLIENT if end == client else Sender.SERVER for end in inside),
        )
        return ImportedSession(info, self._writer.recorder, self._writer.set_time, self._writer.on_commit)

    def count(self, session: ImportedSession) -> None:
        totals = self._totals.setdefault(session.protocol, Counter())
        totals["sessions"] += 1
        totals.update(session.counts)

    def leave_out(self, connection: LeftOutConnection) -> None:
        self._left_out[connection.reason] += 1
        self._report.left_out_count += 1
        if len(self._report.left_out) < CAPTURE_LEFT_OUT_SHOWN_MAX:
            self._report.left_out.append(connection)


def _key(one: HostPort, other: HostPort, *, is_datagrams: bool) -> _FlowKey:
    return (is_datagrams, one, other) if one <= other else (is_datagrams, other, one)


def _iso(at_us: int) -> str:
    at_us = max(0, min(at_us, _LATEST_US))
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
