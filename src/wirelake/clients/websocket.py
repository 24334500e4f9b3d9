"""A WebSocket connection, seen by a client as if it were the protocol's own TCP.

Inside, each message has its size before it, as sisnet writes it on TCP, so everything above reads and writes a stream
and need not know. The `websockets` library speaks the protocol: its pure part, without sockets.
"""

import asyncio
import logging
from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from wirelake.clients.transport import StreamTransport
from wirelake.protocols.sisnet.limits import SISNET_MESSAGE_BYTES_MAX
from wirelake.protocols.sisnet.sizes import size_width, sized

_quiet: Final = logging.getLogger("websockets.client")
_JSON: Final = (b"{", b"[")


class WebSocketTransport(StreamTransport):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._websocket = ClientProtocol(parse_uri(url), max_size=SISNET_MESSAGE_BYTES_MAX, logger=_quiet)
        self._early: list[bytes] = []  # said before the handshake was answered
        self._parts: list[bytes] = []  # of a message in several frames; the library bounds it

    def write(self, packets: list[bytes]) -> None:
        if self._websocket.state is not OPEN:
            self._early += packets
            return
        for packet in packets:
            message = packet[size_width(packet[0]) :]
            if message[message.find(b":") + 1 :][:1] in _JSON:
                self._websocket.send_text(message)
            else:
                self._websocket.send_binary(message)
        self._flush()

    def close(self, reason: str = "") -> None:
        if self._websocket.state is OPEN and not self._transport.is_closing():
            self._websocket.send_close()
            self._flush()
        super().close(reason)

    # asyncio's view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._websocket.send_request(self._websocket.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._opened()
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._gather(event)
        self._flush()
        fault = self._websocket.handshake_exc or self._websocket.parser_exc
        if fault is not None:
            super().close(f"no WebSocket: {fault}")
        elif self._websocket.close_expected():
            super().close(self._goodbye())

    def _opened(self) -> None:
        early, self._early = self._early, []
        if early and self._websocket.state is OPEN:
            self.write(early)

    def _gather(self, frame: Frame) -> None:
        self._parts.append(bytes(frame.data))
        if frame.fin:
            message, self._parts = b"".join(self._parts), []
            self.receive(sized(message))

    def _flush(self) -> None:
        if not self._transport.is_closing():
            for data in self._websocket.data_to_send():
                if data:
                    self._transport.write(data)

    def _goodbye(self) -> str:
        said = self._websocket.close_rcvd
        return "" if said is None else said.reason or f"closed with code {said.code}"
