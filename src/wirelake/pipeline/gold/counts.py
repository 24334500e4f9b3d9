"""Count rows by hour and protocol, for the ledger. Each table of bronze and silver has its own columns."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, json

from wirelake.lake.tables import (
    BATCHES,
    COUNTS_HOUR,
    DAY,
    DELIVERIES,
    DEVICE_COMMANDS,
    FRAMES,
    INT,
    MESSAGES,
    QUARANTINE,
    TALLIES,
    TIME,
    LakeTable,
)
from wirelake.pipeline.time_ranges import AT, HOUR_US

KEYS: Final = ("hour", "protocol")
DROPPED_BY: Final = "dropped_by"
SCHEMA: Final = pa.schema([each for each in COUNTS_HOUR.schema if each.name != "day"])
SUMS: Final = tuple(name for name in SCHEMA.names if name not in (*KEYS, DROPPED_BY))
COMMAND_STATES: Final = ("complete", "expired", "refused", "open")
DELIVERY_STATES: Final = ("acked", "pending", "expired")
_COMMAND_KEY: Final = ("serial", "device_type", "direction", "answer", "command_no", "first_at")
_DELIVERY_KEY: Final = ("id", "identity")
_decode: Final = json.Decoder(dict[str, int]).decode


class CountedTable(Struct, frozen=True):
    """Describe which columns of the counts come from a table, and which of them counts its rows by partition."""

    table: LakeTable
    count: Callable[[Any], Any]
    rows: str  # by the hour of the column whose day partitions the table
    columns: tuple[str, ...]
    needs: tuple[str, ...]  # columns of the table
    key: tuple[str, ...] = ()  # what makes a row unique, if rows are counted by it
    unique: str = ""  # the column that counts distinct keys


def hours(times: Any) -> Any:
    """Return the hour of each time."""
    return pc.multiply(pc.divide(times.cast(pa.int64()), HOUR_US), HOUR_US).cast(TIME)


def _ones(condition: Any) -> Any:
    return pc.fill_null(condition, fill_value=False).cast(INT)


def _add_up(rows: Mapping[str, Any], sums: tuple[str, ...], rows_as: str | None) -> Any:
    """Return the counts of rows with hour, protocol and these sums; other counts are null."""
    table = pa.table(dict(rows))
    aggregates: list[Any] = [(name, "sum") for name in sums]
    if rows_as is not None:
        aggregates.append(([], "count_all"))
    found = table.group_by(list(KEYS), use_threads=False).aggregate(aggregates)
    names = {f"{name}_sum": name for name in sums} | ({"count_all": rows_as} if rows_as is not None else {})
    return _complete(found.rename_columns([names.get(name, name) for name in found.schema.names]))


def _complete(found: Any) -> Any:
    """Return counts with all columns; protocols that are not known are empty."""
    columns = []
    for each in SCHEMA:
        if each.name not in found.schema.names:
            columns.append(pa.nulls(len(found), each.type))
        elif each.name == "protocol":
            columns.append(pc.fill_null(found[each.name].cast(each.type), ""))
        else:
            columns.append(found[each.name].cast(each.type))
    return pa.table(columns, schema=SCHEMA)


def _by(rows: Any, time: str) -> dict[str, Any]:
    return {"hour": hours(rows[time]), "protocol": rows["protocol"]}


def _is_in(rows: Any) -> Any:
    return pc.equal(rows["direction"], "in")


def count_frames(rows: Any) -> Any:
    is_frame = pc.or_(pc.equal(rows["event"], "frame"), pc.equal(rows["event"], "quarantine"))
    received = _ones(pc.and_(is_frame, _is_in(rows)))
    return _add_up(_by(rows, AT) | {"received": received}, ("received",), "records")


def count_messages(rows: Any) -> Any:
    return _add_up(_by(rows, AT) | {"messages_in": _ones(_is_in(rows))}, ("messages_in",), "messages")


def count_quarantine(rows: Any) -> Any:
    return _add_up(_by(rows, AT) | {"quarantined": _ones(_is_in(rows))}, ("quarantined",), "quarantine")


def count_commands(rows: Any) -> Any:
    """Count commands by the hour of their first packet, and the settled rows by the hour of their last."""
    state = rows["state"]
    columns = _by(rows, "first_at") | {f"commands_{each}": _ones(pc.equal(state, each)) for each in COMMAND_STATES}
    is_waiting = pc.and_(pc.equal(state, "open"), _is_in(rows))
    columns["waiting"] = pc.if_else(is_waiting, rows["packets"], 0)
    sums = (*(f"commands_{each}" for each in COMMAND_STATES), "waiting")
    parts = [_add_up(columns, sums, "commands"), _add_up(_by(rows, AT), (), "command_rows")]
    return add_up(parts)


def count_deliveries(rows: Any) -> Any:
    columns = _by(rows, "first_sent_at")
    columns |= {f"deliveries_{each}": _ones(pc.equal(rows["state"], each)) for each in DELIVERY_STATES}
    sums = tuple(f"deliveries_{each}" for each in DELIVERY_STATES)
    return add_up([_add_up(columns, sums, "deliveries"), _add_up(_by(rows, AT), (), "delivery_rows")])


def count_tallies(rows: Any) -> Any:
    received, counted = rows["received"], rows["counted"]
    columns = _by(rows, "hour") | {
        "counted": counted,
        "uncounted": pc.if_else(pc.is_null(counted), received, 0),
        "scanned": received,
        "missing": rows["missing"],
    }
    return _add_up(columns, ("counted", "uncounted", "scanned", "missing"), "tally_rows")


def count_batches(rows: Any) -> Any:
    """Count what the driver committed, and what it says was dropped."""
    is_read = pc.is_null(rows["what"])
    columns = _by(rows, "hour") | {
        "committed": rows["received"],
        "records_committed": rows["records"],
        "batches": is_read.cast(INT),
        "batches_uncounted": _ones(pc.and_(is_read, pc.is_null(rows["records"]))),
    }
    sums = ("committed", "records_committed", "batches", "batches_uncounted")
    found = [_add_up(columns, sums, "batch_rows")]
    for row in rows.filter(pc.invert(is_read)).select([*KEYS, "what", "dropped"]).to_pylist():
        text = json.encode({row["what"]: row["dropped"]}).decode()
        one = {"hour": [row["hour"]], "protocol": [row["protocol"] or ""], DROPPED_BY: [text]}
        found.append(_complete(pa.table(one)))
    return add_up(found)


_COMMAND_COLUMNS: Final = ("commands", *(f"commands_{each}" for each in COMMAND_STATES), "waiting", "command_rows")
_DELIVERY_COLUMNS: Final = ("deliveries", *(f"deliveries_{each}" for each in DELIVERY_STATES), "delivery_rows")
COUNTED: Final = {
    each.table.name: each
    for each in (
        CountedTable(FRAMES, count_frames, "records", ("records", "received"), (AT, "protocol", "event", "direction")),
        CountedTable(MESSAGES, count_messages, "messages", ("messages", "messages_in"), (AT, "protocol", "direction")),
        CountedTable(
            QUARANTINE, count_quarantine, "quarantine", ("quarantine", "quarantined"), (AT, "protocol", "direction")
        ),
        CountedTable(
            DEVICE_COMMANDS,
            count_commands,
            "command_rows",
            _COMMAND_COLUMNS,
            (AT, "protocol", "state", "packets", *_COMMAND_KEY),
            _COMMAND_KEY,
            "commands",
        ),
        CountedTable(
            DELIVERIES,
            count_deliveries,
            "delivery_rows",
            _DELIVERY_COLUMNS,
            (AT, "protocol", "state", "first_sent_at", *_DELIVERY_KEY),
            _DELIVERY_KEY,
            "deliveries",
        ),
        CountedTable(
            TALLIES,
            count_tallies,
            "tally_rows",
            ("tally_rows", "counted", "uncounted", "scanned", "missing"),
            ("hour", "protocol", "counted", "received", "missing"),
        ),
        CountedTable(
            BATCHES,
            count_batches,
            "batch_rows",
            ("batch_rows", "committed", "records_committed", "batches", "batches_uncounted", DROPPED_BY),
            ("hour", "protocol", "records", "received", "what", "dropped"),
        ),
    )
}


def add_up(parts: Iterable[Any]) -> Any:
    """Return the sums of several counts, one row for each hour and protocol."""
    rows = pa.concat_tables([SCHEMA.empty_table(), *parts])
    found = rows.group_by(list(KEYS), use_threads=False).aggregate(
        [*((name, "sum") for name in SUMS), (DROPPED_BY, "list")]
    )
    found = found.rename_columns([name.removesuffix("_sum").removesuffix("_list") for name in found.schema.names])
    dropped = pa.array([_join_dropped(texts) for texts in found[DROPPED_BY].to_pylist()], pa.string())
    found = found.set_column(found.schema.get_field_index(DROPPED_BY), DROPPED_BY, dropped)
    return found.select(SCHEMA.names).cast(SCHEMA)


def _join_dropped(texts: list[str | None]) -> str | None:
    known = [text for text in texts if text is not None]
    if len(known) < 2:
        return known[0] if known else None
    total: Counter[str] = Counter()
    for text in known:
        total.update(_decode(text))
    return json.encode(dict(sorted(total.items()))).decode()


def without(counts: Any, columns: Iterable[str]) -> Any:
    """Return the counts without those of these columns."""
    for name in columns:
        place = counts.schema.get_field_index(name)
        counts = counts.set_column(place, counts.schema.field(place), pa.nulls(len(counts), SCHEMA.field(name).type))
    return counts


def count_unique(counted: CountedTable, rows: Any) -> Any:
    """Count rows of which some may exist twice: the column `unique` counts each key once."""
    counts = counted.count(rows)
    if not counted.key:
        return counts
    once = rows.group_by(list(dict.fromkeys((*counted.key, "protocol"))), use_threads=False).aggregate([])
    time = "first_at" if "first_at" in counted.key else "first_sent_at"
    if time not in once.schema.names:
        firsts = rows.group_by([*counted.key, "protocol"], use_threads=False).aggregate([(time, "min")])
        once = firsts.rename_columns([name.removesuffix("_min") for name in firsts.schema.names])
    return add_up([without(counts, [counted.unique]), _add_up(_by(once, time), (), counted.unique)])


def rows_of_day(counts: Any) -> Any:
    """Return counts as rows of gold.counts_hour."""
    return counts.append_column("day", counts["hour"].cast(DAY)).sort_by([(key, "ascending") for key in KEYS])
