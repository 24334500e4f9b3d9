"""A WebSocket connection: one WebSocket message is one frame of the protocol behind it.

The `websockets` library speaks the protocol (its pure part, without sockets); this is the pump around it. What a server
sends is not masked, so a message's bytes do not depend on the connection: they are made by the splitter's `wrap`, held,
joined and shared between subscribers like those of any other connection.
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
from wirelake.gateway.transport.endpoint import Endpoint
from wirelake.gateway.transport.origins import origin_allowed
from wirelake.gateway.transport.websocket_masks import Masking
from wirelake.limits import GATEWAY_MESSAGES_CUT_BYTES, GATEWAY_TURN_S
from wirelake.protocols.protocol import WebSocketOptions
from wirelake.protocols.session import Closing
from wirelake.protocols.splitter import DatagramSplitter

_GOING_AWAY: Final = 1001
_NORMAL: Final = 1000
_END_OF_HANDSHAKE: Final = b"\r\n\r\n"
_HEAD_BYTES_MAX: Final = 14  # of a WebSocket frame, the mask included
_CONTROL_HEAD_BYTES: Final = 6  # with the mask
_REASON_BYTES_MAX: Final = 123  # what a close frame has room for
_KEY: Final = "Sec-WebSocket-Key"
_ACCEPT: Final = "Sec-WebSocket-Accept"
_AUTHORS_KEY: Final = re.compile(r"[!-~]{24}")  # as long as base64 of 16 bytes, which it need not be
_STANDARD_KEY: Final = "AAAAAAAAAAAAAAAAAAAAAA=="
_quiet: Final = logging.getLogger("websockets.server")
_quiet.setLevel(logging.WARNING)  # of each connection the gateway tells itself


class MessageSplitter(DatagramSplitter):
    """Each message is a frame; `is_text` says which go out as text."""

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
    """What a client sends is masked."""

    __slots__ = ()
    mask = True


class WebSocketConnection(Connection):
    """Either end of it: `websocket` is the library's half, and `_shaken` is told of the other end's handshake."""

    __slots__ = ("_over", "_parts", "_unparsed_bytes", "_websocket")

    def __init__(self, endpoint: Endpoint, websocket: Protocol, slot: Slot | None = None) -> None:
        super().__init__(endpoint, slot)
        self._websocket = websocket
        self._over = False  # the library has said its last word
        self._unparsed_bytes = 0  # since the last whole frame; the library holds them
        self._parts: list[bytes] = []  # of a message in several frames; the library bounds it

    def read(self, data: bytes) -> None:
        """In small pieces: how many frames there are in one is known only afterwards, and each costs the same."""
        ends_s = monotonic() + GATEWAY_TURN_S
        frames: list[bytes] = []
        size = place = events = 0
        while place < len(data) and self._closing is None and (not place or monotonic() < ends_s):
            piece = self._piece(data, place)
            self._websocket.receive_data(self._readable(piece))
            place += len(piece)
            found = self._websocket.events_received()
            self._unparsed_bytes = 0 if found else self._unparsed_bytes + len(piece)
            for event in found:
                events += 1
                if not isinstance(event, Frame):
                    self._shaken(event)
                elif event.opcode in DATA_OPCODES:
                    message = self._gather(event)
                    if message:
                        size += len(message)
                        frames += self._splitter.receive(message)
                        if self.slot is not None and not self.slot.authenticated:  # it may be the login
                            self._consume(frames, len(message), 1)
                            frames = []
                else:
                    size += _CONTROL_HEAD_BYTES + len(event.data)
            too_long = self._unparsed_bytes > self._splitter.frame_bytes_max + _HEAD_BYTES_MAX
            if too_long and self._websocket.parser_exc is None:
                self._too_long()
        if place < len(data):
            self._read_limiter.put_back(data[place:])
        if self._closing is None:
            self.bytes_in += size
            self._consume(frames, place, events)
        self._answer()

    def read_on(self) -> None:
        super().read_on()
        self._answer()

    def _piece(self, data: bytes, place: int) -> bytes:
        """As much as the library is given at once."""
        return data[place : place + GATEWAY_MESSAGES_CUT_BYTES]

    def _readable(self, data: bytes) -> bytes:
        """As the library reads it."""
        return data

    def _too_long(self) -> None:
        """Refuse a message or a handshake that goes on and on: the library's own limit cannot rise with the login."""
        text = f"{self._unparsed_bytes} bytes without a complete message exceed the limit before the login"
        if self._websocket.state is OPEN:
            self._websocket.fail(CloseCode.MESSAGE_TOO_BIG, text)
            self._answer()
        self._finish(Closing("message_bytes_max", text))

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._unparsed_bytes + sum(map(len, self._parts))

    def _shaken(self, event: Event) -> None:
        raise NotImplementedError

    def eof_received(self) -> bool:
        self._websocket.receive_eof()
        return False

    def _gather(self, frame: Frame) -> bytes:
        """The message that this frame ends, if it does."""
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return b""
        message, self._parts = b"".join(self._parts), []
        return message

    def _discard(self) -> None:
        super()._discard()
        self._parts = []
        del self._websocket  # with what it has read of a message, and whatever it holds

    def _answer(self) -> None:
        """What the library has to say of its own: the handshake, pongs, a close."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        for data in self._websocket.data_to_send():
            if data:
                transport.write(data)
            else:
                self._over = True
        if (self._over or self._websocket.close_expected()) and not self.has_more:
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


class ServerWebSocket(WebSocketConnection):
    """Accept a client that connects to a listener."""

    __slots__ = ("_accepting", "_lenient", "_masking", "_options", "_tail")

    def __init__(self, endpoint: Endpoint, options: WebSocketOptions, slot: Slot | None = None) -> None:
        self._accepting = ServerProtocol(max_size=options.message_bytes_max, logger=_quiet)
        super().__init__(endpoint, self._accepting, slot)
        self._options = options
        self._lenient = options.lenient
        self._masking = Masking() if self._lenient else None
        self._tail = b""  # the last bytes of the request, where its end may be cut in two

    def _readable(self, data: bytes) -> bytes:
        return data if self._masking is None else self._masking.receive(data)

    def _piece(self, data: bytes, place: int) -> bytes:
        """The library would read on behind a request that is not answered yet: it is given the request alone."""
        piece = super()._piece(data, place)
        if self._accepting.state is CONNECTING:
            seen = self._tail + piece
            end = seen.find(_END_OF_HANDSHAKE)
            if end >= 0:
                return piece[: end + len(_END_OF_HANDSHAKE) - len(self._tail)]
            self._tail = seen[-len(_END_OF_HANDSHAKE) + 1 :]
        return piece

    def _discard(self) -> None:
        super()._discard()
        del self._accepting

    def _shaken(self, event: Event) -> None:
        if isinstance(event, Request):
            self._accepting.send_response(self._response(event))

    def _response(self, request: Request) -> Response:
        """The library leaves the Host header to others; without exactly one, HTTP/1.1 wants a 400."""
        hosts = len(request.headers.get_all("Host"))
        if hosts > 1 or (hosts == 0 and not self._lenient):
            return self._accepting.reject(HTTPStatus.BAD_REQUEST, "A request needs one Host header.\n")
        if not self._page_allowed(request):
            text = f"Pages of this site may not connect: {self._options.origins_setting}.\n"
            return self._accepting.reject(HTTPStatus.FORBIDDEN, text)
        return self._accept_any_key(request) if self._lenient else self._accepting.accept(request)

    def _accept_any_key(self, request: Request) -> Response:
        """Accept a key of 24 characters that are not base64 of 16 bytes, which the library refuses.

        The library checks everything else with a key of the right form in its place; the answer is made from the
        client's own.
        """
        keys = request.headers.get_all(_KEY)
        if len(keys) != 1 or _AUTHORS_KEY.fullmatch(keys[0]) is None:
            return self._accepting.accept(request)
        del request.headers[_KEY]
        request.headers[_KEY] = _STANDARD_KEY
        response = self._accepting.accept(request)
        if _ACCEPT in response.headers:
            del response.headers[_ACCEPT]
            response.headers[_ACCEPT] = accept_key(keys[0])
        return response

    def _page_allowed(self, request: Request) -> bool:
        origins = request.headers.get_all("Origin")
        if not origins:
            return True  # no browser
        gateway = self._endpoint.gateway
        http_listener = gateway.listeners.get("http")
        return len(origins) == 1 and origin_allowed(
            origins[0],
            request.headers.get("Host", ""),
            None if http_listener is None else http_listener.address.port,
            secure=gateway.tls is not None,
            listed=self._options.origins,
            open_to_all=gateway.settings.auth.open,
        )


class ClientWebSocket(WebSocketConnection):
    """We called a server."""

    __slots__ = ("_calling",)

    def __init__(self, endpoint: Endpoint, url: str, message_bytes_max: int) -> None:
        self._calling = ClientProtocol(parse_uri(url), max_size=message_bytes_max, logger=_quiet)
        super().__init__(endpoint, self._calling)

    def _discard(self) -> None:
        super()._discard()
        del self._calling

    def _on_connected(self) -> None:
        self._calling.send_request(self._calling.connect())
        self._answer()

    def _shaken(self, event: Event) -> None:
        if isinstance(event, Response) and self._calling.state is OPEN:
            self._endpoint.on_open(self)
