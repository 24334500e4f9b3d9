"""Write one captured connection to the log, as the gateway would have written it: open, frames, close."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from wirelake.capture.frame_cutter import MID_STREAM, FrameCutter, cut_message
from wirelake.capture.ip_packets import HostPort
from wirelake.capture.websocket_messages import WebSocketMessages
from wirelake.commit import Commit
from wirelake.errors import ProtocolError
from wirelake.gateway.recorder import Recorder
from wirelake.limits import QUARANTINE_BYTES_MAX
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol

_DIRECTIONS = {Sender.CLIENT: "in", Sender.SERVER: "out"}


class SessionInfo(Struct, frozen=True):
    """What is known of a connection when its session opens."""

    id: str
    protocol: Protocol
    carrier: Carrier
    client: HostPort
    server: HostPort
    note: dict[str, Any]  # of the record `open`
    begins_inside: frozenset[Sender]  # whose first captured byte need not be the first of the connection


def address_text(end: HostPort) -> str:
    host, port = end
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ImportedSession:
    """Cut the bytes of both ends into frames, and record them. Implements `Recorded` and `CutFrames`."""

    def __init__(
        self,
        info: SessionInfo,
        recorder: Recorder,
        set_time: Callable[[int], None],
        on_commit: Callable[[Commit, int], None],
    ) -> None:
        """Record with `recorder`, whose clock is set with `set_time`; `on_commit` is given the bytes of each record."""
        self.id = info.id
        self.protocol = info.protocol.name
        self.identity = ""  # a capture shows that somebody logged in elsewhere, not who it was
        self.address = address_text(info.client)
        self.counts: Counter[str] = Counter()
        self._info = info
        self._recorder = recorder
        self._set_time = set_time
        self._on_commit = on_commit
        self._cutters = {sender: self._new_cutter(sender) for sender in Sender}
        self._websocket = {sender: WebSocketMessages(sender) for sender in Sender}
        self._lost: set[Sender] = set()  # whose WebSocket frames can no longer be found

    def _new_cutter(self, sender: Sender) -> FrameCutter:
        info = self._info
        lost = MID_STREAM if sender in info.begins_inside else None
        return FrameCutter(info.protocol, sender, info.carrier, self, lost)

    def open(self, at_us: int) -> None:
        self._event("open", at_us, self._info.note)

    def receive(self, end: HostPort, at_us: int, data: bytes) -> None:
        """Take bytes of a stream, in order."""
        sender = self._sender(end)
        self.counts[f"bytes_{_DIRECTIONS[sender]}"] += len(data)
        if self._info.carrier is Carrier.WEBSOCKET:
            self._receive_websocket(sender, at_us, data)
        else:
            self._cutters[sender].receive(at_us, data)

    def receive_datagram(self, end: HostPort, at_us: int, data: bytes, missing_bytes: int) -> None:
        sender = self._sender(end)
        self.counts[f"bytes_{_DIRECTIONS[sender]}"] += len(data)
        if missing_bytes:
            text = f"the capture has the first {len(data)} of the {len(data) + missing_bytes} bytes of this datagram"
            self.on_unreadable(sender, at_us, data, ProtocolError("truncated", text, len(data)))
        elif data:
            cut_message(self._info.protocol, sender, Carrier.UDP, at_us, data, self)

    def skip(self, end: HostPort, at_us: int, missing_bytes: int) -> None:
        """Go on behind a gap of the capture."""
        sender = self._sender(end)
        if self._info.carrier is Carrier.WEBSOCKET:
            self._lose_websocket(sender, at_us, ProtocolError("gap", "the capture lacks the bytes that follow", 0))
            self.on_gap(sender, at_us, self._cutters[sender].offset, missing_bytes)
        else:
            self._cutters[sender].skip(at_us, missing_bytes)

    def close(self, at_us: int, reason: str, repeated_bytes: int) -> None:
        for sender in Sender:
            if self._info.carrier is not Carrier.WEBSOCKET:
                self._cutters[sender].finish(at_us)
            elif sender not in self._lost and self._websocket[sender].rest:
                text = "the connection ends inside a WebSocket frame"
                self._lose_websocket(sender, at_us, ProtocolError("incomplete", text, 0))
        names = ("frames_in", "frames_out", "bytes_in", "bytes_out")
        note = {"reason": reason, "text": ""} | {name: self.counts[name] for name in names}
        more = {
            "repeated_bytes": repeated_bytes,
            "gaps": self.counts["gaps"],
            "lacks_bytes": self.counts["lacks_bytes"],
        }
        self._event("close", at_us, note | {name: count for name, count in more.items() if count})

    # What the bytes are cut into

    def on_frames(self, sender: Sender, at_us: int, frames: list[bytes]) -> None:
        direction = _DIRECTIONS[sender]
        self.counts[f"frames_{direction}"] += len(frames)
        self._set_time(at_us)
        redacted = self._info.protocol.redact_all(frames, sender)
        self._on_commit(self._recorder.frames(self, direction, redacted), sum(map(len, frames)))

    def on_unreadable(self, sender: Sender, at_us: int, data: bytes, error: ProtocolError) -> None:
        self.counts["unreadable"] += 1
        note = {"code": error.code, "offset": error.offset, "text": error.text}
        for place in range(0, len(data), QUARANTINE_BYTES_MAX):
            part = self._info.protocol.redact(data[place : place + QUARANTINE_BYTES_MAX], sender)
            self._event("quarantine", at_us, note, _DIRECTIONS[sender], part)

    def on_gap(self, sender: Sender, at_us: int, offset: int, missing_bytes: int) -> None:
        self.counts["gaps"] += 1
        self.counts["lacks_bytes"] += missing_bytes
        text = f"the capture lacks {missing_bytes} bytes that the {sender} sent"
        self._event("gap", at_us, {"offset": offset, "bytes": missing_bytes, "text": text}, _DIRECTIONS[sender])

    def _sender(self, end: HostPort) -> Sender:
        return Sender.CLIENT if end == self._info.client else Sender.SERVER

    def _event(self, event: str, at_us: int, note: dict[str, Any], direction: str = "", data: bytes = b"") -> None:
        self._set_time(at_us)
        self._on_commit(self._recorder.event(self, event, note, direction, data), len(data))

    # WebSocket

    def _receive_websocket(self, sender: Sender, at_us: int, data: bytes) -> None:
        if sender in self._lost:
            text = "bytes after a place where no WebSocket frame could be found"
            self.on_unreadable(sender, at_us, data, ProtocolError("after_gap", text, self._cutters[sender].offset))
        else:
            try:
                messages = self._websocket[sender].receive(data)
            except ProtocolError as error:
                messages = []
                self._lose_websocket(sender, at_us, error)
            for message in messages:
                cut_message(self._info.protocol, sender, Carrier.WEBSOCKET, at_us, message, self)
        self._cutters[sender].offset += len(data)

    def _lose_websocket(self, sender: Sender, at_us: int, error: ProtocolError) -> None:
        reader = self._websocket[sender]
        if sender not in self._lost and reader.rest:
            self.on_unreadable(sender, at_us, reader.rest, ProtocolError(error.code, error.text, reader.position))
        self._lost.add(sender)
