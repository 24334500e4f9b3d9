"""One bucket, one batch: its items and what it carried → rows that are final, rows still open, what it carries on.

Pure: the same items and the same carry give the same rows. Time is event time, the largest `at` so far; order is the
log's. So it does not matter where the log was cut into batches (beyond a limit, or a clock that stepped back by more
than PIPELINE_CLOCK_STEP_S, it may).
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import TABLES
from wirelake.limits import PIPELINE_CLOCK_STEP_S
from wirelake.pipeline.memory.assembly import RULES, Rules
from wirelake.pipeline.memory.calls import settle_calls
from wirelake.pipeline.memory.carry import CARRY, clock_of, clock_row, of_kind
from wirelake.pipeline.memory.commands import Keys, settle_commands
from wirelake.pipeline.memory.deliveries import settle_deliveries
from wirelake.pipeline.memory.item import CALL, DELIVERY, FRAGMENT, RECORD, SESSION, TALLY
from wirelake.pipeline.memory.outcome import Outcome, minutes_of
from wirelake.pipeline.memory.records import settle_records
from wirelake.pipeline.memory.sessions import settle_sessions
from wirelake.pipeline.memory.tallies import settle_tallies

__all__ = ["CARRY", "Settled", "settle"]

_STEP_US: Final = int(PIPELINE_CLOCK_STEP_S * 1_000_000)
_SETTLE: Final[dict[str, Callable[[pa.Table, pa.Table, int], Outcome]]] = {
    CALL: settle_calls,
    DELIVERY: settle_deliveries,
    RECORD: settle_records,
    SESSION: settle_sessions,
    TALLY: settle_tallies,
}


class Settled(Struct):
    """Tables by name, those without rows left out. `open` holds every open row of the bucket, also untouched ones."""

    final: dict[str, pa.Table]
    open: dict[str, pa.Table]
    carry: pa.Table
    dirty_us: dict[str, set[int]]  # minutes in which rows were added or changed, by table
    counts: Counter[str] = field(default_factory=Counter)  # what is worth knowing and has no row


def settle(items: pa.Table, carry: pa.Table | None, now_us: int, keys: Keys, rules: Rules = RULES) -> Settled:
    """`items` are of one bucket, sorted by kind, key and seq; `keys` give a device's key by its serial."""
    clock_us = clock_of(carry, now_us)
    sure_us = clock_us - _STEP_US  # what is over by then stays so, even if a clock steps back
    outcomes = []
    for kind in (FRAGMENT, *_SETTLE):
        mine, carried = items.filter(pc.equal(items["kind"], kind)), of_kind(carry, kind)
        if not len(mine) and not len(carried):
            continue
        if kind == FRAGMENT:
            outcomes.append(settle_commands(mine, carried, clock_us, keys, rules))
        else:
            outcomes.append(_SETTLE[kind](mine, carried, sure_us))
    settled = Settled({}, {}, CARRY.empty_table(), {})
    for outcome in outcomes:
        _gather(outcome, settled)
    tables = [table for outcome in outcomes for table in outcome.carry]
    settled.carry = pa.concat_tables([clock_row(clock_us), *tables]).combine_chunks()
    return settled


def _gather(outcome: Outcome, settled: Settled) -> None:
    settled.counts.update(outcome.counts)
    for name, rows in outcome.final.items():
        if len(rows):
            settled.final[name] = rows
    for name, rows in outcome.open.items():
        together = pa.concat_tables([rows, outcome.still[name]])
        if len(together):
            settled.open[name] = together
    for name in {*outcome.final, *outcome.open}:
        minutes = set(outcome.dirty_us.get(name, ()))
        for rows in (outcome.final.get(name), outcome.open.get(name)):
            minutes |= set() if rows is None else minutes_of(TABLES[name], rows)
        if minutes:
            settled.dirty_us[name] = minutes
