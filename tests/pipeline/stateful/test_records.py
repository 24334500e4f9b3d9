import json
import struct
from datetime import UTC, datetime
from typing import Any

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, frame, numbered, record, reduced_rows
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.protocol import PROTOCOL
from wirelake.protocols.sisnet.request import Request, write_binary_request
from wirelake.protocols.sisnet.translation import to_message

RECORDS = "silver.records"
PACKED = struct.pack("<qd", 5, 9.5) + struct.pack("<qd", 6, 9.75)
FIELDS = b'[["time","I",8,1],["newp","F",8,1]]'
DICT = b'1:{"cmd":"dict","argv":{"info":{"fields":%b}}}' % FIELDS
CREATE = b'1:{"service":"sisdb","command":"create","ask":{"key":"k","sdb":"info","fields":%b}}' % FIELDS
LINE = b"2:set:sh1:info:" + PACKED


def received(data: bytes, session: str = "s1", at: int = T0) -> Record:
    return frame("sisnet", "in", data, at, session, identity="ann")


def columns_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("seq", "service", "key", "sdb", "time", "fields")
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def test_json_in_both_dialects() -> None:
    steps = [
        received(b'1:{"service":"sisdb","command":"set","ask":{"key":"a","sdb":"info","data":{"time":1,"newp":2.5}}}'),
        received(b'2:{"cmd":"sisdb.set","key":"b","sdb":"info","argv":[{"time":3,"newp":4},{"newp":1}]}'),
        received(b'3:{"service":"other","command":"set","ask":{"key":"c","sdb":"x","data":{"name":"\xc3\xa9"}}}'),
    ]
    rows = reduced_rows(steps, RECORDS)
    assert columns_of(rows) == [
        (1, "sisdb", "a", "info", 1, '{"time":1,"newp":2.5}'),
        (2, "sisdb", "b", "info", 3, '{"time":3,"newp":4}'),
        (2, "sisdb", "b", "info", None, '{"newp":1}'),
        (3, "other", "c", "x", None, '{"name":"é"}'),
    ]
    assert {(row["node"], row["protocol"], row["identity"], row["decoder"]) for row in rows} == {
        (NODE, "sisnet", "ann", f"sisnet/{PROTOCOL.decoder_version}")
    }


def test_binary() -> None:
    ask = {"key": "a", "sdb": "info", "data": [{"time": 7, "newp": 1.25}]}
    binary = write_binary_request(Request(service="sisdb", command="set", ask=ask), "9")
    assert to_message(binary, Sender.CLIENT).fields == ask
    assert columns_of(reduced_rows([received(binary.encode())], RECORDS)) == [
        (1, "sisdb", "a", "info", 7, '{"time":7,"newp":1.25}')
    ]


EXPECTED = [
    ("sisdb", "sh1", "info", 5, '{"time":5,"newp":9.5}'),
    ("sisdb", "sh1", "info", 6, '{"time":6,"newp":9.75}'),
]


def test_packed_by_the_sessions_own_dict_in_a_later_batch() -> None:
    bucketed = BucketRun(4)
    bucketed.batch(numbered([received(DICT)]))
    bucketed.batch(numbered([received(LINE), received(LINE, "s2")], 2))
    assert [row[1:] for row in columns_of(bucketed.rows(RECORDS))] == EXPECTED
    assert bucketed.counts == {"records_unread": 1}
    bucketed.batch(
        numbered([record("close", protocol="sisnet", session="s1", note={"reason": "x"}), received(LINE)], 4)
    )
    assert bucketed.counts == {"records_unread": 2, "session_close_without_open": 1}


def test_packed_by_a_table_that_somebody_else_created() -> None:
    bucketed = BucketRun(4)
    bucketed.batch(numbered([received(LINE, "s1"), received(CREATE, "s9")]))
    assert bucketed.counts == {"records_unread": 1}
    bucketed.batch(numbered([received(LINE, f"s{each}") for each in range(5)], 3))
    assert [row[1:] for row in columns_of(bucketed.rows(RECORDS))] == EXPECTED * 5


def test_rows_get_their_names_from_the_layout() -> None:
    rows = b'3:{"service":"sisdb","command":"set","ask":{"key":"sh1","sdb":"info","data":[[5,9.5],[6,9.75]]}}'
    one = b'3:{"service":"sisdb","command":"set","ask":{"key":"sh1","sdb":"info","data":[5,9.5]}}'
    assert [row[1:] for row in columns_of(reduced_rows([received(CREATE), received(rows)], RECORDS))] == EXPECTED
    assert [row[1:] for row in columns_of(reduced_rows([received(CREATE), received(one)], RECORDS))] == EXPECTED[:1]


def test_a_layout_given_anew_holds_for_what_comes_after_it() -> None:
    other = CREATE.replace(b'["time","I",8,1],["newp","F",8,1]', b'["a","U",4,2],["b","I",8]')
    bucketed = BucketRun(2)
    bucketed.batch(numbered([received(CREATE, "s9"), received(LINE), received(other, "s9"), received(LINE)]))
    fields = [row[5] for row in columns_of(bucketed.rows(RECORDS))]
    assert fields[:2] == [row[4] for row in EXPECTED]
    assert fields[2].startswith('{"a":[5,0],"b":')


def test_what_makes_no_record_is_counted() -> None:
    bad = (
        b'1:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"info"}}',
        b'1:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"info","data":7}}',
        b'1:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"info","data":[[1,2,3]]}}',
        b'1:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"info","data":"not base64!"}}',
        b'1:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":["a"],"data":[[1]]}}',
        b'1:{"service":"sisdb","command":"create","ask":{"key":"k","sdb":"info","fields":[["time","?",8]]}}',
        b"2:set:sh1:info:" + PACKED[:-1],
        b'1:{"cmd":"dict","argv":{"info":{"fields":7},"x":1}}',
    )
    bucketed = BucketRun()
    bucketed.batch(numbered([received(CREATE), *map(received, bad), received(LINE)]))
    assert bucketed.rows(RECORDS) == []
    assert bucketed.counts == {"records_unread": 7}


def test_when_a_record_is() -> None:
    times = (5, 1_600_000_000, 1_600_000_000_123, "noon", None)
    asks = [{"key": "k", "sdb": "x", "data": {"time": time}} for time in times]
    steps = [received(b"1:" + json.dumps({"service": "sisdb", "command": "set", "ask": ask}).encode()) for ask in asks]
    rows = sorted(reduced_rows(steps, RECORDS), key=lambda row: row["seq"])
    given = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    seen = datetime.fromtimestamp(T0 / SECOND, UTC)
    assert [row["recorded_at"] for row in rows] == [seen, given, given.replace(microsecond=123_000), seen, seen]
    assert [row["day"] for row in rows] == [row["recorded_at"].date() for row in rows]
