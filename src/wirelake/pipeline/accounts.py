"""The driver's account of its batches: what their tasks read, what was left out or given up. See silver.batches.

The ledger holds it against what the gateway counted when it wrote the log, and against the rows that are in the tables.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.lake.tables import BATCHES, DAY

HOUR_US: Final = 3_600_000_000
RECORDS_LOST: Final = "records_lost"  # damaged in the log
RECORDS_REMOVED: Final = "records_removed"  # by retention, before they were read
# What a limit made the pipeline forget or give up; the rest of what is counted is merely worth knowing.
DROPPED: Final = frozenset(
    {
        "acks_forgotten",
        "calls_given_up",
        "commands_given_up",
        "deliveries_given_up",
        "layouts_forgotten",
        "sessions_given_up",
        "tally_hours_joined",
        RECORDS_LOST,
        RECORDS_REMOVED,
    }
)


class ReadCount(Struct, frozen=True, array_like=True):
    """Records of one hour and protocol that were read."""

    hour_us: int
    protocol: str
    records: int
    received: int  # frames in, with those that were quarantined as they came
    sent: int  # frames out


class ReadCounts:
    """Counts what a task reads from the log."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], tuple[int, int, int]] = {}

    def add(self, batch: Any) -> None:
        frame, came = pc.equal(batch["event"], "frame"), pc.equal(batch["direction"], "in")
        received = pc.and_(pc.or_(frame, pc.equal(batch["event"], "quarantine")), came)
        sent = pc.and_(frame, pc.equal(batch["direction"], "out"))
        columns = {
            "hour": pc.divide(batch["at"].cast(pa.int64()), HOUR_US),
            "protocol": batch["protocol"],
            "received": received.cast(pa.int64()),
            "sent": sent.cast(pa.int64()),
        }
        found = (
            pa.table(columns)
            .group_by(["hour", "protocol"])
            .aggregate([([], "count_all"), ("received", "sum"), ("sent", "sum")])
        )
        names = ("hour", "protocol", "count_all", "received_sum", "sent_sum")
        for hour, protocol, *counts in zip(*(found[name].to_pylist() for name in names), strict=True):
            place = (hour * HOUR_US, protocol)
            before = self._counts.get(place, (0, 0, 0))
            self._counts[place] = tuple(one + other for one, other in zip(before, counts, strict=True))

    def all(self) -> list[ReadCount]:
        return [ReadCount(*place, *counts) for place, counts in sorted(self._counts.items())]


def joined(reports: list[list[ReadCount]]) -> list[ReadCount]:
    """Sum up what several tasks read."""
    counts: dict[tuple[int, str], list[int]] = {}
    for count in (each for report in reports for each in report):
        mine = counts.setdefault((count.hour_us, count.protocol), [0, 0, 0])
        for place, more in enumerate((count.records, count.received, count.sent)):
            mine[place] += more
    return [ReadCount(*place, *sums) for place, sums in sorted(counts.items())]


def account_rows(
    batch: int, span: tuple[int, int], now_us: int, read: list[ReadCount], dropped: Mapping[str, int], since_us: int
) -> Any:
    """Rows of silver.batches. Before `since_us` the driver kept no account: it does not know the whole hour."""
    rows: list[dict[str, Any]] = []
    common = {"batch": batch, "from_seq": span[0], "until_seq": span[1]}
    for count in read:
        whole = count.hour_us >= since_us
        rows.append(
            {
                **common,
                "hour": count.hour_us,
                "protocol": count.protocol,
                "records": count.records if whole else None,
                "received": count.received if whole else None,
                "sent": count.sent if whole else None,
            }
        )
    hour_us = now_us // HOUR_US * HOUR_US
    for what, times in sorted(dropped.items()):
        if what in DROPPED and times:
            rows.append({**common, "hour": hour_us, "protocol": "", "what": what, "dropped": times})
    table = pa.Table.from_pylist(rows, pa.schema([field for field in BATCHES.schema if field.name != "day"]))
    return table.append_column("day", table["hour"].cast(DAY)).select(BATCHES.schema.names)
