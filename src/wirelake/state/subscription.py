"""Where one identity stands in one topic. Values that are replaced, never changed.

Every position from `start` on is in exactly one state: acked, expired or pending. All up to the cursor are one of the
first two; `expired` counts the second; `acks` are those acked ahead of the cursor. The topic's floor rises without
touching its subscriptions: one that lags behind it is caught up when it is next looked at.
"""

from msgspec import Struct

from wirelake.state import acks as runs
from wirelake.state.acks import Bounds


class Deliveries(Struct, frozen=True):
    """What became of the notifications of one topic for one identity, since it subscribed."""

    acked: int
    expired: int
    pending: int


class Subscription(Struct, frozen=True, gc=False):
    start: int  # the topic's head when it began
    cursor: int
    expired: int = 0
    acks: Bounds = ()

    def caught_up(self, floor: int) -> "Subscription":
        """With everything up to the floor settled: what was not acked there has expired."""
        if self.cursor >= floor:
            return self
        expired = floor - self.cursor - runs.count_through(self.acks, floor)
        return _settled(self.start, floor, self.expired + expired, runs.beyond(self.acks, floor))

    def acked(self, first: int, last: int) -> "Subscription":
        """With these acked too; those before the cursor already are."""
        if last <= self.cursor:
            return self
        if first <= self.cursor + 1 and not self.acks:
            return Subscription(self.start, last, self.expired)
        bounds = runs.with_run(self.acks, max(first, self.cursor + 1), last)
        return _settled(self.start, self.cursor, self.expired, bounds)

    def waits_for(self, position: int) -> bool:
        """Whether this one is neither acked nor expired."""
        return position > self.cursor and not runs.holds(self.acks, position)

    def deliveries(self, head: int) -> Deliveries:
        ahead = runs.count(self.acks)
        acked = self.cursor - self.start - self.expired + ahead
        return Deliveries(acked, self.expired, head - self.cursor - ahead)

    def row(self, topic: int, identity: str) -> tuple[int, str, int, int, int, bytes]:
        return topic, identity, self.start, self.cursor, self.expired, runs.pack(self.acks, self.cursor)


def _settled(start: int, cursor: int, expired: int, bounds: Bounds) -> Subscription:
    """The cursor moves over a run that begins right behind it."""
    if bounds and bounds[0] == cursor + 1:
        return Subscription(start, bounds[1] - 1, expired, bounds[2:])
    return Subscription(start, cursor, expired, bounds)
