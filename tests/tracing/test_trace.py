from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lake.writing import write

from tracing.writing import ID, IDS, Written
from wirelake.lake.tables import DELIVERIES, FRAMES, MESSAGES, NOTIFICATIONS, SESSIONS, LakeTable
from wirelake.limits import TRACE_EVENTS_MAX
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.tracing import search
from wirelake.tracing.trace import Trace, trace, trace_or_reason

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)


def row(table: LakeTable, **values: Any) -> dict[str, Any]:
    """Return a settled row of noon."""
    common = {"received_at": NOON, "day": date(2030, 1, 2), "node": "n", "protocol": "comet"}
    return {name: value for name, value in (common | values).items() if name in table.schema.names}


def whats(found: Trace | None) -> list[str]:
    assert found is not None
    return [event.what for event in found.timeline]


def test_gone_from_the_topic_but_still_in_the_log(tmp_path: Path) -> None:
    written = Written(tmp_path)
    hers = {"protocol": "http", "session": "s-9", "identity": "anna", "peer": "127.0.0.1:9"}
    frame = written.add("frame", b'{"content":"hello"}', direction="in", note={"method": "POST", "path": "/x"}, **hers)
    written.publish()
    written.deliver(2, 2, ("s-1", "bob"), ("s-2", "eve"))
    written.add("ack", note={"identity": "bob", "acked": [ID]})
    written.close()
    found = trace(tmp_path, ID)
    assert whats(found) == ["frame", "publish", "route", "deliver", "ack"]
    assert found is not None
    assert (found.kept, found.topic, found.publisher, found.content) == (False, "@a", "anna", "hello")
    assert found.deliveries is not None
    assert {each.identity: each.state for each in found.deliveries or ()} == {"bob": "acked", "eve": "pending"}
    brought = found.timeline[0]
    assert (brought.seq, brought.session, brought.peer, brought.bytes) == (frame, "s-9", "127.0.0.1:9", 19)
    assert bytes.fromhex(brought.hex) == b'{"content":"hello"}'
    assert [event.offset_ms for event in found.timeline] == [0.0, 1.0, 1.0, 2.0, 3.0]
    assert (found.rows, found.caveats) == ({}, [])

    assert trace(tmp_path, f"{IDS}3") is None
    assert trace(tmp_path, ID, only="stranger") is None
    own = trace(tmp_path, ID, only="eve")
    assert whats(own) == ["publish", "deliver"]
    assert "bob" not in str(own)


def test_gone_from_the_log_but_in_the_tables(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    of_it = {"id": ID, "topic": "@a", "position": 2}
    write(lake, NOTIFICATIONS, row(NOTIFICATIONS, seq=7, type=3, publisher="anna", content=b"\xff", **of_it))
    later = NOON + timedelta(milliseconds=5)
    sent = {"identity": "bob", "session": "s-1", "attempts": 2, "first_sent_at": NOON, "seq": 8} | of_it
    write(
        lake,
        DELIVERIES,
        row(DELIVERIES, acked_at=later, state="acked", **sent),
        row(DELIVERIES, state="expired", **sent | {"identity": "eve"}),
    )
    found = trace(tmp_path, ID)
    assert whats(found) == ["publish", "route", "deliver", "deliver", "ack"]
    assert found is not None
    assert (found.type, found.content, found.encoding) == (3, "/w==", "base64")
    assert {each.identity: each.state for each in found.deliveries or ()} == {"bob": "acked", "eve": "expired"}
    assert found.timeline[-1].offset_ms == 5.0
    assert {event.source for event in found.timeline} == {"silver.notifications", "silver.deliveries"}
    assert [each["identity"] for each in found.rows["silver.deliveries"]] == ["bob", "eve"]
    assert found.caveats == [f"there is no log in {tmp_path / 'log'}"]
    assert trace(tmp_path, ID, only="bob") is not None
    assert trace(tmp_path, ID, only="stranger") is None


def test_the_tables_are_asked_only_for_what_the_log_cannot_have(tmp_path: Path) -> None:
    written = Written(tmp_path, segment_bytes=16 * 1024)
    for number in range(60):
        written.publish(f"{IDS}{number + 0x100:x}", content=b"x" * 500)
    written.close()
    firsts = list_segments(tmp_path / "log")
    segment_path(tmp_path / "log", firsts[0]).unlink()  # as retention does
    for seq, id_, node in ((1, "a-1-1", "local"), (firsts[1], "a-1-2", "local"), (firsts[1], "a-1-3", "another")):
        of_it = {"id": id_, "topic": "@a", "position": 1, "type": 0, "publisher": "anna", "content": b""}
        write(tmp_path / "lake", NOTIFICATIONS, row(NOTIFICATIONS, seq=seq, **of_it) | {"node": node})
    assert trace(tmp_path, "a-1-1") is not None
    assert trace(tmp_path, "a-1-3") is not None
    assert trace_or_reason(tmp_path, "a-1-2") == f"searched records {firsts[1]} to 59 of the log, and the tables"
    of_it = {"id": f"{IDS}13b", "topic": "@a", "position": 0x13B}
    write(tmp_path / "lake", NOTIFICATIONS, row(NOTIFICATIONS, seq=59, **of_it), row(NOTIFICATIONS, seq=58, **of_it))
    found = trace(tmp_path, f"{IDS}13b")
    assert found is not None
    assert [each["seq"] for each in found.rows["silver.notifications"]] == [59]


def test_what_was_searched_in_vain_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace_or_reason(tmp_path, "a-1-1") == f"searched the tables; there is no log in {tmp_path / 'log'}"
    written = Written(tmp_path, segment_bytes=16 * 1024)
    for _ in range(50):
        written.add("frame", b"x" * 500, session="s-1")
    written.close()
    for unknown in ("a-1-1", "s-2", "77"):
        assert trace_or_reason(tmp_path, unknown) == "searched records 0 to 49 of the log, and the tables"
        assert trace_or_reason(tmp_path, unknown, only="anna") == ""
    assert "not the id of" in str(trace_or_reason(tmp_path, "?"))
    monkeypatch.setattr(search, "TRACE_SEARCHED_MAX", 0)
    assert isinstance(trace_or_reason(tmp_path, "a-1-1"), str), "no index names it: nothing had to be read"
    for path in (tmp_path / "log").glob("*.idx"):
        path.unlink()
    assert "; 50 records of the log that may be about it were not searched" in str(trace_or_reason(tmp_path, "a-1-1"))


def test_a_record_and_what_it_caused(tmp_path: Path) -> None:
    written = Written(tmp_path)
    frame = written.add("frame", b"hello", direction="in", protocol="http", identity="anna")
    published = written.publish()
    written.publish(f"{IDS}3", by="eve")
    written.close()
    write(tmp_path / "lake", MESSAGES, row(MESSAGES, seq=frame, kind="request"), row(MESSAGES, seq=99))
    found = trace(tmp_path, str(frame))
    assert whats(found) == ["frame", "publish"]
    assert found is not None
    assert found.timeline[1].id == ID, "where to go on from"
    assert [each["seq"] for each in found.rows["silver.messages"]] == [frame]
    assert whats(trace(tmp_path, str(published))) == ["frame", "publish"]
    assert trace(tmp_path, "77") is None
    assert trace(tmp_path, str(frame), only="anna") is None, "the log is the admin's"
    write(tmp_path / "lake", FRAMES, row(FRAMES, seq=77, event="frame", direction="out", **BOBS, frame=b"x", note=""))
    old = trace(tmp_path, "77")
    assert old is not None
    assert [(event.text, event.source, event.hex) for event in old.timeline] == [
        ("comet frame to bob", "bronze.frames", "78")
    ]


BOBS = {"session": "s-1", "identity": "bob", "peer": "127.0.0.1:9"}


def test_a_long_session_says_that_it_is_cut(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for _ in range(TRACE_EVENTS_MAX + 1):
        written.add("frame", session="s-1")
    written.close()
    found = trace(tmp_path, "s-1")
    assert found is not None
    assert len(found.timeline) == TRACE_EVENTS_MAX
    assert found.caveats == [
        f"only the first and the last of {TRACE_EVENTS_MAX + 1} events are shown (TRACE_EVENTS_MAX)"
    ]


def test_a_session(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for event in ("open", "frame", "login", "close"):
        written.add(event, protocol="comet", session="s-1", identity="bob")
        written.add(event, protocol="comet", session="s-11", identity="eve")
    written.close()
    found = trace(tmp_path, "s-1")
    assert whats(found) == ["open", "frame", "login", "close"]
    assert trace(tmp_path, "s-2") is None
    write(tmp_path / "lake", SESSIONS, row(SESSIONS, seq=1, session="s-3", opened_at=NOON))
    old = trace(tmp_path, "s-3")
    assert whats(old) == ["open"]
    assert old is not None
    assert len(old.rows["silver.sessions"]) == 1
