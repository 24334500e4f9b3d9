"""What a simulated fleet did, in numbers that can be held against the log and the tables."""

from collections import Counter

from msgspec import Struct, field

from wirelake.simulator.limits import SIMULATOR_REASONS_MAX


class SimulationCounts(Struct):
    sent: int = 0  # things that were begun
    acknowledged: int = 0  # of those, what the gateway confirmed or answered; of what was received, what we acked
    received: int = 0  # things that came by themselves: notifications, records, questions; repeats not counted
    failed: int = 0  # begun, and ended otherwise


class Report(Struct, kw_only=True):
    seed: int = 0
    seconds: float = 0.0  # from the first act to the last answer
    members: dict[str, int] = field(default_factory=dict)  # by protocol
    connections: Counter[str] = field(default_factory=Counter)  # by protocol; a meter's UDP socket counts as one
    counts: dict[str, dict[str, SimulationCounts]] = field(default_factory=dict)  # by protocol and kind
    skipped: int = 0  # acts that a member was too busy for
    behind_s: float = 0.0  # how late an act was at most
    faults: Counter[str] = field(default_factory=Counter)  # made on purpose
    reasons: Counter[str] = field(default_factory=Counter)  # why things failed

    def of(self, protocol: str, kind: str) -> SimulationCounts:
        return self.counts.setdefault(protocol, {}).setdefault(kind, SimulationCounts())

    def blame(self, reason: str) -> None:
        """Counted by its words, without what differs from one to the next; beyond the limit, together."""
        words = " ".join("…" if any(letter.isdigit() for letter in word) else word for word in reason.split())
        self.reasons[words if words in self.reasons or len(self.reasons) < SIMULATOR_REASONS_MAX else "other"] += 1

    def total(self) -> SimulationCounts:
        every = [counts for kinds in self.counts.values() for counts in kinds.values()]
        return SimulationCounts(
            *(sum(getattr(counts, name) for counts in every) for name in SimulationCounts.__struct_fields__)
        )
