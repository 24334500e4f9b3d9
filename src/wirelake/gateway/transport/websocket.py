"""Serve and connect WebSockets: one WebSocket message is one frame of the protocol on top.

The Sans-I/O part of the `websockets` library implements the protocol; this module moves bytes between it and asyncio.
Servers do not mask what they send, so the bytes of a message do not depend on the connection: the splitter's `wrap`
encodes them, and they are held, joined and shared between subscribers like those of any other connection.
"""

import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import ClassVar, Final

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import DATA_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN, Event, Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri
from websockets.utils import accept_key

from wirelake.gateway.auth.admission import Slot
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import Endpoint
from wirelake.limits import GATEWAY_MESSAGES_CUT_BYTES, GATEWAY_TURN_S
from wirelake.protocols.protocol import WebSocketOptions
from wirelake.protocols.session import Closing
from wirelake.protocols.splitter import DatagramSplitter

_GOING_AWAY: Final = 1001
_NORMAL: Final = 1000
_END_OF_HANDSHAKE: Final = b"\r\n\r\n"
_HEADER_BYTES_MAX: Final = 14  # of a WebSocket frame, including the mask
_CONTROL_HEADER_BYTES: Final = 6  # including the mask
_REASON_BYTES_MAX: Final = 123  # in a close frame
_MASKED: Final = 0x80  # the bit of a frame header that announces a mask
_MASK_BYTES: Final = 4
_ZERO_MASK: Final = bytes(_MASK_BYTES)
_LENGTH_BYTES: Final = {126: 2, 127: 8}  # of the extended length, by the 7-bit length that announces it
_KEY: Final = "Sec-WebSocket-Key"
_ACCEPT: Final = "Sec-WebSocket-Accept"
_ANY_KEY: Final = re.compile(r"[!-~]{24}")  # the length of 16 bytes in base64, with any characters
_STANDARD_KEY: Final = "AAAAAAAAAAAAAAAAAAAAAA=="
_library_log: Final = logging.getLogger("websockets.server")
_library_log.setLevel(logging.WARNING)  # the gateway logs connections itself


class MessageSplitter(DatagramSplitter):
    """Treat each message as a frame. `is_text` says which frames are sent as text messages."""

    __slots__ = ("_is_text",)
    plain = False
    mask: ClassVar[bool] = False

    def __init__(self, frame_bytes_max: int, is_text: Callable[[bytes], bool]) -> None:
        super().__init__(frame_bytes_max)
        self._is_text = is_text

    def wrap(self, frame: bytes) -> bytes:
        opcode = Opcode.TEXT if self._is_text(frame) else Opcode.BINARY
        return Frame(opcode, frame).serialize(mask=self.mask)


class MaskedMessageSplitter(MessageSplitter):
    """Mask messages, as clients must."""

    __slots__ = ()
    mask = True


class WebSocketConnection(Connection):
    """Drive a session over WebSocket, as a server or a client. `websocket` is the protocol object of the library."""

    __slots__ = ("_fragments", "_is_finished", "_unparsed_bytes", "_websocket")

    def __init__(self, endpoint: Endpoint, websocket: Protocol, slot: Slot | None = None) -> None:
        super().__init__(endpoint, slot)
        self._websocket = websocket
        self._is_finished = False  # the library has nothing more to send
        self._unparsed_bytes = 0  # since the last complete frame; the library buffers them
        self._fragments: list[bytes] = []  # of a fragmented message; the library limits their size

    def read(self, data: bytes) -> None:
        """Parse bytes in small chunks, because the number of frames in a chunk is not known in advance."""
        ends_s = monotonic() + GATEWAY_TURN_S
        frames: list[bytes] = []
        size = place = events = 0
        while place < len(data) and self._closing is None and (not place or monotonic() < ends_s):
            chunk = self._next_chunk(data, place)
            self._websocket.receive_data(self._normalize(chunk))
            place += len(chunk)
            found = self._websocket.events_received()
            self._unparsed_bytes = 0 if found else self._unparsed_bytes + len(chunk)
            for event in found:
                events += 1
                if not isinstance(event, Frame):
                    self._on_handshake(event)
                elif event.opcode in DATA_OPCODES:
                    message = self._reassemble(event)
                    if message:
                        size += len(message)
                        frames += self._splitter.receive(message)
                        if self.slot is not None and not self.slot.authenticated:  # this message may be the login
                            self._consume(frames, len(message), 1)
                            frames = []
                else:
                    size += _CONTROL_HEADER_BYTES + len(event.data)
            is_oversized = self._unparsed_bytes > self._splitter.frame_bytes_max + _HEADER_BYTES_MAX
            if is_oversized and self._websocket.parser_exc is None:
                self._reject_oversized()
        if place < len(data):
            self._read_limiter.put_back(data[place:])
        if self._closing is None:
            self.bytes_in += size
            self._consume(frames, place, events)
        self._send_pending()

    def continue_reading(self) -> None:
        super().continue_reading()
        self._send_pending()

    def _next_chunk(self, data: bytes, place: int) -> bytes:
        """Return the next bytes to pass to the library."""
        return data[place : place + GATEWAY_MESSAGES_CUT_BYTES]

    def _normalize(self, data: bytes) -> bytes:
        """Return received bytes in the form that the library accepts."""
        return data

    def _reject_oversized(self) -> None:
        """Close after an oversized message or handshake: the limit rises with the login, that of the library cannot."""
        text = f"{self._unparsed_bytes} bytes without a complete message exceed the limit before the login"
        if self._websocket.state is OPEN:
            self._websocket.fail(CloseCode.MESSAGE_TOO_BIG, text)
            self._send_pending()
        self._finish(Closing("message_bytes_max", text))

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._unparsed_bytes + sum(map(len, self._fragments))

    def _on_handshake(self, event: Event) -> None:
        """Handle the handshake request or response of the other end."""
        raise NotImplementedError

    def eof_received(self) -> bool:
        self._websocket.receive_eof()
        return False

    def _reassemble(self, frame: Frame) -> bytes:
        """Add a data frame to its message. Return the message if the frame is its last, or b""."""
        self._fragments.append(bytes(frame.data))
        if not frame.fin:
            return b""
        message, self._fragments = b"".join(self._fragments), []
        return message

    def _discard(self) -> None:
        super()._discard()
        self._fragments = []
        del self._websocket  # frees its buffers

    def _send_pending(self) -> None:
        """Send what the library has to send: its part of the handshake, pongs, a close frame."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        for data in self._websocket.data_to_send():
            if data:
                transport.write(data)
            else:
                self._is_finished = True
        if (self._is_finished or self._websocket.close_expected()) and not self.has_more:
            self._finish(Closing(*self._close_reason()))

    def _close_reason(self) -> tuple[str, str]:
        """Return the code and text for closing the session."""
        websocket = self._websocket
        error = websocket.parser_exc or websocket.handshake_exc
        if isinstance(error, WebSocketException):
            return "websocket", str(error)
        return "peer_closed", ""

    def _close_transport(self) -> None:
        if self._websocket.state is OPEN and self._transport is not None and not self._transport.is_closing():
            closing = self._closing or Closing("")
            code = _GOING_AWAY if closing.code == "shutdown" else _NORMAL
            reason = closing.text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
            self._websocket.send_close(code, reason)
            for data in self._websocket.data_to_send():
                if data:
                    self._transport.write(data)
        super()._close_transport()


class FrameMasker:
    """Add a zero mask to the frames of clients that do not mask them: the library rejects unmasked frames.

    A mask of zeros does not change the payload. So it is enough to set the mask bit and insert four zero bytes after
    the length. The handshake and masked frames pass unchanged.

    ├───────┼───────┬───────────┬──────────
    │ flags │ M len │ more len  │ mask[4] if M, then the payload
    └───────┴───────┴───────────┴──────────
               126: u16, 127: u64
    """

    __slots__ = ("_header", "_is_open", "_payload_left", "_tail")

    def __init__(self) -> None:
        self._is_open = False  # True after the handshake
        self._tail = b""  # the last bytes of the handshake: its end may be split between reads
        self._header = b""  # incomplete header of a frame
        self._payload_left = 0

    def receive(self, data: bytes) -> bytes:
        """Return received bytes with masks added. Buffer at most the header of a frame."""
        if not self._is_open:
            return self._receive_handshake(data)
        parts: list[bytes] = []
        position = 0
        while position < len(data):
            if self._payload_left:
                chunk = data[position : position + self._payload_left]
                self._payload_left -= len(chunk)
                position += len(chunk)
                parts.append(chunk)
                continue
            self._header += data[position : position + 1]
            position += 1
            if len(self._header) >= 2 and len(self._header) == 2 + _LENGTH_BYTES.get(self._header[1] & ~_MASKED, 0):
                parts.append(self._begin_frame(self._header))
                self._header = b""
        return b"".join(parts)

    def _receive_handshake(self, data: bytes) -> bytes:
        seen = self._tail + data
        end = seen.find(_END_OF_HANDSHAKE)
        if end < 0:
            self._tail = seen[-len(_END_OF_HANDSHAKE) + 1 :]
            return data
        self._is_open = True
        first = end + len(_END_OF_HANDSHAKE) - len(self._tail)
        return data[:first] + self.receive(data[first:])

    def _begin_frame(self, header: bytes) -> bytes:
        """Return the header with its mask, and set how many bytes follow it in the frame."""
        length = int.from_bytes(header[2:]) if len(header) > 2 else header[1] & ~_MASKED
        if header[1] & _MASKED:
            self._payload_left = _MASK_BYTES + length
            return header
        self._payload_left = length
        return header[:1] + bytes((header[1] | _MASKED,)) + header[2:] + _ZERO_MASK


class ServerWebSocket(WebSocketConnection):
    """Serve a client that connected to a listener."""

    __slots__ = ("_is_lenient", "_masker", "_options", "_server", "_tail")

    def __init__(self, endpoint: Endpoint, options: WebSocketOptions, slot: Slot | None = None) -> None:
        self._server = ServerProtocol(max_size=options.message_bytes_max, logger=_library_log)
        super().__init__(endpoint, self._server, slot)
        self._options = options
        self._is_lenient = options.lenient
        self._masker = FrameMasker() if self._is_lenient else None
        self._tail = b""  # the last bytes of the request: its end may be split between reads

    def _normalize(self, data: bytes) -> bytes:
        return data if self._masker is None else self._masker.receive(data)

    def _next_chunk(self, data: bytes, place: int) -> bytes:
        """Return no bytes after the request until it is answered: the library would parse them."""
        chunk = super()._next_chunk(data, place)
        if self._server.state is CONNECTING:
            seen = self._tail + chunk
            end = seen.find(_END_OF_HANDSHAKE)
            if end >= 0:
                return chunk[: end + len(_END_OF_HANDSHAKE) - len(self._tail)]
            self._tail = seen[-len(_END_OF_HANDSHAKE) + 1 :]
        return chunk

    def _discard(self) -> None:
        super()._discard()
        del self._server

    def _on_handshake(self, event: Event) -> None:
        if isinstance(event, Request):
            self._server.send_response(self._response(event))

    def _response(self, request: Request) -> Response:
        """Return the handshake response. The library does not check the Host header: HTTP/1.1 requires exactly one."""
        hosts = len(request.headers.get_all("Host"))
        if hosts > 1 or (hosts == 0 and not self._is_lenient):
            return self._server.reject(HTTPStatus.BAD_REQUEST, "A request needs one Host header.\n")
        if not self._is_origin_allowed(request):
            text = f"Origin not allowed. Add it to {self._options.origins_setting}.\n"
            return self._server.reject(HTTPStatus.FORBIDDEN, text)
        return self._accept_any_key(request) if self._is_lenient else self._server.accept(request)

    def _accept_any_key(self, request: Request) -> Response:
        """Accept a key of 24 characters that is not base64 of 16 bytes, which the library rejects.

        Have the library check the request with a valid key, and compute the accept header from the client's own.
        """
        keys = request.headers.get_all(_KEY)
        if len(keys) != 1 or _ANY_KEY.fullmatch(keys[0]) is None:
            return self._server.accept(request)
        del request.headers[_KEY]
        request.headers[_KEY] = _STANDARD_KEY
        response = self._server.accept(request)
        if _ACCEPT in response.headers:
            del response.headers[_ACCEPT]
            response.headers[_ACCEPT] = accept_key(keys[0])
        return response

    def _is_origin_allowed(self, request: Request) -> bool:
        origins = request.headers.get_all("Origin")
        if not origins:
            return True  # not a browser
        host = request.headers.get("Host", "")
        return len(origins) == 1 and self._context.origins.allows(origins[0], host, self._options.origins)


class ClientWebSocket(WebSocketConnection):
    """Connect to a server."""

    __slots__ = ("_client",)

    def __init__(self, endpoint: Endpoint, url: str, message_bytes_max: int) -> None:
        self._client = ClientProtocol(parse_uri(url), max_size=message_bytes_max, logger=_library_log)
        super().__init__(endpoint, self._client)

    def _discard(self) -> None:
        super()._discard()
        del self._client

    def _on_connected(self) -> None:
        self._client.send_request(self._client.connect())
        self._send_pending()

    def _on_handshake(self, event: Event) -> None:
        if isinstance(event, Response) and self._client.state is OPEN:
            self._endpoint.on_open(self)
