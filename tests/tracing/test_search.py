from pathlib import Path

import pytest

from tracing.writing import AT_US, ID, IDS, Written
from wirelake.limits import TRACE_FRAME_BYTES_MAX
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.lookup_index import index_path
from wirelake.protocols.redis.frames import Command
from wirelake.tracing import search
from wirelake.tracing.record import LogRecord, NotificationId
from wirelake.tracing.search import Search
from wirelake.tracing.timeline import first_acks

PLACE = NotificationId(ID, IDS, 2)


def seqs(found: list[LogRecord]) -> list[int]:
    return [record.seq for record in found]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("since_us", [None, AT_US])
def test_what_the_log_has_about_a_notification(tmp_path: Path, since_us: int | None, indexed: bool) -> None:
    written = Written(tmp_path)
    written.publish("f82a8d91-1-1")
    wanted = [written.publish()]
    written.publish("f82a8d91-1-20")
    written.publish("f82a8d91-2-2", topic="@b")
    wanted += [written.deliver(1, 3, ("s-1", "bob")), written.deliver(2, 2, ("s-1", "bob"), attempt=2)]
    written.deliver(3, 3, ("s-1", "bob"))
    written.add("frame", b"acked f82a8d91-1-20, and f82a8d91-1-2f", direction="in")
    wanted += [written.add("frame", b"f82a8d91-1-20 f82a8d91-1-2,", direction="in")]
    written.add("ack", note={"identity": "bob", "acked": ["f82a8d91-1-20"]})
    wanted += [written.add("ack", note={"identity": "bob", "acked": ["f82a8d91-1-1", ID]})]
    written.add("ack", note={"topic": "@a", "ids": IDS, "identity": "eve", "through": 1})
    wanted += [written.add("ack", note={"topic": "@a", "ids": IDS, "identity": "eve", "through": 9})]
    written.add("expire", note={"topic": "@b", "first": 1, "last": 9})
    wanted += [written.add("expire", note={"topic": "@a", "first": 1, "last": 2})]
    written.close(indexed)
    found = Search(tmp_path / "log").notification(PLACE, "@a", since_us)
    assert seqs(found) == wanted


@pytest.mark.parametrize("indexed", [True, False])
def test_of_very_many_the_ends_are_kept_and_of_long_frames_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    monkeypatch.setattr(search, "TRACE_RECORDS_MAX", 4)
    written = Written(tmp_path)
    all_seqs = [written.add("frame", b"x" * 9999, session="s-1") for _ in range(9)]
    written.close(indexed)
    for since_us in (None, AT_US):
        looking = Search(tmp_path / "log")
        found = looking.session("s-1", since_us)
        assert seqs(found) == all_seqs[:2] + all_seqs[-2:]
        assert looking.omitted == 5
        assert {(record.bytes, len(record.frame)) for record in found} == {(9999, TRACE_FRAME_BYTES_MAX)}


def test_bounds_end_a_search_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRACE_SEARCHED_MAX", 8)
    monkeypatch.setattr(search, "TRACE_STEP_RECORDS", 4)
    written = Written(tmp_path)
    first = written.publish()
    for _ in range(6):
        written.add("open", session="s-1")
    near = Search(tmp_path / "log")
    assert seqs(near.notification(PLACE, "", None)) == [first]
    assert near.is_complete
    for _ in range(4):
        written.add("open", session="s-1")
    far = Search(tmp_path / "log")
    assert far.notification(PLACE, "", None) == []
    assert not far.is_complete
    late = Search(tmp_path / "log", clock=iter([0.0, 1e9]).__next__)
    assert late.session("s-2", None) == []
    assert not late.is_complete
    written.close()


def long_log(data: Path, rounds: int = 40) -> tuple[Written, list[int]]:
    """A log of many segments in which one notification is published, delivered to three, and acked by two of them."""
    written = Written(data, segment_bytes=16 * 1024)

    def others(first: int) -> None:
        for number in range(first, first + rounds):
            written.publish(f"{IDS}{number:x}")
            written.deliver(number, number, ("s-1", "bob"), ("s-2", "eve"))
            written.add("frame", b"x" * 300, session=f"s-{number}", identity=f"device-{number}", protocol="apostol")
            written.ack_through(number, "bob")

    others(100)
    wanted = [written.publish(f"{IDS}1000"), written.deliver(0x1000, 0x1000, ("s-1", "bob"), ("s-2", "eve"))]
    wanted += [written.deliver(0xFF0, 0x1007, ("s-3", "anna"))]
    others(200)
    wanted += [written.ack_through(0x1000, "bob")]
    others(0x2000)
    wanted += [written.ack_through(0x1020, "eve")]
    others(0x3000)
    wanted += [written.add("expire", note={"topic": "@a", "first": 0xF00, "last": 0x1008})]
    others(0x4000)
    return written, wanted


FAR = NotificationId(f"{IDS}1000", IDS, 0x1000)


def test_of_many_segments_only_what_an_index_names_is_read(tmp_path: Path) -> None:
    written, wanted = long_log(tmp_path)
    written.close()
    assert len(list_segments(tmp_path / "log")) > 10
    looking = Search(tmp_path / "log")
    found = looking.notification(FAR, "", None)
    firsts = [record.seq for record in first_acks(found)]
    assert firsts == wanted
    assert looking.is_complete
    assert looking.searched_rows < looking.end_seq / 8
    assert [record.seq for record in first_acks(Search(tmp_path / "log").notification(FAR, "@a", AT_US))] == wanted


@pytest.mark.parametrize("missing", [slice(0, None, 2), slice(1, None, 2), slice(0, 3), slice(-3, None)])
def test_segments_without_an_index_are_read_in_full(tmp_path: Path, missing: slice) -> None:
    written, wanted = long_log(tmp_path, rounds=20)
    written.close()
    for first_seq in list_segments(tmp_path / "log")[missing]:
        index_path(tmp_path / "log", first_seq).unlink()
    looking = Search(tmp_path / "log")
    assert [record.seq for record in first_acks(looking.notification(FAR, "", None))] == wanted
    assert looking.is_complete


def test_sessions_and_identities_among_many(tmp_path: Path) -> None:
    written, _ = long_log(tmp_path)
    written.close()
    looking = Search(tmp_path / "log")
    (only,) = looking.session("s-230", None)
    assert (only.session, only.identity) == ("s-230", "device-230")
    (same,) = looking.identity("device-230", 10)
    assert same.seq == only.seq
    assert looking.session("s-9999", None) == looking.identity("nobody", 10) == []
    assert looking.is_complete
    assert looking.searched_rows < looking.end_seq / 8
    (expired,) = looking.newest({"expire", "fault"}, 0, 10)
    assert expired.event == "expire"


def test_a_session_that_is_everywhere_is_read_from_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRACE_RECORDS_MAX", 10)
    written = Written(tmp_path, segment_bytes=16 * 1024)
    own = [written.add("frame", b"x" * (100 + number), session="s-1") for number in range(150)]
    written.close()
    looking = Search(tmp_path / "log")
    assert seqs(looking.session("s-1", None)) == own[:5] + own[-5:]
    assert looking.omitted == 140
    assert looking.searched_rows < 50
    assert looking.is_complete
    assert [record.seq for record in Search(tmp_path / "log").newest({"frame"}, 0, 3)] == own[:-4:-1]


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b'{"content":"a\\"b"}', b'a"b'),
        (b'{"content":"/w==","encoding":"base64"}', b"\xff"),
        (b'{"content":{"a": 1}}', b'{"a":1}'),
    ],
)
def test_a_request_by_http_carries_its_content(body: bytes, content: bytes) -> None:
    def frame(data: bytes) -> LogRecord:
        return LogRecord(1, 1, "http", "frame", "in", "s", "anna", "", data, {}, len(data))

    assert search.has_content(frame(body), content)
    assert not search.has_content(frame(body), content + b"x")
    for odd in (b"", b"{", b"[]", b'{"content":"?","encoding":"base64"}'):
        assert not search.has_content(frame(odd), b"?")


def test_the_frame_that_brought_it(tmp_path: Path) -> None:
    written = Written(tmp_path)
    hers = {"protocol": "redis", "direction": "in", "session": "s-1", "identity": "anna"}
    frames = [Command((b"PUBLISH", b"@a", content)).encode() for content in (b"1", b"10", b"21")]
    brought, *_ = [written.add("frame", frame, **hers) for frame in frames]
    written.add("frame", frames[0], **hers | {"identity": "eve"})
    published = written.publish(content=b"1")
    unclear = written.publish(content=b"nowhere to be seen")
    by_nobody = written.publish(content=b"1", by="")
    written.close()
    looking = Search(tmp_path / "log")
    one, other, nobody = (looking.find_record(seq) for seq in (published, unclear, by_nobody))
    assert one is not None
    assert other is not None
    assert nobody is not None
    found = looking.find_publishing_frame(one)
    assert found is not None
    assert (found[0].seq, found[1]) == (brought, True), "that whose content it is, not one that has it somewhere"
    guessed = looking.find_publishing_frame(other)
    assert guessed is not None
    assert (guessed[0].seq, guessed[1]) == (brought + 2, False)
    assert looking.find_publishing_frame(nobody) is None
    assert seqs(looking.find_publishes(found[0])) == [published]
