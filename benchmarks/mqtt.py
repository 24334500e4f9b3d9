"""Just enough MQTT 3.1.1 to load mosquitto: QoS 1 publishes in windows, and a subscriber that acks."""

import asyncio
import struct


def _length(size: int) -> bytes:
    out = b""
    while True:
        size, low = size >> 7, size & 0x7F
        out += bytes([low | 0x80 if size else low])
        if not size:
            return out


def connect_packet(client_id: bytes, *, clean: bool) -> bytes:
    body = b"\x00\x04MQTT\x04" + (b"\x02" if clean else b"\x00") + b"\x00\x3c"
    body += struct.pack(">H", len(client_id)) + client_id
    return b"\x10" + _length(len(body)) + body


def subscribe_packet(topic: bytes) -> bytes:
    body = b"\x00\x01" + struct.pack(">H", len(topic)) + topic + b"\x01"
    return b"\x82" + _length(len(body)) + body


def publish_packet(topic: bytes, payload: bytes, number: int) -> bytes:
    body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + payload
    return b"\x32" + _length(len(body)) + body


class Subscriber(asyncio.Protocol):
    """Every message has the same length; each is acked with its own packet number."""

    def __init__(self, wanted: int, message_bytes: int, number_at: int, done: asyncio.Future[None]) -> None:
        self.wanted, self.done = wanted, done
        self._bytes, self._number_at = message_bytes, number_at
        self._held = b""
        self.ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self.ready:
            return
        data = self._held + data
        whole = len(data) // self._bytes
        numbers = [data[n * self._bytes + self._number_at :][:2] for n in range(whole)]
        self._held = data[whole * self._bytes :]
        self.transport.write(b"".join([b"\x40\x02" + number for number in numbers]))
        self.wanted -= whole
        if self.wanted <= 0 and not self.done.done():
            self.done.set_result(None)
