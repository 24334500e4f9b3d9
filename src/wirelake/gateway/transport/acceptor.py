"""Accepts TCP connections on an address, plain or with TLS.

A plain connection is admitted by its protocol as soon as it is there. With TLS a connection is there only once the
handshake is done, so it is admitted here before that: a peer that connects and says nothing holds one of the slots that
peers without a login share, and has to finish its handshake in time.
"""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from wirelake.address import Address
from wirelake.gateway.auth.admission import Slot
from wirelake.limits import (
    GATEWAY_BACKLOG,
    GATEWAY_KEEPALIVE_PROBES,
    GATEWAY_KEEPALIVE_S,
    GATEWAY_RETRY_S,
)

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)

NewConnection = Callable[[Slot | None], asyncio.Protocol]  # with the slot it has, if it was admitted already


class Acceptor:
    def __init__(
        self,
        gateway: "Gateway",
        protocol: str,
        new_connection: NewConnection,
        *,
        authenticated: bool = False,
        refused_max: int = 0,
    ) -> None:
        """`authenticated`: its connections have no login of their own, see `Admission.enter`.

        `refused_max`: so many that are not admitted may shake hands at once, to be told so by their protocol.
        """
        self._gateway = gateway
        self._protocol = protocol
        self._new_connection = new_connection
        self._authenticated = authenticated
        self._refused_max = refused_max
        self._refused = 0  # that shake hands
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()  # that accept, and that wait for a handshake
        self._is_open = False

    async def open(self, address: Address, tls: ssl.SSLContext | None) -> Address:
        """Listen; answers the address with the port that was given, where 0 was asked for. OSError if it cannot."""
        sockets = await listening_sockets(address)
        await self.serve(sockets, tls)
        name = sockets[0].getsockname()
        return Address(name[0], name[1])

    async def serve(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Accept what comes to these."""
        loop = asyncio.get_running_loop()
        for each in sockets:
            if tls is None:
                server = await loop.create_server(
                    lambda: self._new_connection(None), sock=each, backlog=GATEWAY_BACKLOG
                )
                self._servers.append(server)
            else:
                accepting = self._spawn(self._accept(each, tls))
                accepting.add_done_callback(partial(_close, each))  # not before: the event loop still watches it
        self._is_open = True

    @property
    def is_serving(self) -> bool:
        return self._is_open and all(server.is_serving() for server in self._servers)

    def close(self) -> None:
        """Accept no more; connections that are there stay, handshakes under way end."""
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
        loop, gateway = asyncio.get_running_loop(), self._gateway
        while True:
            try:
                accepted, name = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, or a peer that was gone again
                _log.warning("%s: cannot accept a connection: %s", self._protocol, error)
                await asyncio.sleep(GATEWAY_RETRY_S)
                continue
            authenticated = self._authenticated or gateway.settings.auth.open
            slot = gateway.admission.enter(str(Address(name[0], name[1])), authenticated=authenticated)
            if not isinstance(slot, str):
                self._spawn(self._shake_hands(accepted, slot, tls))
            elif self._refused < self._refused_max:
                self._spawn(self._tell_refused(accepted, tls))
            else:
                gateway.counters.refused[self._protocol, slot] += 1
                accepted.close()

    async def _tell_refused(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        self._refused += 1
        try:
            await self._shake_hands(accepted, None, tls)
        finally:
            self._refused -= 1

    async def _shake_hands(self, accepted: socket.socket, slot: Slot | None, tls: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._new_connection(slot),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._gateway.settings.tls.handshake_s,
            )
        except OSError as error:  # also the errors of ssl, and a handshake that took too long
            if slot is not None:
                slot.release()
            self._gateway.counters.refused[self._protocol, "tls_handshake"] += 1
            _log.debug("%s: TLS handshake failed: %s", self._protocol, error)
        except BaseException:
            if slot is not None:
                slot.release()
            raise


def _close(listening: socket.socket, _task: asyncio.Task[None]) -> None:
    listening.close()


async def listening_sockets(address: Address) -> list[socket.socket]:
    """One for each address that the host's name stands for. What they accept is watched by TCP's keepalive."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, name in dict.fromkeys(found):
            listening = socket.create_server(name, family=family, backlog=GATEWAY_BACKLOG)
            sockets.append(listening)
            listening.setblocking(False)
            watch_for_dead_peers(listening)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def watch_for_dead_peers(listening: socket.socket) -> None:
    """Have TCP ask silent peers whether they are there. Accepted sockets have this from the one that listens."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform != "darwin":  # macOS has no TCP_KEEPIDLE
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GATEWAY_KEEPALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GATEWAY_KEEPALIVE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GATEWAY_KEEPALIVE_PROBES)
