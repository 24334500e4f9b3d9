"""Track topics and their subscriptions in memory: how far a topic goes, who subscribed, and what they acked.

Every position of a topic from a subscription's `start` on is in exactly one state: acked, expired or pending. All up to
the cursor are acked or expired; `expired` counts the latter; `acks` are those acked ahead of the cursor. The topic's
floor rises without touching its subscriptions: one that lags behind it catches up when it is next used.

Positions acked ahead of a cursor are stored as bounds of ranges: `(3, 5, 9, 10)` is 3, 4 and 9. That is compact in the
common case of one notification that stays unacked before a hundred thousand acked ones.
"""

from bisect import bisect_left, bisect_right

from msgspec import Struct, field

AckBounds = tuple[int, ...]  # start, end, start, end …: rising, ends are exclusive


def acks_contain(bounds: AckBounds, position: int) -> bool:
    return bisect_right(bounds, position) % 2 == 1


def count_acks(bounds: AckBounds) -> int:
    return sum(bounds[1::2]) - sum(bounds[::2])


def count_acks_through(bounds: AckBounds, last: int) -> int:
    """Count the positions up to and including `last`."""
    inside = bounds[: bisect_right(bounds, last)]
    return count_acks(inside if len(inside) % 2 == 0 else (*inside, last + 1))


def add_acks(bounds: AckBounds, first: int, last: int) -> AckBounds:
    """Add `first` to `last`; ranges that touch are merged."""
    before = bisect_left(bounds, first)
    after = bisect_right(bounds, last + 1)
    start = (first,) if before % 2 == 0 else ()
    end = (last + 1,) if after % 2 == 0 else ()
    return bounds[:before] + start + end + bounds[after:]


def acks_after(bounds: AckBounds, last: int) -> AckBounds:
    """Drop the positions up to and including `last`."""
    index = bisect_right(bounds, last + 1)
    return bounds[index:] if index % 2 == 0 else (last + 1, *bounds[index:])


def pack_acks(bounds: AckBounds, cursor: int) -> bytes:
    """Encode the differences as base-128 varints, the first one from the cursor."""
    packed = bytearray()
    before = cursor
    for bound in bounds:
        step, before = bound - before, bound
        while step > 0x7F:
            packed.append(0x80 | step & 0x7F)
            step >>= 7
        packed.append(step)
    return bytes(packed)


def unpack_acks(packed: bytes, cursor: int) -> AckBounds:
    """Decode what `pack_acks` encoded."""
    bounds = []
    bound, step, shift = cursor, 0, 0
    for byte in packed:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            bound += step
            bounds.append(bound)
            step = shift = 0
    return tuple(bounds)


class DeliveryCounts(Struct, frozen=True):
    """Count what became of the notifications of one topic for one identity, since it subscribed."""

    acked: int
    expired: int
    pending: int


class Subscription(Struct, frozen=True, gc=False):
    """Hold the progress of one identity in one topic. Subscriptions are replaced, never changed."""

    start: int  # the topic's head when it subscribed
    cursor: int
    expired: int = 0
    acks: AckBounds = ()

    def catch_up(self, floor: int) -> "Subscription":
        """Move the cursor up to the floor: what was not acked before it has expired."""
        if self.cursor >= floor:
            return self
        expired = floor - self.cursor - count_acks_through(self.acks, floor)
        return _advance_cursor(self.start, floor, self.expired + expired, acks_after(self.acks, floor))

    def ack(self, first: int, last: int) -> "Subscription":
        """Ack these positions; those up to the cursor are acked or expired already."""
        if last <= self.cursor:
            return self
        if first <= self.cursor + 1 and not self.acks:
            return Subscription(self.start, last, self.expired)
        bounds = add_acks(self.acks, max(first, self.cursor + 1), last)
        return _advance_cursor(self.start, self.cursor, self.expired, bounds)

    def is_pending(self, position: int) -> bool:
        """Tell whether this position is neither acked nor expired."""
        return position > self.cursor and not acks_contain(self.acks, position)

    def delivery_counts(self, head: int) -> DeliveryCounts:
        ahead = count_acks(self.acks)
        acked = self.cursor - self.start - self.expired + ahead
        return DeliveryCounts(acked, self.expired, head - self.cursor - ahead)

    def to_row(self, topic: int, identity: str) -> tuple[int, str, int, int, int, bytes]:
        """Return the row of the table `subscriptions`."""
        return topic, identity, self.start, self.cursor, self.expired, pack_acks(self.acks, self.cursor)


def _advance_cursor(start: int, cursor: int, expired: int, bounds: AckBounds) -> Subscription:
    """Move the cursor over a range of acks that starts right after it."""
    if bounds and bounds[0] == cursor + 1:
        return Subscription(start, bounds[1] - 1, expired, bounds[2:])
    return Subscription(start, cursor, expired, bounds)


class TopicState(Struct, eq=False):
    """Hold one durable topic in memory."""

    number: int
    name: str
    head: int  # the last position in use
    floor: int  # everything up to it is removed, because all subscribers acked it or it expired
    is_stream: bool = False  # keep what all subscribers have acked, until it expires
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    cursors: dict[int, int] = field(default_factory=dict)  # cursor → number of subscribers; not below the floor

    def add_cursor(self, cursor: int) -> None:
        """Count a subscriber whose cursor is here."""
        position = max(cursor, self.floor)
        self.cursors[position] = self.cursors.get(position, 0) + 1

    def remove_cursor(self, cursor: int) -> None:
        """Stop counting a subscriber whose cursor was here."""
        position = max(cursor, self.floor)
        self.cursors[position] -= 1
        if not self.cursors[position]:
            del self.cursors[position]

    def raise_floor(self, floor: int) -> None:
        """Move the floor up, and with it the cursors below."""
        lifted = sum(self.cursors.pop(position, 0) for position in range(self.floor, floor))
        if lifted:
            self.cursors[floor] = self.cursors.get(floor, 0) + lifted
        self.floor = floor


class ExpiredRange(Struct, frozen=True):
    """Name positions that expired before every subscriber had acked them."""

    topic: str
    first: int
    last: int


class SweepResult(Struct):
    """Report what one step of the sweep did."""

    removed: int = 0
    round_done: bool = False  # the last topic was passed
    expired: list[ExpiredRange] = field(default_factory=list)
