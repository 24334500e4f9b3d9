"""Serve UDP: one session for each source address, driven by the same code as a TCP connection.

A datagram holds one or more complete frames. Bytes that cannot be decoded are quarantined, and the session continues.
Sources count as connections and, before their login, as peers without one. A source that sends nothing for
`UDP_IDLE_S` is closed.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from wirelake.address import Address
from wirelake.commit import Commit
from wirelake.errors import EncodeError, ProtocolError
from wirelake.gateway.auth.admission import Slot, account_for, address_of
from wirelake.gateway.transport.acceptor import listen_error
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import Endpoint, TransportContext
from wirelake.gateway.transport.outbox import Outbox
from wirelake.gateway.transport.tcp import ProtocolListener
from wirelake.limits import (
    GATEWAY_DATAGRAM_BYTES,
    UDP_DATAGRAM_BYTES_MAX,
    UDP_IDLE_CHECK_S,
    UDP_IDLE_S,
    UDP_WAITING_BYTES_MAX,
)
from wirelake.protocols.frame import Frame
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Step

SourceAddress = tuple[str | Any, int]  # as the socket returns it; IPv6 has two more numbers


class UdpConnection(Connection):
    """Drive the session of one source address."""

    __slots__ = ("_datagram", "_waiting", "_waiting_bytes", "received_s")

    def __init__(self, listener: Endpoint, slot: Slot, now_s: float) -> None:
        super().__init__(listener, slot)
        self.received_s = now_s  # when the last datagram was received
        self._datagram = b""  # received part of a datagram that takes several turns
        self._waiting: deque[bytes] = deque()  # datagrams received while reading was paused
        self._waiting_bytes = 0

    @property
    def encoding_key(self) -> None:
        """Return None: bytes shared by subscribers may be joined across the end of a datagram."""
        return

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._waiting_bytes + len(self._datagram)

    def _on_connected(self) -> None:
        barrier = self._context.commit_barrier
        self._outbox = Outbox(barrier, self._send, self.on_storage_error, GATEWAY_DATAGRAM_BYTES)
        super()._on_connected()

    def data_received(self, data: bytes) -> None:
        if not self._read_limiter.is_paused:
            super().data_received(data)
        elif self._waiting_bytes + len(data) > UDP_WAITING_BYTES_MAX:
            self._context.counters.errors[self.protocol, "datagram_dropped"] += 1
        else:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self.slot is not None and not self.slot.authenticated:
                account_for(self, len(data))

    def read_waiting(self) -> None:
        """Handle the datagrams that were received while reading was paused."""
        while self._waiting and not self._read_limiter.is_paused and self._closing is None:
            datagram = self._waiting.popleft()
            self._waiting_bytes -= len(datagram)
            super().data_received(datagram)

    def read(self, data: bytes) -> None:
        if self._closing is not None:
            return
        self._datagram += data
        if self._read_limiter.unread_bytes:
            return
        datagram, self._datagram = self._datagram, b""
        self._splitter = self._endpoint.new_splitter()
        self._update_frame_limit()
        frames = self._splitter.receive(datagram)
        self._splitter.finish()
        self.bytes_in += len(datagram)
        self._consume(frames, len(datagram), max(1, len(frames)))

    def _on_unreadable(self, error: ProtocolError, raw: bytes, now_s: float, *, recorded: bool = False) -> None:
        """Quarantine part of a datagram. Send no reply, because the source address may be forged."""
        self._quarantine(raw, error, recorded=recorded)
        if not recorded:
            self._splitter.failure = None

    def _write_frames(self, frames: list[Frame], published: Commit | None) -> None:
        """Write frames one by one, so that the outbox packs whole frames into datagrams."""
        for frame in frames:
            super()._write_frames([frame], published)

    def _apply_notification(self, step: Step) -> None:
        for frame in step.frames:
            if (size := len(frame.encode())) > UDP_DATAGRAM_BYTES_MAX:
                raise EncodeError(f"a frame of {size} bytes exceeds the {UDP_DATAGRAM_BYTES_MAX} of a datagram")
        for frame in step.frames:
            super()._apply_notification(Step([frame]))
        super()._apply_notification(Step(messages=step.messages, closing=step.closing))

    def _discard(self) -> None:
        super()._discard()
        self._datagram, self._waiting_bytes = b"", 0
        self._waiting.clear()


class SourceTransport(asyncio.Transport):
    """Present a UDP socket as the transport of one source address."""

    def __init__(
        self, source: SourceAddress, send: Callable[[bytes, SourceAddress], None], on_close: Callable[[], None]
    ) -> None:
        super().__init__({"peername": source})
        self._source = source
        self._send = send
        self._on_close = on_close
        self._is_closing = False
        self._connection: UdpConnection | None = None

    def connect(self, connection: UdpConnection) -> None:
        self._connection = connection
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._send(bytes(data), self._source)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: this transport has no buffer."""

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        """Do nothing: the connection queues datagrams while reading is paused."""

    def resume_reading(self) -> None:
        if self._connection is not None:
            asyncio.get_running_loop().call_soon(self._connection.read_waiting)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._on_close()
            if self._connection is not None:
                asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.close()


class UdpListener(ProtocolListener, asyncio.DatagramProtocol):
    """Listen for datagrams on one address, with a connection for each source address."""

    def __init__(self, context: TransportContext, protocol: Protocol, setting: str, address: Address) -> None:
        super().__init__(context, protocol, setting, address, Carrier.UDP)
        self._sources: dict[SourceAddress, UdpConnection] = {}  # least recently received first
        self._transport: asyncio.DatagramTransport | None = None
        self._is_open = False
        self._is_congested = False  # the socket's write buffer is full

    async def open(self, tls: ssl.SSLContext | None) -> None:
        self.load_keys()
        loop = asyncio.get_running_loop()
        host, port = self.address.host, self.address.port
        try:
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        except OSError as error:
            raise listen_error(self.setting, self.address, error) from error
        self.address = Address(host, self._transport.get_extra_info("sockname")[1])
        self._is_open = True
        self.context.timers.add(self.context.now_s() + UDP_IDLE_CHECK_S, self)

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def sources(self) -> int:
        """Return how many source addresses have a session."""
        return len(self._sources)

    def close(self) -> None:
        """Stop receiving. Keep the socket open until every session has sent its last frame."""
        self._is_open = False
        self._close_unused()

    def tick(self, now_s: float) -> float | None:
        """Close the connections of idle sources."""
        if not self._is_open:
            return None
        for connection in list(self._sources.values()):
            if connection.received_s + UDP_IDLE_S > now_s:
                break
            connection.close(Closing("idle", f"no datagram for {UDP_IDLE_S:g} s"))
        return now_s + UDP_IDLE_CHECK_S

    # Interface for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: SourceAddress) -> None:
        if not self._is_open:
            return
        now_s = self.context.now_s()
        connection = self._sources.pop(addr, None) or self._new_connection(addr, now_s)
        if connection is None:
            return
        self._sources[addr] = connection
        connection.received_s = now_s
        connection.data_received(data)

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False

    def _new_connection(self, source: SourceAddress, now_s: float) -> UdpConnection | None:
        context = self.context
        slot = context.admission.enter(address_of(source), authenticated=context.settings().auth.open)
        if isinstance(slot, str):
            context.counters.refused[self.protocol.name, slot] += 1
            return None
        connection = UdpConnection(self, slot, now_s)
        transport = SourceTransport(source, self._send, lambda: self._remove(source, connection))
        transport.connect(connection)
        return None if transport.is_closing() else connection

    def _send(self, data: bytes, source: SourceAddress) -> None:
        if self._transport is None:
            return
        if self._is_congested or len(data) > UDP_DATAGRAM_BYTES_MAX:
            self.context.counters.errors[self.protocol.name, "datagram_unsent"] += 1
        else:
            self._transport.sendto(data, source)

    def _remove(self, source: SourceAddress, connection: UdpConnection) -> None:
        if self._sources.get(source) is connection:
            del self._sources[source]
        self._close_unused()

    def _close_unused(self) -> None:
        if not self._is_open and not self._sources and self._transport is not None:
            self._transport.close()
            self._transport = None
