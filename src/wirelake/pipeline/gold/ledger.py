"""Check in gold.ledger that the sums agree, from the socket to the tables.

The same frames are counted four times independently: by the gateway when it wrote the log (`counted`), by the tasks
when they read it (`scanned`), by the driver when it committed (`committed`), and in the tables (`received`): by the
tasks that wrote the rows, as long as the tables have as many rows as they wrote, or else by reading them again. Skipped
records, unreadable files, deleted rows, a batch written twice, or a frame without a final state show up here, and the
sums that differ say where it happened.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, json

from wirelake.lake.tables import LEDGER
from wirelake.pipeline.commit.manifests import RECORDS_LOST, RECORDS_REMOVED
from wirelake.pipeline.gold.counts import COMMAND_STATES, DELIVERY_STATES, SUMS

_RELEVANT: Final = ("received", "commands", "deliveries", "missing", "lost", "removed", "dropped")
_CHECKS: Final = (
    ("received", ("decoded", "quarantined", "waiting")),
    ("received", ("counted", "uncounted")),
    ("received", ("scanned",)),
    ("scanned", ("committed",)),
    ("records", ("records_committed",)),
    ("commands", tuple(f"commands_{state}" for state in COMMAND_STATES)),
    ("deliveries", tuple(f"deliveries_{state}" for state in DELIVERY_STATES)),
)
_dropped: Final = json.Decoder(dict[str, int]).decode


class MissingFiles(Struct, frozen=True):
    """Count the files of a day that do not exist."""

    count: int
    files: str  # names some of them


def ledger(counts: Any, missing_files: Mapping[Any, MissingFiles] | None = None) -> Any:
    """Return the rows of the ledger. `missing_files` are files that do not exist, by the hour that shows them."""
    found = {(row["hour"], row["protocol"]): row for row in counts.to_pylist() if row["hour"] is not None}
    for hour in missing_files or ():
        found.setdefault((hour, ""), {"hour": hour, "protocol": "", "dropped_by": None})
    rows = []
    for (hour, protocol), row in sorted(found.items()):
        sums = _sums(row)
        files = (missing_files or {}).get(hour) if protocol == "" else None
        sums["files_missing"] = files.count if files is not None else 0
        why = "; ".join([*_differences(sums), *_losses(sums, files.files if files is not None else "")])
        if protocol != "" or why or any(sums[name] for name in _RELEVANT):  # records of no protocol: only if relevant
            about = {"hour": hour, "protocol": protocol, "day": hour.date()}
            rows.append({**sums, **about, "balanced": not why, "why": why or None})
    return pa.Table.from_pylist(rows, LEDGER.schema)


def _sums(row: Mapping[str, Any]) -> dict[str, Any]:
    sums: dict[str, Any] = {name: row.get(name) or 0 for name in SUMS}
    sums["decoded"] = sums["messages_in"] - sums["waiting"]
    if not sums["batches"] or sums["batches_uncounted"]:  # a part of it is not known
        sums["committed"] = sums["records_committed"] = None
    dropped = _dropped(row["dropped_by"]) if row["dropped_by"] else {}
    sums["lost"], sums["removed"] = dropped.pop(RECORDS_LOST, 0), dropped.pop(RECORDS_REMOVED, 0)
    sums["dropped"] = sum(dropped.values())
    sums["dropped_by"] = ", ".join(f"{name} {count}" for name, count in sorted(dropped.items())) or None
    return sums


def _differences(sums: Mapping[str, Any]) -> Iterator[str]:
    for whole, parts in _CHECKS:
        values = [sums[part] for part in parts]
        if None not in (sums[whole], *values) and sums[whole] != sum(values):
            yield f"{whole} {sums[whole]}, but {' + '.join(parts)} = {sum(values)}"


def _losses(sums: Mapping[str, Any], files: str) -> Iterator[str]:
    # Until the interval that contains them has ended, nothing counts as missing.
    unexplained = sums["missing"] - sums["lost"] - sums["removed"]
    yield from _counted(sums["lost"], "{} record was damaged in the log", "{} records were damaged in the log")
    yield from _counted(
        sums["removed"],
        "retention removed {} record before it was read",
        "retention removed {} records before they were read",
    )
    yield from _counted(
        unexplained,
        "the log numbered {} record that no task read",
        "the log numbered {} records that no task read",
    )
    yield from _counted(-sums["missing"], "{} record was read twice", "{} records were read twice")
    missing = sums["files_missing"]
    yield from _counted(missing, f"{{}} file is missing: {files}", f"{{}} files are missing: {files}")


def _counted(count: int, singular: str, plural: str) -> Iterator[str]:
    """Yield the text with the count, if there is something to count."""
    if count > 0:
        yield (singular if count == 1 else plural).format(count)
