"""Test which losses the logs of the tables show, and which only a full count does."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipeline.gold.lakes import Lake
from pipeline.rows import after
from wirelake.lake.tables import TABLES
from wirelake.pipeline.commit.delta import live_files, open_table, replace_files
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.gold import ledger_check
from wirelake.pipeline.gold.minute_files import read_files


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake whose ledger balances: three frames in, and a delivery, in two batches."""
    lake = Lake(tmp_path)
    frames = [{"seq": n, "received_at": after(n), "protocol": "comet", "direction": "in"} for n in range(3)]
    for some in (frames[:2], frames[2:]):
        delivery = {"received_at": after(9), "first_sent_at": after(9), "protocol": "comet", "state": "acked"}
        lake.commit(
            {
                "bronze.frames": [{**row, "event": "frame"} for row in some],
                "silver.messages": some,
                "silver.tallies": [
                    {"hour": after(0), "protocol": "comet", "counted": len(some), "received": len(some)}
                ],
                "silver.deliveries": [{**delivery, "id": str(len(some)), "identity": "ann"}],
            }
        )
    lake.gold().refresh()
    assert whys(lake, recount=True) == []
    return lake


def whys(lake: Lake, recount: bool) -> list[str]:
    found: list[str] = lake.gold().check(recount)["why"].to_pylist()
    return found


def folder(lake: Lake, name: str) -> Path:
    return lake.store.folder / TABLES[name].folder


def test_rows_that_were_deleted_show_in_the_log_of_the_table(lake: Lake) -> None:
    DeltaTable(folder(lake, "silver.messages")).delete("seq = 1")
    assert whys(lake, recount=False) == ["received 3, but decoded + quarantined + waiting = 2"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "bronze.frames",
            (
                "received 6, but decoded + quarantined + waiting = 3; received 6, but counted + uncounted = 3; "
                "received 6, but scanned = 3"
            ),
        ),
        ("silver.deliveries", "deliveries 2, but deliveries_acked + deliveries_pending + deliveries_expired = 4"),
    ],
)
def test_rows_that_were_committed_twice_show_in_the_log_of_the_table(lake: Lake, name: str, why: str) -> None:
    table, opened = TABLES[name], open_table(lake.store, TABLES[name])
    again = write_rows(table, read_files(lake.store, table, live_files(opened, name)), lake.store)
    replace_files(lake.store, opened, name, again, [], data_change=True)
    assert whys(lake, recount=False) == [why]


def test_files_that_are_missing_are_named(lake: Lake) -> None:
    path = min(folder(lake, "silver.messages").rglob("*.parquet"))
    path.unlink()
    (row,) = [why for why in whys(lake, recount=False) if "missing" in why]
    assert row == f"1 file is missing: silver.messages/{path.relative_to(folder(lake, 'silver.messages'))}"


def test_a_file_that_was_changed_in_place_is_found_by_counting(lake: Lake) -> None:
    path = max(folder(lake, "silver.messages").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(0, len(rows) - 1), path)
    assert whys(lake, recount=False) == []  # the log of the table still counts it
    assert whys(lake, recount=True) == ["received 3, but decoded + quarantined + waiting = 2"]


def test_a_running_job_asks_for_files_once_in_a_while(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    size = type(lake.store).size

    def ask(self: Any, path: str) -> int | None:
        if not path.startswith("gold/"):
            asked.append(path)
        return size(self, path)

    gold = lake.gold()
    monkeypatch.setattr(type(lake.store), "size", ask)
    gold.check(recount=False)
    first = len(asked)
    assert first
    gold.check(recount=False)
    assert len(asked) == first
    monkeypatch.setattr(ledger_check, "GOLD_CHECK_EVERY_S", 0.0)
    gold.check(recount=False)
    assert len(asked) == 2 * first
