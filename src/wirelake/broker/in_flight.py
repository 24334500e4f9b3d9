"""What was written to one peer in one topic and may not be acked: for sending it again in time.

Positions are written in order, so a few runs of them are enough, however many notifications they cover; those that
were acked meanwhile are left out when a run is sent again. All that was sent again already is one run, with a second
one for what joins it while it waits: its parts are sent once more after one to two times the pause, never earlier.
"""

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.limits import BROKER_SENT_RUNS


class InFlightRun(Struct, frozen=True):
    """Positions written at about the same time."""

    since_s: float
    at_s: float  # the last of them
    first: int
    last: int
    attempts: int = 1


class InFlight(Struct):
    fresh: list[InFlightRun] = field(default_factory=list)  # written once
    again: InFlightRun | None = None  # written more than once
    joining: InFlightRun | None = None  # the same, since `again` began to wait

    @property
    def oldest_s(self) -> float | None:
        """When the run that waits longest was written."""
        times = [run.at_s for run in self.fresh]
        if self.again is not None:
            times.append(self.again.at_s)
        return min(times, default=None)

    def on_write(self, first: int, last: int, now_s: float, resend_s: float) -> None:
        fresh = self.fresh
        if fresh and now_s - fresh[-1].since_s < resend_s / BROKER_SENT_RUNS:
            fresh[-1] = replace(fresh[-1], at_s=now_s, last=last)
        else:
            fresh.append(InFlightRun(now_s, now_s, first, last))

    def due(self, now_s: float, resend_s: float) -> InFlightRun | None:
        """The first run that has waited long enough."""
        if self.again is not None and self.again.at_s + resend_s <= now_s:
            return self.again
        return next((run for run in self.fresh if run.at_s + resend_s <= now_s), None)

    def postpone(self, now_s: float, resend_s: float) -> None:
        """Those due wait once more from now on."""
        if self.again is not None and self.again.at_s + resend_s <= now_s:
            self.again = replace(self.again, at_s=now_s)
        late = [run for run in self.fresh if run.at_s + resend_s <= now_s]
        if late:
            self.fresh = [run for run in self.fresh if run not in late]
            self.fresh.insert(0, InFlightRun(now_s, now_s, late[0].first, late[-1].last))

    def on_resend(self, run: InFlightRun, through: int, unacked: tuple[int, int] | None, now_s: float) -> None:
        """The run was gone through up to there; the first and last of what was not acked and written once more."""
        whole = through >= run.last
        piece = None if unacked is None else InFlightRun(now_s, now_s, *unacked, run.attempts + 1)
        if run is self.again:
            self.joining = _span(self.joining, piece)
            if whole:
                joining, self.joining = self.joining, None
                self.again = None if joining is None else replace(joining, at_s=now_s)
            else:
                self.again = replace(run, first=through + 1)
            return
        place = self.fresh.index(run)
        self.fresh[place : place + 1] = [] if whole else [replace(run, first=through + 1)]
        if self.again is None:
            self.again = piece
        else:
            self.joining = _span(self.joining, piece)


def _span(one: InFlightRun | None, other: InFlightRun | None) -> InFlightRun | None:
    if one is None or other is None:
        return one or other
    return InFlightRun(
        one.since_s,
        max(one.at_s, other.at_s),
        min(one.first, other.first),
        max(one.last, other.last),
        max(one.attempts, other.attempts),
    )
