from wirelake.limits import TRACE_EVENTS_MAX
from wirelake.tracing.record import LogRecord
from wirelake.tracing.timeline import (
    TraceEvent,
    event_of,
    first_acks,
    route_event,
    sort_events,
    table_events,
    unknown_events,
    visible_to,
)


def record(event: str, seq: int = 1, frame: bytes = b"", direction: str = "", **note: object) -> LogRecord:
    return LogRecord(seq, 1000 * seq, "comet", event, direction, "s-1", "", "127.0.0.1:9", frame, note, len(frame))


def test_records_are_told_in_sentences() -> None:
    sentences = {
        "comet frame from 127.0.0.1:9": record("frame", direction="in"),
        "comet frame to 127.0.0.1:9, GET /x": record("frame", direction="out", method="GET", path="/x"),
        "published on @a at position 2 by anna": record("publish", topic="@a", position=2, by="anna"),
        "written to bob, eve, attempt 2": record(
            "deliver", frame=b'[["s","bob"],["t","eve","esnp"],["u","bob"]]', attempt=2
        ),
        "acked by bob": record("ack", identity="bob", acked=["x"]),
        "acked by bob, with all before": record("ack", identity="bob", through=7),
        "not encodable for ann: too long": record("unsayable", frame=b'[["s-1","ann","comet"]]', reason="too long"),
        "cannot be decoded: no (byte 3, bad)": record("quarantine", code="bad", offset=3, text="no"),
        "close: reason peer_closed, bytes_in 0": record("close", reason="peer_closed", text="", bytes_in=0),
    }
    assert [event_of(each).text for each in sentences.values()] == list(sentences)
    many = b"[" + b",".join(b'["s-%d","n-%d"]' % (n, n) for n in range(9)) + b"]"
    sent = event_of(record("deliver", frame=many, attempt=1))
    assert (sent.recipients, sent.text) == (9, "written to n-0, n-1, n-2, n-3, n-4 and 4 more")


def test_what_is_acked_stays_so() -> None:
    acks = [
        record("ack", 0, identity="bob", through=3),
        record("ack", 1, identity="bob", through=9),
        record("ack", 2, identity="eve", acked=["x"]),
        record("ack", 3, identity="eve", through=9),
    ]
    assert [each.seq for each in first_acks(acks)] == [0, 2]


def test_a_line_has_offsets_and_an_order() -> None:
    line = sort_events(
        [
            TraceEvent(what="ack", text="", at_us=3500, seq=9),
            TraceEvent(what="route", text="", at_us=1000),
            TraceEvent(what="publish", text="", at_us=1000, seq=2),
            TraceEvent(what="frame", text="", at_us=1000, seq=1),
        ]
    )
    assert [(event.what, event.offset_ms) for event in line] == [
        ("frame", 0.0),
        ("publish", 0.0),
        ("route", 0.0),
        ("ack", 2.5),
    ]
    long = sort_events([TraceEvent(what="ack", text="", at_us=n) for n in range(TRACE_EVENTS_MAX + 7)])
    assert len(long) == TRACE_EVENTS_MAX
    assert (long[0].at_us, long[-1].at_us) == (0, TRACE_EVENTS_MAX + 6)


PUBLISHED = {
    "seq": 4,
    "received_at": "2030-03-17T17:46:40Z",
    "id": "a-1-2",
    "topic": "@a",
    "position": 2,
    "publisher": "",
    "content": "6869",
}
SENT = {
    "seq": 5,
    "id": "a-1-2",
    "topic": "@a",
    "identity": "bob",
    "session": "s-1",
    "attempts": 3,
    "first_sent_at": "2030-03-17T17:46:40.001Z",
    "acked_at": "2030-03-17T17:46:41Z",
    "state": "acked",
}


def test_the_tables_fill_in_what_the_log_has_lost() -> None:
    events = table_events({"silver.notifications": [PUBLISHED], "silver.deliveries": [SENT, SENT | {"acked_at": None}]})
    assert [(event.what, event.at_us - 1_900_000_000_000_000) for event in events] == [
        ("publish", 0),
        ("deliver", 1000),
        ("ack", 1_000_000),
        ("deliver", 1000),
    ]
    assert events[1].text == "written to bob, 3 times in all"
    assert (events[0].bytes, events[0].hex) == (2, "6869")
    known = [event_of(record("publish", topic="@a", position=2, by="")), event_of(record("ack", identity="bob"))]
    assert {event.what for event in unknown_events(events, known)} == {"deliver"}


def test_an_identity_sees_its_own_part() -> None:
    sent = event_of(record("deliver", frame=b'[["s-1","bob"],["s-2","eve"]]', attempt=1))
    acks = [event_of(record("ack", identity=who)) for who in ("bob", "eve")]
    publish = event_of(record("publish", topic="@a", position=1, by="anna"))
    seen = visible_to([publish, route_event(publish, ["bob", "eve"]), sent, *acks], "bob")
    assert [event.text for event in seen] == ["published on @a at position 1 by anna", "written to bob", "acked by bob"]
    assert "eve" not in str(seen)
