"""A WebSocket connection: one WebSocket message is one frame of the protocol behind it.

The `websockets` library speaks the protocol (its pure part, without sockets); this is the pump around it. What a server
sends is not masked, so a message's bytes do not depend on the connection: they are made by the splitter's `wrap`, held,
joined and shared between subscribers like those of any other connection.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from websockets.exceptions import WebSocketException
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from wirelake.gateway.connection import Connection
from wirelake.gateway.origins import origin_allowed
from wirelake.gateway.unmasked import Masking
from wirelake.limits import SISNET_MESSAGE_BYTES_MAX
from wirelake.protocols.session import Closing
from wirelake.protocols.splitter import DatagramSplitter

if TYPE_CHECKING:
    from wirelake.gateway.door import Door

_GOING_AWAY: Final = 1001
_NORMAL: Final = 1000
_REASON_BYTES_MAX: Final = 123  # what a close frame has room for
_quiet: Final = logging.getLogger("websockets.server")


class MessageSplitter(DatagramSplitter):
    """Each message is a frame; one that is JSON behind its name goes out as text."""

    __slots__ = ()
    plain = False

    def __init__(self, frame_bytes_max: int = SISNET_MESSAGE_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)

    def wrap(self, frame: bytes) -> bytes:
        form = frame[frame.find(b":") + 1 :][:1]
        opcode = Opcode.TEXT if form in (b"{", b"[") else Opcode.BINARY
        return Frame(opcode, frame).serialize(mask=False)


class WebSocketConnection(Connection):
    __slots__ = ("_lenient", "_masking", "_parts", "_websocket")

    def __init__(self, door: "Door") -> None:
        super().__init__(door)
        self._websocket = ServerProtocol(max_size=SISNET_MESSAGE_BYTES_MAX, logger=_quiet)
        self._parts: list[bytes] = []  # of a message in several frames; the library bounds it
        self._lenient = door.gateway.settings.sisnet.lenient
        self._masking = Masking() if self._lenient else None

    def _read(self, data: bytes) -> None:
        self._websocket.receive_data(data if self._masking is None else self._masking.receive(data))
        for event in self._websocket.events_received():
            if isinstance(event, Request):
                self._websocket.send_response(self._accept(event))
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._gather(event)
        self._answer()

    def _accept(self, request: Request) -> Response:
        """The library leaves the Host header to others; without exactly one, HTTP/1.1 wants a 400."""
        hosts = len(request.headers.get_all("Host"))
        if hosts > 1 or (hosts == 0 and not self._lenient):
            return self._websocket.reject(HTTPStatus.BAD_REQUEST, "A request needs one Host header.\n")
        if not self._page_allowed(request):
            return self._websocket.reject(HTTPStatus.FORBIDDEN, "Pages of this site may not connect: sisnet.origins.\n")
        return self._websocket.accept(request)

    def _page_allowed(self, request: Request) -> bool:
        origins = request.headers.get_all("Origin")
        if not origins:
            return True  # no browser
        gateway = self._door.gateway
        http_door = gateway.doors.get("http")
        return len(origins) == 1 and origin_allowed(
            origins[0],
            request.headers.get("Host", ""),
            None if http_door is None else http_door.address.port,
            secure=gateway.tls is not None,
            listed=gateway.settings.sisnet.origins,
            open_to_all=gateway.settings.auth.open,
        )

    def eof_received(self) -> bool:
        self._websocket.receive_eof()
        return False

    def _gather(self, frame: Frame) -> None:
        self._parts.append(bytes(frame.data))
        if frame.fin and self._closing is None:
            message, self._parts = b"".join(self._parts), []
            super()._read(message)

    def _answer(self) -> None:
        """What the library has to say of its own: the handshake, pongs, a close."""
        transport = self._transport
        if not isinstance(transport, asyncio.Transport) or transport.is_closing():
            return
        over = False
        for data in self._websocket.data_to_send():
            if data:
                transport.write(data)
            else:
                over = True
        if over or self._websocket.close_expected():
            self._finish(Closing(*self._why()))

    def _why(self) -> tuple[str, str]:
        websocket = self._websocket
        fault = websocket.parser_exc or websocket.handshake_exc
        if isinstance(fault, WebSocketException):
            return "websocket", str(fault)
        return "peer_closed", ""

    def _hang_up(self) -> None:
        if self._websocket.state is OPEN and self._transport is not None and not self._transport.is_closing():
            closing = self._closing or Closing("")
            code = _GOING_AWAY if closing.code == "shutdown" else _NORMAL
            reason = closing.text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
            self._websocket.send_close(code, reason)
            for data in self._websocket.data_to_send():
                if data:
                    self._transport.write(data)
        super()._hang_up()
