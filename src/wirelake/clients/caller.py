"""Calls a gateway, and calls again when the connection is lost, with growing pauses."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from wirelake.backoff import Backoff
from wirelake.clients.transport import StreamTransport
from wirelake.errors import ClientError, LateError, RefusedError
from wirelake.limits import CLIENT_CONNECT_S, CLIENT_STEADY_S

_log = logging.getLogger(__name__)


class Caller:
    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        backoff: Backoff,
        clock: Callable[[], float],
        new_line: Callable[[], StreamTransport] = StreamTransport,
    ) -> None:
        self.calls = 0  # tries to connect
        self.trouble = ""  # why the last connection ended, or did not begin
        self._host = host
        self._port = port
        self._tls = tls
        self._backoff = backoff
        self._clock = clock
        self._new_line = new_line

    async def run(self, serve: Callable[[StreamTransport], Awaitable[None]]) -> None:
        """Until cancelled, or until `serve` raises RefusedError, which calling again would not mend.

        `serve` has the connection to itself and returns when that is over.
        """
        while True:
            try:
                await self._once(serve)
            except RefusedError:
                raise
            except (ClientError, OSError) as error:
                self.trouble = str(error) or type(error).__name__
            pause_s = self._backoff.next_s()
            _log.info("%s:%d: %s; reconnecting in %.1f s", self._host, self._port, self.trouble, pause_s)
            await asyncio.sleep(pause_s)

    async def _once(self, serve: Callable[[StreamTransport], Awaitable[None]]) -> None:
        self.calls += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CLIENT_CONNECT_S):
                _, line = await loop.create_connection(self._new_line, self._host, self._port, ssl=self._tls)
        except TimeoutError as error:
            raise LateError(f"no connection within {CLIENT_CONNECT_S:g} s") from error
        begun_s = self._clock()
        try:
            await serve(line)
            self.trouble = await line.ended
        finally:
            line.abort()
            if self._clock() - begun_s >= CLIENT_STEADY_S:
                self._backoff.reset()
