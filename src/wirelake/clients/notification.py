"""Hold received notifications until they are taken, and acknowledge them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

from wirelake.errors import AnswerError, LateError, LostError, StateError
from wirelake.limits import CLIENT_ACKS_WAITING_MAX, CLIENT_CLOSE_S
from wirelake.message import Message, Topic

_log = logging.getLogger(__name__)
Item = TypeVar("Item")


class Notification(Struct, frozen=True):
    """Hold one notification as a subscriber receives it, over any protocol."""

    id: str  # what an ack refers to; empty where the protocol has none
    content: bytes
    type: int = 0
    at_ms: int = 0  # when it was published, milliseconds since 1970
    topic: str = ""  # empty where the protocol does not transmit it (comet)

    @property
    def text(self) -> str:
        """Return the content as UTF-8, with replacement characters where it is invalid."""
        return self.content.decode("utf-8", "replace")


def notification_of(message: Message) -> Notification:
    topic = message.target.name if isinstance(message.target, Topic) else ""
    return Notification(message.id, message.payload, message.type, message.at_ms, topic)


class Inbox(Generic[Item]):
    """Queue items until they are taken: bounded, in order, each key once."""

    def __init__(self, items_max: int) -> None:
        self.items_max = items_max
        self.left_out = 0  # items that there was no room for
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._changed = asyncio.Event()
        self._is_woken = False
        self._is_finished = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, item: Item) -> bool:
        """Add an item; return False if there is no room. An item with the same key stays as it is."""
        if key in self._items:
            return True
        if len(self._items) >= self.items_max:
            self.left_out += 1
            return False
        self._items[key] = item
        self._changed.set()
        return True

    def discard(self, key: str) -> None:
        self._items.pop(key, None)

    def wake(self) -> None:
        """Let the next `take` return None at once, so that its caller can look around."""
        self._is_woken = True
        self._changed.set()

    def finish(self, error: Exception | None = None) -> None:
        """Accept that nothing more will come."""
        if not self._is_finished:
            self._is_finished, self._error = True, error
            self._changed.set()

    @property
    def is_over(self) -> bool:
        return self._is_finished and not self._items

    async def take(self) -> Item | None:
        """Return the oldest item; None after `wake`, or at the end. Raises the error that `finish` was given."""
        while not self._items and not self._is_woken:
            if self._is_finished:
                if self._error is not None:
                    raise self._error
                return None
            self._changed.clear()
            await self._changed.wait()
        if self._is_woken:
            self._is_woken = False
            return None
        return self._items.popitem(last=False)[1]


class AckTracker:
    """Send acks in batches, so that a fast reader does not wait for the gateway's disk.

    `send` makes up to `batch_max` acks durable, and calls `forget` for those that are.
    """

    def __init__(self, send: Callable[[list[str]], Awaitable[None]], batch_max: int) -> None:
        self._send = send
        self._batch_max = batch_max
        self._waiting: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def __contains__(self, notification_id: str) -> bool:
        return notification_id in self._waiting

    def add(self, notification_id: str) -> None:
        """Send this ack at once, or together with others when an earlier one is answered."""
        self._waiting[notification_id] = None
        if len(self._waiting) > CLIENT_ACKS_WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    def forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            self._waiting.pop(each, None)

    async def flush(self, timeout_s: float) -> None:
        """Wait until all acks are durable. LateError if that takes too long."""
        if self._sending is not None and (await asyncio.wait([self._sending], timeout=timeout_s))[1]:
            raise LateError(f"no response to an ack within {timeout_s:g} s")

    async def finish(self) -> None:
        """Wait a limited time for the last acks; notifications without one are delivered again."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=CLIENT_CLOSE_S)

    async def _send_all(self) -> None:
        while self._waiting:
            ids = list(islice(self._waiting, self._batch_max))
            try:
                await self._send(ids)
            except (LostError, LateError) as error:
                _log.info("resending acks: %s", error)
            except AnswerError as error:
                _log.warning("acks refused, their notifications will be redelivered: %s", error)
                self.forget(ids)
            except StateError:  # closed meanwhile
                return
