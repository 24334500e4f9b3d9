"""Test that the ledger balances if nothing is missing, and otherwise says where it does not."""

from typing import Any

import pyarrow as pa
import pytest

from pipeline.rows import NOON, after, arrow_rows, literal_rows
from wirelake.lake.tables import (
    BATCHES,
    DELIVERIES,
    DEVICE_COMMANDS,
    FRAMES,
    LEDGER,
    MESSAGES,
    QUARANTINE,
    TALLIES,
    LakeTable,
)
from wirelake.pipeline.gold.counts import COUNTED, add_up, count_unique
from wirelake.pipeline.gold.ledger import ledger

Rows = dict[str, list[dict[str, Any]]]
INPUTS = (FRAMES, MESSAGES, QUARANTINE, DEVICE_COMMANDS, DELIVERIES, TALLIES, BATCHES)


@pytest.fixture
def rows() -> Rows:
    """Return an hour of apostol that balances: five frames in, one of them bad, two of an incomplete command."""
    a = {"protocol": "apostol", "direction": "in"}
    command = {**a, "node": "n", "serial": "m", "device_type": 6, "answer": False, "first_at": after(1)}
    delivery = {"protocol": "comet", "first_sent_at": after(1), "identity": "ann"}
    return {
        FRAMES.name: [
            *({**a, "seq": n, "received_at": after(n), "event": "frame"} for n in range(4)),
            {**a, "seq": 4, "received_at": after(4), "event": "quarantine"},
            {**a, "seq": 5, "received_at": after(5), "event": "frame", "direction": "out"},
            {**a, "seq": 6, "received_at": after(6), "event": "open", "direction": ""},
            *({"seq": n, "received_at": after(n), "event": "ack", "direction": "", "protocol": ""} for n in (7, 8)),
        ],
        MESSAGES.name: [
            *({**a, "seq": n, "received_at": after(n)} for n in range(4)),
            {**a, "seq": 5, "received_at": after(5), "direction": "out"},
        ],
        QUARANTINE.name: [{**a, "seq": 4, "received_at": after(4)}],
        DEVICE_COMMANDS.name: [
            {**command, "command_no": 1, "state": "complete", "packets": 1},
            {**command, "command_no": 2, "state": "refused", "packets": 1},
            {**command, "command_no": 3, "state": "open", "packets": 2},
        ],
        DELIVERIES.name: [{**delivery, "id": "1", "state": "acked"}, {**delivery, "id": "2", "state": "pending"}],
        TALLIES.name: [
            {"hour": NOON, "protocol": "apostol", "counted": 3, "received": 3},
            {"hour": NOON, "protocol": "apostol", "counted": None, "received": 2},
        ],
        BATCHES.name: [
            {"batch": 0, "hour": NOON, "protocol": "apostol", "records": 4, "received": 3, "sent": 1},
            {"batch": 1, "hour": NOON, "protocol": "apostol", "records": 3, "received": 2, "sent": 0},
            {"batch": 1, "hour": NOON, "protocol": "", "records": 2, "received": 0, "sent": 0},
        ],
    }


def ledger_of(rows: Rows) -> pa.Table:
    """Return the ledger of tables with these rows."""
    counts = [count_unique(COUNTED[table.name], arrow_rows(table, *rows[table.name])) for table in INPUTS]
    return ledger(add_up(counts))


def verdicts(rows: Rows) -> dict[str, tuple[bool, str | None]]:
    found = literal_rows(ledger_of(rows), LEDGER, "protocol", "balanced", "why")
    return {protocol: (balanced, why) for protocol, balanced, why in found}


def test_every_sum(rows: Rows) -> None:
    result = ledger_of(rows)
    columns = ("hour", "protocol", "counted", "received", "uncounted", "decoded", "quarantined", "waiting", "balanced")
    assert literal_rows(result, LEDGER, *columns) == [
        (NOON, "apostol", 3, 5, 2, 2, 1, 2, True),
        (NOON, "comet", 0, 0, 0, 0, 0, 0, True),
    ]
    of_commands = ("commands", "commands_complete", "commands_expired", "commands_refused", "commands_open")
    assert literal_rows(result, LEDGER, *of_commands) == [(0, 0, 0, 0, 0), (3, 1, 0, 1, 1)]
    of_deliveries = ("deliveries", "deliveries_acked", "deliveries_pending", "deliveries_expired")
    assert literal_rows(result, LEDGER, *of_deliveries) == [(0, 0, 0, 0), (2, 1, 1, 0)]


@pytest.mark.parametrize(
    ("table", "protocol", "why"),
    [
        (
            FRAMES,
            "apostol",
            (
                "received 4, but decoded + quarantined + waiting = 5; received 4, but counted + uncounted = 5; "
                "received 4, but scanned = 5; records 6, but records_committed = 7"
            ),
        ),
        (MESSAGES, "apostol", "received 5, but decoded + quarantined + waiting = 4"),
        (QUARANTINE, "apostol", "received 5, but decoded + quarantined + waiting = 4"),
        (
            TALLIES,
            "apostol",
            "received 5, but counted + uncounted = 2; received 5, but scanned = 2; scanned 2, but committed = 5",
        ),
        (BATCHES, "apostol", "scanned 5, but committed = 2; records 7, but records_committed = 3"),
    ],
)
def test_a_row_that_is_lost_shows(rows: Rows, table: LakeTable, protocol: str, why: str) -> None:
    del rows[table.name][0]
    assert verdicts(rows)[protocol] == (False, why)


@pytest.mark.parametrize(
    ("table", "protocol", "why"),
    [
        (MESSAGES, "apostol", "received 5, but decoded + quarantined + waiting = 6"),
        (
            DEVICE_COMMANDS,
            "apostol",
            "commands 3, but commands_complete + commands_expired + commands_refused + commands_open = 4",
        ),
        (
            DELIVERIES,
            "comet",
            "deliveries 2, but deliveries_acked + deliveries_pending + deliveries_expired = 3",
        ),
    ],
)
def test_a_row_that_is_there_twice_shows(rows: Rows, table: LakeTable, protocol: str, why: str) -> None:
    rows[table.name].append(rows[table.name][0])
    assert verdicts(rows)[protocol] == (False, why)


def test_a_state_that_nobody_knows_shows(rows: Rows) -> None:
    rows[DELIVERIES.name][0]["state"] = "lost"
    assert verdicts(rows)["comet"][0] is False


def skip(rows: Rows, seq: int) -> None:
    """Remove a frame from all counts after the gateway's, as if no task had read it."""
    for table in (FRAMES, MESSAGES):
        rows[table.name] = [row for row in rows[table.name] if row["seq"] != seq]
    rows[TALLIES.name][0]["received"] -= 1
    rows[BATCHES.name][0]["received"] -= 1
    rows[BATCHES.name][0]["records"] -= 1


def test_a_record_that_no_task_read_shows_by_what_the_gateway_counted(rows: Rows) -> None:
    skip(rows, 0)
    assert verdicts(rows)["apostol"] == (False, "received 4, but counted + uncounted = 5")


def test_where_the_gateway_did_not_count_it_shows_by_the_numbers_of_the_log(rows: Rows) -> None:
    skip(rows, 0)
    rows[TALLIES.name][0]["counted"] = None
    rows[TALLIES.name].append({"hour": NOON, "protocol": "", "counted": 0, "received": 0, "missing": 1})
    found = verdicts(rows)
    assert found["apostol"] == (True, None)
    assert found[""] == (False, "the log numbered 1 record that no task read")


def test_what_is_lost_is_explained_and_what_is_dropped_is_shown(rows: Rows) -> None:
    assert "" not in verdicts(rows)  # nothing to say of records that belong to no protocol
    common = {"hour": NOON, "protocol": ""}
    rows[BATCHES.name] += [
        {**common, "batch": 0, "what": "calls_given_up", "dropped": 2},
        {**common, "batch": 1, "what": "calls_given_up", "dropped": 3},
        {**common, "batch": 1, "what": "acks_forgotten", "dropped": 1},
    ]
    result = ledger_of(rows)
    columns = ("protocol", "dropped", "dropped_by", "balanced")
    assert literal_rows(result, LEDGER, *columns)[0] == ("", 6, "acks_forgotten 1, calls_given_up 5", True)
    rows[BATCHES.name] += [
        {**common, "batch": 2, "what": "records_lost", "dropped": 7},
        {**common, "batch": 2, "what": "records_removed", "dropped": 2},
    ]
    rows[TALLIES.name].append({**common, "counted": 0, "received": 0, "missing": 9})
    assert verdicts(rows)[""] == (
        False,
        "7 records were damaged in the log; retention removed 2 records before they were read",
    )


def test_hours_before_the_driver_kept_an_account_are_not_held_against_it(rows: Rows) -> None:
    rows[BATCHES.name] = []
    assert verdicts(rows)["apostol"] == (True, None)
    part = {"batch": 5, "hour": NOON, "protocol": "apostol"}
    rows[BATCHES.name] = [{**part, "records": None, "received": None}, {**part, "records": 1, "received": 1}]
    assert verdicts(rows)["apostol"] == (True, None)
