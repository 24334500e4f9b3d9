"""Move bytes over TCP or UDP, and reconnect after a loss."""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from wirelake.backoff import Backoff
from wirelake.errors import ClientError, LateError, RefusedError
from wirelake.limits import (
    CLIENT_CONNECT_S,
    CLIENT_KEEPALIVE_PROBES,
    CLIENT_KEEPALIVE_S,
    CLIENT_STEADY_S,
    CLIENT_WRITE_BYTES_MAX,
)

_log = logging.getLogger(__name__)

OnData = Callable[[bytes], None]  # gets each read, or each datagram
OnLost = Callable[[str], None]  # gets the reason, once


class ClientTransport(Protocol):
    """Describe what a device needs from TCP and UDP alike."""

    def write(self, packets: list[bytes]) -> None: ...

    def close(self) -> None:
        """Close once everything written is sent."""
        ...


def _ignore(_reason: str) -> None:
    """Do nothing when a connection is lost."""


class StreamTransport(asyncio.Protocol):
    """Hold one TCP connection, with or without TLS. `ended` resolves to the reason when it is over."""

    def __init__(self, on_data: OnData, on_lost: OnLost = _ignore) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_data = on_data
        self._on_lost = on_lost
        self._reason = ""
        self._writable = asyncio.Event()
        self._writable.set()

    def write(self, packets: list[bytes]) -> None:
        if not self._transport.is_closing():
            self._transport.write(packets[0] if len(packets) == 1 else b"".join(packets))

    async def drain(self) -> None:
        """Wait until the network has taken enough of what was written."""
        await self._writable.wait()

    def set_reading(self, wanted: bool) -> None:
        """Pause or resume reading."""
        transport = self._transport
        if transport.is_closing() or wanted == transport.is_reading():
            return
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def close(self, reason: str = "") -> None:
        """Close once everything written is sent. The first reason given is reported."""
        self._reason = self._reason or reason
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # Called by asyncio

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
        self._on_data(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason or (str(exc) if exc else "the gateway closed the connection")
        self._writable.set()
        if not self.ended.done():
            self.ended.set_result(reason)
        self._on_lost(reason)


class DatagramTransport(asyncio.DatagramProtocol):
    """Hold a UDP socket connected to one address. Network errors do not close it: the gateway may come back."""

    def __init__(self, on_data: OnData) -> None:
        self._on_data = on_data

    def write(self, packets: list[bytes]) -> None:
        if not self._transport.is_closing():
            for packet in packets:
                self._transport.sendto(packet)

    def close(self) -> None:
        self._transport.close()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._on_data(data)


class Reconnector:
    """Connect to a gateway, and connect again with growing pauses when the connection is lost."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        backoff: Backoff,
        clock: Callable[[], float],
        new_transport: Callable[[], StreamTransport],
    ) -> None:
        self.last_error = ""  # why the last connection ended or could not be made
        self._host = host
        self._port = port
        self._tls = tls
        self._backoff = backoff
        self._clock = clock
        self._new_transport = new_transport

    async def run(self, serve: Callable[[StreamTransport], Awaitable[None]]) -> None:
        """Run until cancelled, or until `serve` raises RefusedError, after which reconnecting is pointless.

        `serve` owns the connection and returns when it is over.
        """
        while True:
            try:
                await self._connect_once(serve)
            except RefusedError:
                raise
            except (ClientError, OSError) as error:
                self.last_error = str(error) or type(error).__name__
            pause_s = self._backoff.next_s()
            _log.info("%s:%d: %s; reconnecting in %.1f s", self._host, self._port, self.last_error, pause_s)
            await asyncio.sleep(pause_s)

    async def _connect_once(self, serve: Callable[[StreamTransport], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CLIENT_CONNECT_S):
                _, transport = await loop.create_connection(self._new_transport, self._host, self._port, ssl=self._tls)
        except TimeoutError as error:
            raise LateError(f"no connection within {CLIENT_CONNECT_S:g} s") from error
        connected_s = self._clock()
        try:
            await serve(transport)
            self.last_error = await transport.ended
        finally:
            transport.abort()
            if self._clock() - connected_s >= CLIENT_STEADY_S:
                self._backoff.reset()
