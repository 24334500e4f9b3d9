"""Acks that a client sends by itself, gathered so that a fast reader does not wait for the gateway's disk."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from wirelake.errors import AnswerError, LateError, LostError, StateError
from wirelake.limits import CLIENT_ACKS_WAITING_MAX, CLIENT_CLOSE_S

_log = logging.getLogger(__name__)


class AckTracker:
    """`send` has up to `at_once_max` of them made durable, and calls `forget` for those that are."""

    def __init__(self, send: Callable[[list[str]], Awaitable[None]], at_once_max: int) -> None:
        self._send = send
        self._at_once_max = at_once_max
        self._waiting: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def __contains__(self, notification_id: str) -> bool:
        return notification_id in self._waiting

    def soon(self, notification_id: str) -> None:
        """Sent at once, or together with others when an earlier ack is answered."""
        self._waiting[notification_id] = None
        if len(self._waiting) > CLIENT_ACKS_WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    def forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._waiting.pop(each, None)

    async def durable(self, timeout_s: float) -> None:
        """Until those that were to be sent soon are durable."""
        if self._sending is not None and (await asyncio.wait([self._sending], timeout=timeout_s))[1]:
            raise LateError(f"no response to an ack within {timeout_s:g} s")

    async def finish(self) -> None:
        """The last of them, within reason: beyond that, their notifications come again."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=CLIENT_CLOSE_S)

    async def _send_all(self) -> None:
        while self._waiting:
            ids = list(islice(self._waiting, self._at_once_max))
            try:
                await self._send(ids)
            except (LostError, LateError) as error:
                _log.info("resending acks: %s", error)
            except AnswerError as error:
                _log.warning("acks refused, their notifications will be redelivered: %s", error)
                self.forget(ids)
            except StateError:  # closed meanwhile
                return
