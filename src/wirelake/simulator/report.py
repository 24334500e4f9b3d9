"""Count what a simulated fleet did, for comparison with the log and the tables."""

from collections import Counter

from msgspec import Struct, field

from wirelake.simulator.limits import SIMULATOR_REASONS_MAX


class SimulationCounts(Struct):
    sent: int = 0
    acknowledged: int = 0  # sent, and confirmed or answered by the gateway; or received, and acked by the member
    received: int = 0  # notifications, records and requests from others; duplicates are not counted
    failed: int = 0  # sent, and not acknowledged


class Report(Struct, kw_only=True):
    seed: int = 0
    seconds: float = 0.0  # from the first action to the last response
    members: dict[str, int] = field(default_factory=dict)  # by protocol
    connections: Counter[str] = field(default_factory=Counter)  # by protocol; a meter's UDP socket counts as one
    counts: dict[str, dict[str, SimulationCounts]] = field(default_factory=dict)  # by protocol and kind
    skipped: int = 0  # actions that a member was too busy for
    behind_s: float = 0.0  # the largest delay of an action
    faults: Counter[str] = field(default_factory=Counter)  # injected
    reasons: Counter[str] = field(default_factory=Counter)  # of failures

    def counts_of(self, protocol: str, kind: str) -> SimulationCounts:
        return self.counts.setdefault(protocol, {}).setdefault(kind, SimulationCounts())

    def add_reason(self, reason: str) -> None:
        """Count the reason of a failure without its numbers; beyond the limit, all others together."""
        words = " ".join("…" if any(letter.isdigit() for letter in word) else word for word in reason.split())
        self.reasons[words if words in self.reasons or len(self.reasons) < SIMULATOR_REASONS_MAX else "other"] += 1

    def total(self) -> SimulationCounts:
        every = [counts for kinds in self.counts.values() for counts in kinds.values()]
        return SimulationCounts(
            *(sum(getattr(counts, name) for counts in every) for name in SimulationCounts.__struct_fields__)
        )
