"""What came and was not taken yet: bounded, in order, each key once."""

import asyncio
from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    def __init__(self, items_max: int) -> None:
        self.items_max = items_max
        self.left_out = 0  # came when there was no room
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._changed = asyncio.Event()
        self._nudged = False
        self._over = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, item: Item) -> bool:
        """False where there is no room. What is here already, under the same key, stays as it is."""
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

    def nudge(self) -> None:
        """Let one who waits look around: the next `take` answers None."""
        self._nudged = True
        self._changed.set()

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more will come."""
        if not self._over:
            self._over, self._error = True, error
            self._changed.set()

    @property
    def over(self) -> bool:
        return self._over and not self._items

    async def take(self) -> Item | None:
        """The oldest; None after a nudge, or when it is over. Raises the error that it ended with."""
        while not self._items and not self._nudged:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            self._changed.clear()
            await self._changed.wait()
        if self._nudged:
            self._nudged = False
            return None
        return self._items.popitem(last=False)[1]
