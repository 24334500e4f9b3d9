"""Every key of every record is found again: an index may name too much, and never too little."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.log.interface import SCHEMA
from wirelake.log.segments.lookup_keys import (
    KeyCollector,
    KeyKind,
    LookupKey,
    ack_key,
    event_key,
    expiry_key,
    hash_texts,
    identity_key,
    notification_key,
    session_key,
)

EPOCH = "f82a8d91"
POSITIONS = st.integers(0, 2**40)
GOLDEN = {
    KeyKind.SESSION: [11647545317607605451, 14975657008205482953, 2798172636644262263],
    KeyKind.IDENTITY: [4848346595865397654, 17991435775685054226, 1124707640161093545],
}


def table(*rows: dict[str, Any]) -> pa.Table:
    empty = {field.name: b"" if field.name == "frame" else "" for field in SCHEMA} | {"seq": 0, "at": 0}
    return pa.Table.from_pylist([empty | row for row in rows], SCHEMA)


def note(**values: Any) -> str:
    return json.dumps(values, separators=(",", ":"))


class Keys:
    """The keys of some records, as one part of an index."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        collector = KeyCollector()
        self._hashes = set(collector.collect(table(*rows)).tolist())
        self._levels = collector.levels

    def __contains__(self, key: LookupKey) -> bool:
        return not self._hashes.isdisjoint(key.hashes(self._levels))


@given(st.lists(st.text(max_size=40), min_size=1, max_size=20), st.integers(0, 5))
def test_a_hash_depends_on_the_text_alone(texts: list[str], start: int) -> None:
    alone = [hash_texts(KeyKind.SESSION, pa.array([text])).tolist()[0] for text in texts]
    assert hash_texts(KeyKind.SESSION, pa.array(texts)).tolist() == alone
    assert hash_texts(KeyKind.SESSION, pa.array(texts)[start:]).tolist() == alone[start:]
    assert len(set(alone)) == len(set(texts))


def test_hashes_are_the_same_on_every_machine() -> None:
    """An index is read by other processes and, after a restore, on other machines."""
    texts = pa.array(["", "04c5c0-3", "a text of more than one word"])
    assert hash_texts(KeyKind.SESSION, texts).tolist() == GOLDEN[KeyKind.SESSION]
    assert hash_texts(KeyKind.IDENTITY, texts).tolist() == GOLDEN[KeyKind.IDENTITY]


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["frame", "open"])), min_size=1))
def test_session_identity_and_event(rows: list[tuple[str, str, str]]) -> None:
    keys = Keys(*({"session": session, "identity": identity, "event": event} for session, identity, event in rows))
    for session, identity, event in rows:
        assert not session or session_key(session) in keys
        assert not identity or identity_key(identity) in keys
        assert event_key(event) in keys
    assert session_key("elsewhere") not in keys
    assert event_key("quarantine") not in keys


@given(
    st.binary(max_size=30), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=30), st.binary()
)
def test_an_id_is_found_wherever_it_is_in_a_frame(
    before: bytes, topic: int, position: int, after: bytes, next_frame: bytes
) -> None:
    id_ = f"{EPOCH}-{topic:x}-{position:x}"
    if after[:1] in {bytes([digit]) for digit in b"0123456789abcdef"}:
        after = b" " + after
    keys = Keys({"event": "frame", "frame": before + id_.encode() + after}, {"event": "frame", "frame": next_frame})
    assert notification_key(f"{EPOCH}-{topic:x}-", position) in keys


@pytest.mark.parametrize("before", [b"", b"a-", b"msg-1-2-", b"--", b"0-0-", EPOCH.encode(), b"12345678901234567-"])
@pytest.mark.parametrize("following", [b"", b"0", b"f-1"])
def test_an_id_at_the_end_of_a_frame_or_behind_what_resembles_one(before: bytes, following: bytes) -> None:
    keys = Keys(
        {"event": "frame", "frame": before + b"f82a8d91-1-2"}, {"event": "frame", "frame": following, "note": "{}"}
    )
    assert notification_key("f82a8d91-1-", 2) in keys
    assert notification_key("f82a8d91-1-", 0x20) not in keys


def test_the_ids_in_notes() -> None:
    keys = Keys(
        {"event": "publish", "note": note(topic="@a", id=f"{EPOCH}-1-a", position=10, type=0, by="anna")},
        {"event": "ack", "note": note(identity="bob", acked=[f"{EPOCH}-2-1", f"{EPOCH}-2-7"])},
    )
    assert notification_key(f"{EPOCH}-1-", 10) in keys
    assert notification_key(f"{EPOCH}-2-", 1) in keys
    assert notification_key(f"{EPOCH}-2-", 7) in keys
    assert notification_key(f"{EPOCH}-2-", 2) not in keys


@given(POSITIONS, st.integers(0, 2**20), st.data())
def test_every_position_of_a_range_and_no_other(first: int, more: int, data: st.DataObject) -> None:
    last = first + more
    position = data.draw(st.integers(first, last))
    delivered = Keys({"event": "deliver", "note": note(topic="@a", ids=f"{EPOCH}-1-", first=first, last=last)})
    assert notification_key(f"{EPOCH}-1-", position) in delivered
    assert notification_key(f"{EPOCH}-1-", last + 1) not in delivered
    assert notification_key(f"{EPOCH}-1-", first - 1) not in delivered or first == 0
    assert notification_key(f"{EPOCH}-2-", position) not in delivered
    expired = Keys({"event": "expire", "note": note(topic="@a", first=first, last=last)})
    assert expiry_key("@a", position) in expired
    assert expiry_key("@a", last + 1) not in expired
    assert expiry_key("@b", position) not in expired


def test_cumulative_acks_cover_what_their_identity_had_not_acked() -> None:
    def ack(identity: str, through: int) -> dict[str, Any]:
        return {"event": "ack", "note": note(topic="@a", ids=f"{EPOCH}-1-", identity=identity, through=through)}

    keys = Keys(ack("bob", 5), ack("eve", 3), ack("bob", 9), ack("bob", 8), ack("bob", 10))
    found = [position for position in range(20) if notification_key(f"{EPOCH}-1-", position) in keys]
    assert found == [6, 7, 8, 9, 10], "those of the first ack in a segment are found by their identity"
    assert ack_key(f"{EPOCH}-1-", "bob") in keys
    assert ack_key(f"{EPOCH}-1-", "eve") in keys
    assert ack_key(f"{EPOCH}-1-", "anna") not in keys


@pytest.mark.parametrize("odd", ["", "not JSON", "[]", '{"ids":7}', '{"ids":"x","first":"1"}', '{"ids":"","last":-5}'])
def test_notes_of_others_do_no_harm(odd: str) -> None:
    keys = Keys(
        {"event": "deliver", "note": odd},
        {"event": "deliver", "note": note(topic="@a", ids=f"{EPOCH}-1-", first=1, last=3)},
    )
    assert notification_key(f"{EPOCH}-1-", 2) in keys
