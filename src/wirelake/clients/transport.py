"""One connection, or one UDP socket: bytes come and go, and at some point it is over."""

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

from wirelake.limits import CLIENT_KEEPALIVE_PROBES, CLIENT_KEEPALIVE_S, CLIENT_WRITE_BYTES_MAX

Receive = Callable[[bytes], None]


class ClientTransport(Protocol):
    """What a client knows of its connection."""

    receive: Receive  # called with each read, or each datagram
    lost: Callable[[str], None]  # called once, with the reason

    def write(self, packets: list[bytes]) -> None: ...

    def close(self) -> None:
        """Once what was written is on its way."""
        ...


def _ignore(_: object) -> None:
    """Until somebody listens."""


class StreamTransport(asyncio.Protocol):
    """TCP, with TLS or without."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.receive: Receive = _ignore
        self.lost: Callable[[str], None] = _ignore
        self.ended: asyncio.Future[str] = loop.create_future()  # why
        self._reason = ""
        self._writable = asyncio.Event()
        self._writable.set()

    def write(self, packets: list[bytes]) -> None:
        if not self._transport.is_closing():
            self._transport.write(packets[0] if len(packets) == 1 else b"".join(packets))

    async def drained(self) -> None:
        """Until the network has taken enough of what was written."""
        await self._writable.wait()

    def listen(self, wanted: bool) -> None:
        """Whether more is to be read."""
        transport = self._transport
        if transport.is_closing() or wanted == transport.is_reading():
            return
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def close(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # asyncio's view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=CLIENT_WRITE_BYTES_MAX)
        raw = transport.get_extra_info("socket")
        if raw is not None and sys.platform != "darwin":  # macOS has no TCP_KEEPIDLE
            # Without keep-alive, a connection that died without a FIN is never noticed.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, CLIENT_KEEPALIVE_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, CLIENT_KEEPALIVE_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CLIENT_KEEPALIVE_PROBES)

    def data_received(self, data: bytes) -> None:
        self.receive(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason or (str(exc) if exc else "the gateway closed the connection")
        self._writable.set()
        if not self.ended.done():
            self.ended.set_result(reason)
        self.lost(reason)


class DatagramTransport(asyncio.DatagramProtocol):
    """A UDP socket that speaks to one address. Errors from the network do not end it: the gateway may come back."""

    def __init__(self) -> None:
        self.receive: Receive = _ignore
        self.lost: Callable[[str], None] = _ignore

    def write(self, packets: list[bytes]) -> None:
        if not self._transport.is_closing():
            for packet in packets:
                self._transport.sendto(packet)

    def close(self) -> None:
        self._transport.close()

    # asyncio's view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost(str(exc) if exc else "the socket was closed")
