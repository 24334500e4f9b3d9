"""Accept TCP connections on an address, with or without TLS.

The protocol admits a plain connection when it is made. With TLS, asyncio makes the connection only after the handshake,
so the acceptor admits the peer before that: a peer that connects and sends nothing occupies one of the slots shared by
peers without a login, and has to complete its handshake in time.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from functools import partial

from wirelake.address import Address
from wirelake.config import Settings
from wirelake.errors import InputError
from wirelake.gateway.auth.admission import Admission, Slot
from wirelake.gateway.metrics import Counters
from wirelake.limits import (
    GATEWAY_BACKLOG,
    GATEWAY_KEEPALIVE_PROBES,
    GATEWAY_KEEPALIVE_S,
    GATEWAY_RETRY_S,
)

_log = logging.getLogger(__name__)

NewConnection = Callable[[Slot | None], asyncio.Protocol]  # takes the slot of a connection admitted before TLS


class Acceptor:
    """Listen on the sockets of one address and make a connection for each peer that is admitted."""

    def __init__(
        self,
        protocol: str,
        admission: Admission,
        counters: Counters,
        settings: Callable[[], Settings],
        new_connection: NewConnection,
        *,
        authenticated: bool = False,
        refused_max: int = 0,
    ) -> None:
        """Create an acceptor that is not open yet.

        `authenticated`: the connections have no login of their own, see `Admission.enter`.
        `refused_max`: how many refused peers may complete a TLS handshake at once, to receive the refusal in their
        protocol.
        """
        self._admission = admission
        self._counters = counters
        self._settings = settings
        self._protocol = protocol
        self._new_connection = new_connection
        self._authenticated = authenticated
        self._refused_max = refused_max
        self._refused = 0  # refused peers in a TLS handshake
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()  # accept loops and TLS handshakes
        self._is_open = False

    async def open(self, address: Address, tls: ssl.SSLContext | None) -> Address:
        """Listen on an address. Return it with the assigned port if the port was 0; raise OSError on failure."""
        sockets = await listening_sockets(address)
        await self.serve(sockets, tls)
        name = sockets[0].getsockname()
        return Address(name[0], name[1])

    async def serve(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Accept connections on these listening sockets."""
        loop = asyncio.get_running_loop()
        for each in sockets:
            if tls is None:
                server = await loop.create_server(
                    lambda: self._new_connection(None), sock=each, backlog=GATEWAY_BACKLOG
                )
                self._servers.append(server)
            else:
                accepting = self._spawn(self._accept(each, tls))
                accepting.add_done_callback(partial(_close, each))  # not earlier: the loop still watches it
        self._is_open = True

    @property
    def is_serving(self) -> bool:
        return self._is_open and all(server.is_serving() for server in self._servers)

    def close(self) -> None:
        """Stop accepting. Keep established connections, and cancel TLS handshakes in progress."""
        self._is_open = False
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, name = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, or the peer disconnected already
                _log.warning("%s: cannot accept a connection: %s", self._protocol, error)
                await asyncio.sleep(GATEWAY_RETRY_S)
                continue
            authenticated = self._authenticated or self._settings().auth.open
            slot = self._admission.enter(str(Address(name[0], name[1])), authenticated=authenticated)
            if not isinstance(slot, str):
                self._spawn(self._handshake(accepted, slot, tls))
            elif self._refused < self._refused_max:
                self._spawn(self._handshake_refused(accepted, tls))
            else:
                self._counters.refused[self._protocol, slot] += 1
                accepted.close()

    async def _handshake_refused(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        self._refused += 1
        try:
            await self._handshake(accepted, None, tls)
        finally:
            self._refused -= 1

    async def _handshake(self, accepted: socket.socket, slot: Slot | None, tls: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._new_connection(slot),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._settings().tls.handshake_s,
            )
        except OSError as error:  # includes SSL errors and the handshake timeout
            if slot is not None:
                slot.release()
            self._counters.refused[self._protocol, "tls_handshake"] += 1
            _log.debug("%s: TLS handshake failed: %s", self._protocol, error)
        except BaseException:
            if slot is not None:
                slot.release()
            raise


def _close(listening: socket.socket, _task: asyncio.Task[None]) -> None:
    listening.close()


async def listening_sockets(address: Address) -> list[socket.socket]:
    """Create a socket for each address that the host name resolves to, with the TCP options of the gateway."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, name in dict.fromkeys(found):
            listening = socket.create_server(name, family=family, backlog=GATEWAY_BACKLOG)
            sockets.append(listening)
            listening.setblocking(False)
            set_tcp_options(listening)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def set_tcp_options(listening: socket.socket) -> None:
    """Disable Nagle's algorithm and enable TCP keepalive on a listening socket. Accepted sockets inherit both.

    asyncio does not disable it on what such a socket accepts, so a response in two parts would take 40 ms, the time
    by which the peer delays its acknowledgement.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform != "darwin":  # macOS has no TCP_KEEPIDLE
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GATEWAY_KEEPALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GATEWAY_KEEPALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GATEWAY_KEEPALIVE_PROBES)


def listen_error(setting: str, address: Address, error: OSError) -> InputError:
    """Return an error that explains why a listener cannot be opened.

    Use the error number, because the message of asyncio repeats the address.
    """
    if error.errno == errno.EADDRINUSE:
        reason = f"another program listens there. Stop it, or set listen.{setting} (HOST:PORT, or off)"
    elif error.errno is not None and error.errno > 0:
        reason = os.strerror(error.errno)
    else:  # the host name cannot be resolved
        reason = str(error.strerror)
    return InputError(f"listen.{setting}: cannot listen on {address}: {reason}")
