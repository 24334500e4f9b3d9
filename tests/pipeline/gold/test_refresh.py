"""Test that the gold tables gain what batches wrote, once, and cost what changed; history can be computed again."""

import fcntl
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.gold.lakes import Lake
from pipeline.rows import NOON, after, arrow_rows
from wirelake.errors import StorageError
from wirelake.lake.query import query
from wirelake.lake.tables import TABLES, TRAFFIC_MINUTE, LakeTable
from wirelake.pipeline.commit.delta import DeltaWriter, live_files, open_table, replace_files
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.gold import merge
from wirelake.pipeline.gold.minute_files import read_files

DAY_S = 86_400
GOLD = [table for name, table in TABLES.items() if name.startswith("gold.")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def us(seconds: float) -> int:
    return int(after(seconds).timestamp() * 1_000_000)


def message(seconds: float, **rest: Any) -> dict[str, Any]:
    about = {"seq": int(seconds), "received_at": after(seconds), "protocol": "comet", "name": "auth"}
    return {**about, "direction": "in", "bytes": 7, **rest}


def delivery(seconds: float, state: str, **rest: Any) -> dict[str, Any]:
    about = {"seq": int(seconds), "received_at": after(seconds), "protocol": "comet", "topic": "@a", "identity": "ann"}
    return {**about, "id": f"{seconds}", "first_sent_at": after(seconds), "state": state, "attempts": 1, **rest}


def rows_of(lake: Lake, table: LakeTable) -> list[dict[str, Any]]:
    """Return the rows of a table; sketches of the same values may differ."""
    if not DeltaTable.is_deltatable(lake.store.table_uri(table.folder)):
        return []
    found = read_files(lake.store, table, live_files(open_table(lake.store, table), table.name))
    names = [name for name in table.schema.names if name != "latency_sketch"]
    rows: list[dict[str, Any]] = found.select(names).to_pylist()
    return sorted(rows, key=repr)


def tables_of(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    return {table.name: rows_of(lake, table) for table in GOLD}


def frames(lake: Lake) -> list[int]:
    return [row[0] for row in query(lake.store, "SELECT frames FROM gold.traffic_minute ORDER BY minute").rows]


def test_minutes_gain_what_batches_wrote_and_others_stay(lake: Lake) -> None:
    gold = lake.gold()
    lake.commit({"silver.messages": [message(1), message(61)]})
    assert gold.refresh().batch == 0
    assert frames(lake) == [1, 1]
    lake.commit({"silver.messages": [message(62), message(2), message(DAY_S + 1)]})
    for each in (gold, gold, lake.gold()):  # once more, and by a process that knows of nothing
        assert each.refresh().batch == 1
        assert frames(lake) == [2, 2, 1]
    assert len(live_files(open_table(lake.store, TABLES["silver.messages"]), "silver.messages")) == 3


def test_only_what_is_committed_counts(lake: Lake) -> None:
    lake.commit({"silver.messages": [message(1)]})
    manifest = lake.plan({"silver.messages": [message(2)]})
    gold = lake.gold()
    assert gold.refresh().batch == 0
    assert frames(lake) == [1]
    for name in manifest.tables:
        lake.delta.commit(name, manifest.batch, manifest.adds[name], [])
    assert gold.refresh().batch == 1
    assert frames(lake) == [2]


@pytest.mark.parametrize("killed_at", [table.name for table in GOLD])
def test_a_refresh_that_is_killed_is_finished_by_the_next(
    lake: Lake, killed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = {"direction": "in", "answer": False, "state": "complete", "packets": 1, "device_type": 6}
    lake.commit(
        {
            "silver.messages": [message(1)],
            "silver.deliveries": [delivery(1, "acked", latency_ms=3.0)],
            "silver.calls": [
                {"received_at": after(1), "protocol": "comet", "asked_at": after(1), "status": "ok", "latency_ms": 1.0}
            ],
            "silver.records": [
                {
                    "received_at": after(1),
                    "seq": 1,
                    "key": "k",
                    "sdb": "s",
                    "recorded_at": after(1),
                    "fields": '{"newp":1}',
                }
            ],
            "silver.device_commands": [
                {
                    "received_at": after(1),
                    "protocol": "apostol",
                    "serial": "m",
                    "first_at": after(1),
                    "command_no": 1,
                    **command,
                }
            ],
        },
        {"silver.deliveries": [delivery(2, "pending")]},
    )
    commit = DeltaWriter.commit

    def fail(self: DeltaWriter, name: str, *rest: Any) -> bool:
        if name == killed_at:
            raise OSError("no space left on device")
        return commit(self, name, *rest)

    monkeypatch.setattr(DeltaWriter, "commit", fail)
    with pytest.raises(OSError, match="no space"):
        lake.gold().refresh()
    monkeypatch.undo()
    lake.gold().refresh()
    found = tables_of(lake)
    assert all(len(rows) == (2 if name in _TWO_PROTOCOLS else 1) for name, rows in found.items()), found
    assert found["gold.delivery_minute"][0]["deliveries"] == 2
    assert found["gold.traffic_minute"][0]["frames"] == 1


_TWO_PROTOCOLS = ("gold.counts_hour", "gold.ledger")


def test_open_rows_count_as_long_as_they_are_open(lake: Lake) -> None:
    gold = lake.gold()
    sql = "SELECT deliveries, acked, pending, expired, attempts, p50_ms FROM gold.delivery_minute ORDER BY minute"
    lake.commit({}, {"silver.deliveries": [delivery(1, "pending"), delivery(61, "pending")]})
    gold.refresh()
    assert query(lake.store, sql).rows == [[1, 0, 1, 0, 1, None], [1, 0, 1, 0, 1, None]]
    lake.commit({}, {"silver.deliveries": [delivery(1, "pending", attempts=4), delivery(61, "expired")]})
    gold.refresh()
    assert query(lake.store, sql).rows == [[1, 0, 1, 0, 4, None], [1, 0, 0, 1, 1, None]]
    lake.commit({"silver.deliveries": [delivery(61, "acked", latency_ms=5.0)]}, {"silver.deliveries": []})
    lake.commit({"silver.deliveries": [delivery(1, "expired", attempts=4)]})
    lake.gold().refresh()
    assert query(lake.store, sql).rows == [[1, 0, 0, 1, 4, None], [1, 1, 0, 0, 1, 5.0]]


def test_the_newest_of_a_device_is_kept_from_one_time_to_the_next(lake: Lake) -> None:
    gold = lake.gold()
    command = {"seq": 1, "serial": "m", "device_type": 6, "direction": "in", "answer": False, "first_at": after(1)}
    status = {"state": "complete", "command_type": 1, "error": 0, "fields": '{"status":{"state":3}}'}
    lake.commit({"silver.device_commands": [{"received_at": after(1), **command, **status}]})
    gold.refresh()
    lake.commit({"silver.readings": [{"received_at": after(61), "seq": 2, "serial": "m", "type": 1, "value": 230.5}]})
    gold.refresh()
    assert query(lake.store, "SELECT serial, status, readings FROM gold.device_latest").rows == [
        ["m", '{"state":3}', '{"1":230.5}']
    ]


def test_a_device_costs_its_own_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "GOLD_DEVICES_PER_FILE", 10)
    gold = lake.gold()
    serials = [f"m{number}" for number in range(100)]

    def reading(serial: str, value: float) -> dict[str, Any]:
        return {"received_at": after(value), "seq": 1, "serial": serial, "type": 1, "value": value}

    lake.commit({"silver.readings": [reading(serial, 1) for serial in serials]})
    gold.refresh()
    table = open_table(lake.store, TABLES["gold.device_latest"])
    before = {file.path: file.rows for file in live_files(table, "gold.device_latest")}
    assert sum(before.values()) == 100
    assert max(before.values()) <= 10
    lake.commit({"silver.readings": [reading("m7", 2), reading("new", 2)]})
    gold.refresh()
    table.update_incremental()
    after_ = {file.path: file.rows for file in live_files(table, "gold.device_latest")}
    assert sum(after_.values()) == 101
    assert len(before.keys() - after_.keys()) <= 2
    found = query(lake.store, "SELECT serial, readings FROM gold.device_latest ORDER BY serial").rows
    assert dict(found) == dict.fromkeys(serials, '{"1":1.0}') | {"m7": '{"1":2.0}', "new": '{"1":2.0}'}


def test_bars_are_where_the_records_say_not_where_they_came(lake: Lake) -> None:
    record = {
        "key": "k",
        "sdb": "now",
        "received_at": after(7200),
        "seq": 1,
        "fields": '{"newp":5}',
        "recorded_at": after(30),
    }
    lake.commit({"silver.records": [record]})
    lake.gold().refresh()
    assert query(lake.store, "SELECT minute, open, count FROM gold.bars_minute").rows == [
        ["2026-01-02T12:00:00Z", 5.0, 1]
    ]


def test_what_a_ledger_is_about_is_noted_between_two_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the lock on the files: a ledger of tables with and without a batch would not balance."""
    lake.commit({"silver.messages": [message(1)], "bronze.frames": [message(1) | {"event": "frame"}]})
    noted: list[str] = []
    table_of = DeltaWriter.table

    def table(self: DeltaWriter, name: str) -> DeltaTable:
        if not name.startswith("gold."):
            with (lake.store.folder / "batch.lock").open() as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as a batch would want it
            noted.append(name)
        return table_of(self, name)

    gold = lake.gold()
    monkeypatch.setattr(DeltaWriter, "table", table)
    gold.refresh()
    assert {"bronze.frames", "silver.messages", "silver.batches"} <= set(noted)


@pytest.mark.parametrize("lost", [False, True])
def test_the_ledger_counts_whole_hours_where_they_lie(lake: Lake, lost: bool) -> None:
    received = [{"received_at": after(n), "seq": n, "protocol": "comet", "direction": "in"} for n in range(3)]
    tally = {"hour": after(0), "protocol": "comet", "counted": 3, "received": 3}
    lake.commit(
        {
            "bronze.frames": [{**row, "event": "frame"} for row in received],
            "silver.messages": received[1:] if lost else received,
            "silver.tallies": [tally],
        }
    )
    lake.gold().refresh()
    assert query(lake.store, "SELECT protocol, received, counted, decoded, balanced, why FROM gold.ledger").rows == [
        ["comet", 3, 3, 2, False, "received 3, but decoded + quarantined + waiting = 2"]
        if lost
        else ["comet", 3, 3, 3, True, None]
    ]


def test_files_of_a_few_minutes_while_they_change_and_of_a_day_when_it_is_over(lake: Lake) -> None:
    gold = lake.gold()
    for minute in range(0, 60, 5):
        lake.commit({"silver.messages": [message(minute * 60)]}, now_us=us(minute * 60))
        gold.refresh()
    table = open_table(lake.store, TRAFFIC_MINUTE)

    def files() -> dict[str, str]:
        table.update_incremental()
        found = live_files(table, TRAFFIC_MINUTE.name)
        return {file.path.rpartition("/")[2][:14]: file.path for file in found}

    before = files()
    assert len(before) == 6
    lake.commit({"silver.messages": [message(3 * 60)]}, now_us=us(60 * 60))
    gold.refresh()
    touched = [label for label, path in files().items() if before.get(label) != path]
    assert touched == ["part-1200-1209"]
    lake.commit({"silver.messages": [message(DAY_S)]}, now_us=us(DAY_S))
    gold.refresh()
    assert sorted(files()) == ["part-1200-1209", "part-1200-1259"]  # of the new day, and of the old one
    lake.commit({"silver.messages": [message(60)]}, now_us=us(DAY_S + 60))
    gold.refresh()
    assert frames(lake) == [1, 1, 1, *[1] * 11, 1]  # minutes 0, 1, 3, then every fifth, and one of the new day


def _history(chance: random.Random) -> Iterator[tuple[dict[str, Any], dict[str, Any], int]]:
    """Yield batches: settled rows, open rows, and the time."""
    opened: list[dict[str, Any]] = []
    seq = 0
    for batch in range(9):
        now_s = batch * DAY_S // 5
        settled: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("silver.messages", "silver.deliveries", "silver.records", "silver.readings")
        }
        for _ in range(chance.randrange(1, 8)):
            seq += 1
            seconds = now_s + chance.randrange(3000)
            settled["silver.messages"].append(message(seconds, seq=seq, status=chance.choice([None, "ok", "bad"])))
            record = {
                "key": chance.choice("ab"),
                "sdb": "s",
                "received_at": after(seconds),
                "seq": seq,
                "time": seconds,
            }
            price = {"fields": f'{{"newp":{chance.randrange(9)}}}', "recorded_at": after(chance.randrange(seconds + 1))}
            settled["silver.records"].append(record | price)
            measured = {"serial": chance.choice("xyz"), "type": chance.randrange(3), "value": float(seq)}
            settled["silver.readings"].append({"received_at": after(seconds), "seq": seq, **measured})
            opened.append(delivery(seconds, "pending", seq=seq, id=str(seq), topic=chance.choice(["@a", "@b"])))
        still_open = []
        for each in opened:
            if chance.random() < 0.4:
                latency = chance.choice([1.0, 2.0, 70.0])
                settled["silver.deliveries"].append({**each, "state": "acked", "latency_ms": latency})
            else:
                each["attempts"] += chance.randrange(2)
                still_open.append(each)
        opened = still_open
        yield settled, {"silver.deliveries": [dict(each) for each in opened]}, us(now_s)


@pytest.mark.parametrize("seed", range(2))
def test_merged_tables_are_those_computed_from_all_rows(tmp_path: Path, seed: int) -> None:
    """Check merges against tables that are computed at once, as after an update from an earlier version."""
    chance = random.Random(seed)
    merged, earlier = Lake(tmp_path / "merged"), Lake(tmp_path / "earlier")
    gold = merged.gold()
    for settled, opened, now_us in _history(chance):
        merged.commit(settled, opened, now_us)
        earlier.commit(settled, opened, now_us, partials=False)
        if chance.random() < 0.5:
            gold = chance.choice([gold, merged.gold()])
            gold.refresh()
    gold.refresh()
    earlier.gold().refresh()
    assert tables_of(merged) == tables_of(earlier)
    assert gold.check().num_rows == earlier.gold().check().num_rows


def test_rows_of_an_earlier_version_are_computed_again(lake: Lake) -> None:
    """Check that rows without sums, in a file of a whole day, are replaced when the first partials come."""
    delivered = [delivery(n, "acked", latency_ms=float(n)) for n in range(1, 4)]
    lake.commit({"silver.deliveries": delivered, "silver.messages": [message(1)]}, partials=False)
    old = {"day": NOON.date(), "minute": NOON, "topic": "@a", "deliveries": 3, "acked": 3, "p50_ms": 2.0}
    table = TABLES["gold.delivery_minute"]
    files = write_rows(table, arrow_rows(table, old), lake.store)
    replace_files(lake.store, open_table(lake.store, table), table.name, files, [], data_change=True)
    lake.commit({"silver.deliveries": [delivery(9, "acked", latency_ms=9.0)]})
    lake.gold().refresh()
    sql = "SELECT deliveries, acked, p50_ms, p99_ms FROM gold.delivery_minute"
    assert query(lake.store, sql).rows == [[4, 4, 2.0, 9.0]]
    assert frames(lake) == [1]
    lake.commit({"silver.deliveries": [delivery(10, "acked", latency_ms=1.0)]})
    lake.gold().refresh()
    assert query(lake.store, sql).rows == [[5, 5, 2.0, 9.0]]


def test_days_whose_rows_changed_are_computed_again(lake: Lake) -> None:
    gold = lake.gold()
    lake.commit({"silver.messages": [message(1), message(DAY_S)], "silver.deliveries": [delivery(1, "acked")]})
    gold.refresh()
    table = DeltaTable(lake.store.table_uri("silver/messages"))
    table.update(predicate="seq = 1", updates={"name": "'login'"})
    lake.commit({"silver.messages": [message(3)]})
    lake.gold().rebuild(None, ["silver.messages"], [NOON.date()])
    sql = "SELECT minute, name, frames FROM gold.traffic_minute ORDER BY ALL"
    found = [["2026-01-02T12:00:00Z", "auth", 1], ["2026-01-02T12:00:00Z", "login", 1]]
    assert query(lake.store, sql).rows == [*found, ["2026-01-03T12:00:00Z", "auth", 1]]
    gold.refresh()
    assert query(lake.store, sql).rows == [*found, ["2026-01-03T12:00:00Z", "auth", 1]]
    assert query(lake.store, "SELECT sum(deliveries) FROM gold.delivery_minute").rows == [[1]]


def test_tables_by_the_minute_are_not_made_of_part_of_the_rows(lake: Lake) -> None:
    lake.commit({"silver.messages": [message(1)]}, partials=False)
    path = next((lake.store.folder / "silver" / "messages").rglob("*.parquet"))
    path.unlink()
    with pytest.raises(StorageError, match=f"cannot compute gold.traffic_minute: .*{path.name} .* is missing"):
        lake.gold().refresh()
