"""One durable topic in memory: how far it goes, who subscribed, and where they stand."""

from msgspec import Struct, field

from wirelake.state.subscription import Subscription


class Topic(Struct, eq=False):
    number: int
    name: str
    head: int  # the last position given
    floor: int  # everything up to it is settled for everyone, and removed
    is_stream: bool = False  # what everyone has acked is kept too, until it expires
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    standing: dict[int, int] = field(default_factory=dict)  # cursor → how many stand there; not below the floor

    def enter(self, cursor: int) -> None:
        """A subscriber came to stand here."""
        place = max(cursor, self.floor)
        self.standing[place] = self.standing.get(place, 0) + 1

    def leave(self, cursor: int) -> None:
        """A subscriber stood here and does no longer."""
        place = max(cursor, self.floor)
        self.standing[place] -= 1
        if not self.standing[place]:
            del self.standing[place]

    def rise(self, floor: int) -> None:
        """The floor moved up; those who stood below it stand on it now."""
        lifted = sum(self.standing.pop(place, 0) for place in range(self.floor, floor))
        if lifted:
            self.standing[floor] = self.standing.get(floor, 0) + lifted
        self.floor = floor


class Expired(Struct, frozen=True):
    """Positions that someone had not acked when their time was over."""

    topic: str
    first: int
    last: int


class Swept(Struct):
    """What one slice of the sweep did."""

    removed: int = 0
    round_done: bool = False  # the last topic was passed
    expired: list[Expired] = field(default_factory=list)
