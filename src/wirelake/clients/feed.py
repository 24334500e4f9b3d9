"""The records that a service pushes to one subscription, as they come."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from wirelake.clients.inbox import Inbox


class NotificationQueue:
    """Iterate over it with `async for`; leave it with `close`, or use it with `async with`.

    It outlives a lost connection: the subscription is made again. What was pushed meanwhile is not in it.
    """

    def __init__(
        self,
        service: str,
        key: str,
        sdb: str,
        pushes_max: int,
        taken: Callable[[], None],
        leave: Callable[["NotificationQueue"], Awaitable[None]],
    ) -> None:
        self.service = service
        self.key = key
        self.sdb = sdb
        self.correlation = ""  # of the request that subscribed, on the connection there is
        self._inbox: Inbox[tuple[Any]] = Inbox(pushes_max)
        self._count = 0
        self._taken = taken
        self._leave = leave

    def __len__(self) -> int:
        return len(self._inbox)

    def put(self, value: Any) -> None:
        self._count += 1
        self._inbox.put(str(self._count), (value,))

    def finish(self, error: Exception | None = None) -> None:
        self._inbox.finish(error)

    async def close(self) -> None:
        await self._leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """The next push. AnswerError where the service ended it."""
        found = await self._inbox.take()
        self._taken()
        if found is None:
            raise StopAsyncIteration
        return found[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
