"""UDP: one session for each source address, driven by the same code as a TCP connection.

A datagram holds one frame or several, whole ones. What cannot be read is quarantined, and the session goes on. Sources
count among the connections and, before their login, among those of peers without one; a source that says nothing for
`UDP_IDLE_S` ends.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from wirelake.address import Address
from wirelake.errors import EncodeError, ProtocolError
from wirelake.gateway.auth.admission import Slot, address_of
from wirelake.gateway.auth.before_login import account_for
from wirelake.gateway.limits import UDP_DATAGRAM_BYTES_MAX, UDP_IDLE_CHECK_S, UDP_IDLE_S, UDP_WAITING_BYTES_MAX
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.endpoint import Endpoint
from wirelake.gateway.transport.listen_error import listen_error
from wirelake.gateway.transport.outbox import Outbox
from wirelake.gateway.transport.tcp import ProtocolListener
from wirelake.limits import GATEWAY_DATAGRAM_BYTES, QUARANTINE_BYTES_MAX
from wirelake.protocols.frame import Frame
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

SourceAddress = tuple[str | Any, int]  # as the socket gives it: IPv6 has two numbers more


class UdpConnection(Connection):
    """The session of one source address."""

    __slots__ = ("_datagram", "_waiting", "_waiting_bytes", "received_s")

    def __init__(self, listener: Endpoint, slot: Slot, now_s: float) -> None:
        super().__init__(listener, slot)
        self.received_s = now_s  # when the last datagram came
        self._datagram = b""  # the part of it that was handed over: a long one takes several turns
        self._waiting: deque[bytes] = deque()  # datagrams that came while it was not read
        self._waiting_bytes = 0

    @property
    def encoding_key(self) -> None:
        """Bytes for many subscribers are joined without regard to a datagram's end."""
        return

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._waiting_bytes + len(self._datagram)

    def _on_connected(self) -> None:
        gate = self._endpoint.gateway.commit_barrier
        self._outbox = Outbox(gate, self._send, self.storage_failed, GATEWAY_DATAGRAM_BYTES)
        super()._on_connected()

    def data_received(self, data: bytes) -> None:
        if not self._read_limiter.stopped:
            super().data_received(data)
        elif self._waiting_bytes + len(data) > UDP_WAITING_BYTES_MAX:
            self._endpoint.gateway.counters.errors[self.protocol, "datagram_dropped"] += 1
        else:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self.slot is not None and not self.slot.authenticated:
                account_for(self, len(data))

    def read_waiting(self) -> None:
        """Take the datagrams that came while the connection was not read."""
        while self._waiting and not self._read_limiter.stopped and self._closing is None:
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
        self._fit_splitter()
        frames = self._splitter.receive(datagram)
        self._splitter.finish()
        self.bytes_in += len(datagram)
        self._consume(frames, len(datagram), max(1, len(frames)))

    def _unreadable(self, error: ProtocolError, raw: bytes, now_s: float, *, recorded: bool = False) -> None:
        """Quarantine this much of the datagram. Nothing is answered: who sent it may be somebody else."""
        unread = self._session.redact_unreadable(raw[:QUARANTINE_BYTES_MAX])
        self._endpoint.gateway.quarantine(self, unread, error, recorded=recorded)
        if not recorded:
            self._splitter.failure = None

    def _write_frames(self, frames: Sequence[Frame], *, told: bool) -> None:
        """One by one, so that the outbox fills datagrams with whole frames."""
        for frame in frames:
            if told and (size := len(frame.encode())) > UDP_DATAGRAM_BYTES_MAX:
                raise EncodeError(f"a frame of {size} bytes exceeds the {UDP_DATAGRAM_BYTES_MAX} of a datagram")
            super()._write_frames([frame], told=told)

    def _discard(self) -> None:
        super()._discard()
        self._datagram, self._waiting_bytes = b"", 0
        self._waiting.clear()


class SourceTransport(asyncio.Transport):
    """A UDP socket as the connection of one source address sees it."""

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
        """Nothing is buffered here."""

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        """Datagrams that come meanwhile wait in the connection."""

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
    """All source addresses that send to one address."""

    def __init__(self, gateway: "Gateway", protocol: Protocol, setting: str, address: Address) -> None:
        super().__init__(gateway, protocol, setting, address, Carrier.UDP)
        self._sources: dict[SourceAddress, UdpConnection] = {}  # the one that was silent for longest first
        self._transport: asyncio.DatagramTransport | None = None
        self._is_open = False
        self._is_congested = False  # the socket takes no more for now

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
        self.gateway.timers.add(self.gateway.now_s() + UDP_IDLE_CHECK_S, self)

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def sources(self) -> int:
        """How many source addresses have a session."""
        return len(self._sources)

    def close(self) -> None:
        """Take no more datagrams. The socket stays until those who have a session were sent their last word."""
        self._is_open = False
        self._close_unused()

    def tick(self, now_s: float) -> float | None:
        """End the sources that said nothing for long."""
        if not self._is_open:
            return None
        for connection in list(self._sources.values()):
            if connection.received_s + UDP_IDLE_S > now_s:
                break
            connection.close(Closing("idle", f"no datagram for {UDP_IDLE_S:g} s"))
        return now_s + UDP_IDLE_CHECK_S

    # asyncio's view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: SourceAddress) -> None:
        if not self._is_open:
            return
        now_s = self.gateway.now_s()
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
        gateway = self.gateway
        slot = gateway.admission.enter(address_of(source), authenticated=gateway.settings.auth.open)
        if isinstance(slot, str):
            gateway.counters.refused[self.protocol.name, slot] += 1
            return None
        connection = UdpConnection(self, slot, now_s)
        transport = SourceTransport(source, self._send, lambda: self._remove(source, connection))
        transport.connect(connection)
        return None if transport.is_closing() else connection

    def _send(self, data: bytes, source: SourceAddress) -> None:
        if self._transport is None:
            return
        if self._is_congested or len(data) > UDP_DATAGRAM_BYTES_MAX:
            self.gateway.counters.errors[self.protocol.name, "datagram_unsent"] += 1
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
