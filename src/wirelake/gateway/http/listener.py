"""Listen for HTTP: run uvicorn inside the gateway's event loop.

The gateway has its own signal handlers, lifespan and log, so uvicorn's are off. uvicorn's main loop wakes ten times a
second; the one here wakes once, updates the Date header, and measures how late it was woken.

`Server.serve` is the documented way to run uvicorn, but it installs signal handlers, and no setting turns that off. So
this module calls the methods that it consists of: `startup`, `on_tick` and `shutdown`.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Final, Protocol

import uvicorn

from wirelake.address import Address
from wirelake.gateway.auth.admission import Slot
from wirelake.gateway.http.connection import HttpConnection, ServerConfig
from wirelake.gateway.http.limiter import RequestLimiter
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.routes.lake import LakeQueries
from wirelake.gateway.http.subscriber import EventStreams
from wirelake.gateway.http.traffic import HttpStats
from wirelake.gateway.transport.acceptor import Acceptor, NewConnection, listen_error, set_tcp_options
from wirelake.limits import HTTP_REFUSED_HANDSHAKES_MAX, HTTP_STOP_S, HTTP_TICK_S
from wirelake.protocols.session import Closing

_SHUTDOWN: Final = Closing("shutdown", "the gateway is shutting down")


class NewAcceptor(Protocol):
    def __call__(self, new_connection: NewConnection, *, authenticated: bool, refused_max: int) -> Acceptor:
        """Return an acceptor for connections of the HTTP listener."""
        ...


def bind_socket(address: Address) -> socket.socket:
    """Return a listening socket; InputError if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise listen_error("http", address, error) from error
    listening.setblocking(False)
    set_tcp_options(listening)
    return listening


def socket_address(listening: socket.socket) -> Address:
    """Return the address with its actual port, which the system chooses for port 0."""
    name = listening.getsockname()
    return Address(name[0], name[1])


class HttpListener:
    def __init__(
        self,
        listening: socket.socket,
        config: ServerConfig,
        new_acceptor: NewAcceptor,
        client: BrokerClient,
        streams: EventStreams,
        lake: LakeQueries,
        stats: HttpStats,
    ) -> None:
        """Accept connections on a listening socket; with TLS, by an acceptor that `new_acceptor` returns."""
        self.address = socket_address(listening)
        self.limiter: RequestLimiter = config.limiter
        self.streams = streams
        self.lake = lake
        self.stats = stats
        self._config = config
        self._client = client
        self._socket = listening
        self._new_acceptor = new_acceptor
        self._acceptor: Acceptor | None = None  # with TLS
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._ticking: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        if self._acceptor is not None:
            return self._acceptor.is_serving
        return self._ticking is not None and all(server.is_serving() for server in self._server.servers)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        await self._server.on_tick(0)
        await self._server.startup(sockets=[self._socket] if tls is None else [])
        if tls is not None:
            await self._serve_tls(tls)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _serve_tls(self, tls: ssl.SSLContext) -> None:
        """Accept connections here: uvicorn would see them only after their handshake."""
        config, server = self._config, self._server

        def new_connection(slot: Slot | None) -> HttpConnection:
            return HttpConnection(config, server.server_state, server.lifespan.state, slot=slot)

        self._acceptor = self._new_acceptor(new_connection, authenticated=True, refused_max=HTTP_REFUSED_HANDSHAKES_MAX)
        await self._acceptor.serve([self._socket], tls)

    def close(self) -> None:
        """Stop accepting connections, and fail whatever waits. `finish` waits for open requests."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._ticking is not None:
            for server in self._server.servers:
                server.close()
            self.cancel_waiting()

    def cancel_waiting(self) -> None:
        """Fail the requests that wait for a token check or a response of the broker, and close the streams."""
        self.limiter.cancel_token_checks()
        self._client.close(_SHUTDOWN)
        self.streams.close(_SHUTDOWN)

    async def finish(self) -> None:
        """Wait for open requests, then close their connections."""
        ticking, self._ticking = self._ticking, None
        if ticking is None:
            return
        self.cancel_waiting()
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
        loop = asyncio.get_running_loop()
        ending = loop.call_later(HTTP_STOP_S / 2, self.lake.close)  # early enough to send the reason
        await self._server.shutdown(sockets=[self._socket])
        ending.cancel()
        self.lake.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + HTTP_TICK_S
            await asyncio.sleep(HTTP_TICK_S)
            self.stats.loop_lag_s.observe(max(0.0, loop.time() - due_s))
            await self._server.on_tick(0)
            self.lake.reap()
