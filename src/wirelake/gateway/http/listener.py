"""Listen for HTTP: uvicorn, run inside the gateway's own event loop.

No signal handlers, no lifespan, no access log: those are the gateway's. uvicorn's own main loop wakes ten times a
second; ours wakes once, sets the Date header, and measures how late it was woken.

`Server.serve` is the documented way to run uvicorn, but it installs signal handlers, and no setting turns that off. So
this module calls the methods that it consists of: `startup`, `on_tick` and `shutdown`.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

import uvicorn

from wirelake.address import Address
from wirelake.gateway.auth.admission import Slot
from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.app import build
from wirelake.gateway.http.connection import HttpConnection
from wirelake.gateway.http.reserve import HealthOnly
from wirelake.gateway.transport.acceptor import Acceptor, watch_for_dead_peers
from wirelake.gateway.transport.listen_error import listen_error
from wirelake.limits import HTTP_KEEP_ALIVE_S, HTTP_REFUSED_HANDSHAKES_MAX, HTTP_STOP_S, HTTP_TICK_S

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_BACKLOG = 1024


class HttpListener:
    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self.address = address
        self._gateway = gateway
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None
        self._listener: Acceptor | None = None  # with TLS
        self._ticking: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        if self._listener is not None:
            return self._listener.is_serving
        return self._server is not None and all(server.is_serving() for server in self._server.servers)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        gateway = self._gateway
        try:
            family = socket.AF_INET6 if ":" in self.address.host else socket.AF_INET
            self._socket = socket.create_server((self.address.host, self.address.port), family=family)
        except OSError as error:
            raise listen_error("http", self.address, error) from error
        self._socket.setblocking(False)
        watch_for_dead_peers(self._socket)
        name = self._socket.getsockname()
        self.address = Address(name[0], name[1])  # with port 0 in the settings, the one that was given
        self.api = HttpApi(gateway, self.address)

        class AcceptedConnection(HttpConnection):
            pass

        AcceptedConnection.gateway = gateway
        AcceptedConnection.api = self.api
        app = build(self.api, gateway.pages)
        AcceptedConnection.health_app = HealthOnly(app)
        config = uvicorn.Config(
            app,
            http=AcceptedConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,  # the address of a peer is the one it has
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=HTTP_KEEP_ALIVE_S,
            timeout_graceful_shutdown=HTTP_STOP_S,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.on_tick(0)
        await self._server.startup(sockets=[self._socket] if tls is None else [])
        if tls is not None:
            await self._serve_tls(AcceptedConnection, self._server, tls)
        self._ticking = asyncio.get_running_loop().create_task(self._tick(self._server))

    async def _serve_tls(self, kind: type[HttpConnection], server: uvicorn.Server, tls: ssl.SSLContext) -> None:
        """Accept connections here: uvicorn would see them only after their handshake."""

        def new_connection(slot: Slot | None) -> HttpConnection:
            connection = kind(config=server.config, server_state=server.server_state, app_state=server.lifespan.state)
            connection.slot = slot
            return connection

        self._listener = Acceptor(
            self._gateway, "http", new_connection, authenticated=True, refused_max=HTTP_REFUSED_HANDSHAKES_MAX
        )
        if self._socket is not None:
            await self._listener.serve([self._socket], tls)

    def close(self) -> None:
        """No new connections; nobody waits any more. Requests under way are answered before `finish` returns."""
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            for server in self._server.servers:
                server.close()
            self.api.end()

    async def finish(self) -> None:
        server, self._server = self._server, None
        if server is None or self._socket is None or self._ticking is None:
            return
        self.api.end()
        self._ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticking
        loop = asyncio.get_running_loop()
        ending = loop.call_later(HTTP_STOP_S / 2, self.api.query_pool.close)  # so that who asked is told why
        await server.shutdown(sockets=[self._socket])
        ending.cancel()
        self.api.query_pool.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()

    async def _tick(self, server: uvicorn.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + HTTP_TICK_S
            await asyncio.sleep(HTTP_TICK_S)
            self.api.loop_lag_s.observe(max(0.0, loop.time() - due_s))
            await server.on_tick(0)
            self.api.query_pool.reap()
