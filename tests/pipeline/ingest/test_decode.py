"""Test decoded batches: the rows of each table, their order and columns."""

from datetime import UTC, date, datetime
from importlib import metadata
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ingest import inputs
from pipeline.ingest.inputs import AT_US, Sent, captured, damaged, frame_records, log_batch
from protocols.esnp import strategies as esnp_strategies
from protocols.magline import strategies as magline_strategies
from protocols.redis import strategies as resp_strategies
from protocols.sisnet import strategies as sisnet_strategies
from wirelake.errors import EncodeError, ProtocolError
from wirelake.lake.tables import FRAMES
from wirelake.pipeline.ingest.decode import (
    MESSAGES,
    PACKETS,
    QUARANTINE,
    DecodedBatch,
    decode_batch,
    decode_packets,
)
from wirelake.protocols import registry
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.columnar import MESSAGE_COLUMNS, row_of
from wirelake.protocols.comet.frames import Error, Heartbeat
from wirelake.protocols.frame import Sender

PACKET = Packet(1, 1, 6, "1234", 9, 0, b"abc").encode()
DAY = datetime.fromtimestamp(AT_US / 1e6, UTC).date()
HOUR_US = 3_600_000_000


def assert_as_the_codec_says(records: list[dict[str, Any]], decoded: DecodedBatch) -> None:
    """Check that each frame is in exactly one of both tables, as its own codec decodes it."""
    messages: dict[int, dict[str, Any]] = {}
    quarantine: dict[int, dict[str, Any]] = {}
    for table, rows in ((decoded.messages, messages), (decoded.quarantine, quarantine)):
        table.validate(full=True)
        rows.update({row["seq"]: row for row in table.to_pylist()})
        assert [row["seq"] for row in table.to_pylist()] == sorted(rows)
    assert len(messages) + len(quarantine) == len(records)
    for place, record in enumerate(records):
        protocol = registry.get(record["protocol"])
        sender = Sender.CLIENT if record["direction"] == "in" else Sender.SERVER
        decoder = f"{protocol.name}/{protocol.decoder_version}"
        fault: ProtocolError | None = None
        try:
            wanted = row_of(protocol.to_message(protocol.decode(record["frame"], sender), sender))
        except ProtocolError as error:
            fault = error
        if fault is not None:
            row = quarantine[100 + place]
            assert (row["reason"], row["text"], row["byte_offset"]) == (fault.code, fault.text, fault.offset)
            assert row["frame"] == record["frame"]
        else:
            row = messages[100 + place]
            assert tuple(row[name] for name in MESSAGE_COLUMNS.names) == wanted
            assert row["bytes"] == len(record["frame"])
        assert (row["protocol"], row["direction"], row["decoder"]) == (protocol.name, record["direction"], decoder)


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_captures(name: str) -> None:
    records = frame_records(name, captured(name))
    decoded = decode_batch(log_batch(*records))
    assert decoded.messages.num_rows == len(records)
    assert_as_the_codec_says(records, decoded)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_damaged_captures_of_all_protocols_in_one_batch(seed: int) -> None:
    random = Random(seed)
    repairs = {"apostol": inputs.repair_apostol, "comet": inputs.repair_comet}
    records = []
    for _ in range(600):
        name = random.choice(registry.BUILT_IN)
        frame, sender = random.choice(captured(name))
        frame = damaged(frame, random, repairs.get(name, inputs.repair_nothing))
        records += frame_records(name, [(frame, sender if random.random() < 0.9 else sender.other)])
    assert_as_the_codec_says(records, decode_batch(log_batch(*records)))


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("esnp", esnp_strategies.any_messages),
        ("magline", magline_strategies.either_order),
        ("redis", st.one_of(resp_strategies.client_frames, resp_strategies.server_frames)),
        ("sisnet", sisnet_strategies.any_frames),
    ],
)
@settings(max_examples=40)
@given(data=st.data())
def test_random_frames(name: str, frames: st.SearchStrategy[Any], data: st.DataObject) -> None:
    random = Random(data.draw(st.integers(0, 2**32)))
    sent: list[Sent] = []
    for frame in data.draw(st.lists(frames, max_size=6)):
        sender = getattr(frame, "sender", None) or data.draw(st.sampled_from(Sender))
        try:
            wire = frame.encode()
        except EncodeError:  # a few that the strategies make have no bytes
            continue
        sent += [(wire, sender), (damaged(wire, random, inputs.repair_nothing), sender)]
    records = frame_records(name, sent)
    assert_as_the_codec_says(records, decode_batch(log_batch(*records)))


def test_columns_from_the_record() -> None:
    late = {"at": AT_US + 24 * HOUR_US, "session": "s2", "identity": "phone", "node": "n2"}
    batch = log_batch(
        {"protocol": "apostol", "frame": PACKET},
        {"protocol": "apostol", "event": "open"},
        {"protocol": "comet", "frame": Heartbeat().encode(), **late},
        {"protocol": "apostol", "frame": PACKET, "direction": "out"},
    )
    decoded = decode_batch(batch)
    assert decoded.messages.schema.equals(MESSAGES)
    assert decoded.quarantine.schema.equals(QUARANTINE)
    assert decoded.packets.schema.equals(PACKETS)
    rows = decoded.messages.to_pylist()
    assert [(row["seq"], row["protocol"], row["direction"]) for row in rows] == [
        (100, "apostol", "in"),
        (102, "comet", "in"),
        (103, "apostol", "out"),
    ]
    assert [row["day"] for row in rows] == [DAY, date.fromordinal(DAY.toordinal() + 1), DAY]
    assert (rows[1]["session"], rows[1]["identity"], rows[1]["node"]) == ("s2", "phone", "n2")
    assert [row["seq"] for row in decoded.packets.to_pylist()] == [100, 103]


def test_packets_are_typed() -> None:
    packets = decode_batch(log_batch({"protocol": "apostol", "frame": PACKET}, {"protocol": "apostol", "frame": b"x"}))
    (row,) = packets.packets.to_pylist()
    assert row == {
        "seq": 100,
        "at": datetime.fromtimestamp(AT_US / 1e6, UTC),
        "node": "n1",
        "session": "s1",
        "identity": "meter",
        "direction": "in",
        "serial": "1234",
        "device_type": 6,
        "to_device": False,
        "answer": False,
        "first": True,
        "last": False,
        "zlib": False,
        "sealed": False,
        "receipt": False,
        "command_no": 9,
        "packet_no": 0,
        "data": b"abc",
    }
    assert packets.quarantine.column("reason").to_pylist() == ["length"]


def test_packets_alone_are_the_same() -> None:
    sent = [*captured("apostol"), (b"", Sender.CLIENT)]
    batch = log_batch(*frame_records("apostol", sent), *frame_records("comet", captured("comet")))
    assert decode_packets(batch).equals(decode_batch(batch).packets)


def test_a_slice_of_a_batch() -> None:
    records = [record for name in registry.BUILT_IN for record in frame_records(name, captured(name))]
    batch = log_batch(*records)
    whole = decode_batch(batch).messages
    for start in range(0, len(records), 7):
        assert decode_batch(batch.slice(start, 7)).messages.equals(whole.slice(start, 7))


def test_an_empty_batch_and_one_without_frames() -> None:
    for batch in (log_batch(), log_batch({"event": "open"}, {"event": "counters"})):
        decoded = decode_batch(batch)
        assert (decoded.messages.num_rows, decoded.quarantine.num_rows, decoded.packets.num_rows) == (0, 0, 0)
        assert decoded.messages.schema.equals(MESSAGES)
        assert decode_packets(batch).schema.equals(PACKETS)


def test_what_was_refused_at_the_door() -> None:
    note = '{"code":"crc","offset":4,"text":"crc is wrong"}'
    batch = log_batch(
        {"protocol": "apostol", "event": "quarantine", "frame": b"\xff\xff", "note": note},
        {"protocol": "comet", "frame": b"\x00"},
        {"protocol": "esnp", "event": "quarantine", "frame": b"x", "note": "not JSON"},
    )
    rows = decode_batch(batch).quarantine.to_pylist()
    found = [(row["seq"], row["reason"], row["byte_offset"], row["text"], row["frame"], row["decoder"]) for row in rows]
    assert found == [
        (100, "crc", 4, "crc is wrong", b"\xff\xff", None),
        (101, "short", 1, "length needs 2 bytes, 1 are left", b"\x00", "comet/1"),
        (102, "unknown", 0, "not JSON", b"x", None),
    ]
    assert {row["day"] for row in rows} == {DAY}


def test_frames_that_were_recorded_under_an_earlier_name() -> None:
    """Check that records under the earlier name keep it, and are decoded by the current decoder."""
    ping = b"*1\r\n$4\r\nPING\r\n"
    (row,) = decode_batch(log_batch({"protocol": "resp", "frame": ping, "direction": "in"})).messages.to_pylist()
    assert (row["protocol"], row["name"], row["decoder"]) == ("resp", "ping", "resp/1")


def test_a_protocol_that_is_not_here() -> None:
    (row,) = decode_batch(log_batch({"protocol": "morse", "frame": b"..."})).quarantine.to_pylist()
    assert (row["reason"], row["frame"], row["decoder"]) == ("unknown_protocol", b"...", "morse/0")


def test_a_protocol_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a protocol through an entry point: the scalar loop decodes it."""
    point = metadata.EntryPoint("morse", "pipeline.ingest.morse:PROTOCOL", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_group: [point])
    registry.refresh()
    try:
        records = frame_records("morse", [(b"...", Sender.CLIENT), (b"..x", Sender.CLIENT)])
        decoded = decode_batch(log_batch(*records))
        assert_as_the_codec_says(records, decoded)
        assert decoded.messages.column("decoder").to_pylist() == ["morse/7"]
        assert decoded.quarantine.column("reason").to_pylist() == ["no_sign"]
    finally:
        monkeypatch.undo()
        registry.refresh()


def test_other_peoples_tables() -> None:
    """Decode a batch with a day, nulls and wide types, as Spark or a Delta reader may return bronze.frames."""
    records = [*frame_records("apostol", captured("apostol")), {"protocol": "comet", "frame": Heartbeat().encode()}]
    batch = log_batch(*records)
    wanted = decode_batch(batch)
    wide = dict(zip(FRAMES.schema.names, batch.columns, strict=False))
    wide["frame"], wide["note"] = wide["frame"].cast(pa.large_binary()), pa.nulls(batch.num_rows, pa.large_string())
    wide["day"] = pa.array([DAY] * batch.num_rows)
    table = pa.record_batch(list(wide.values()), list(wide))
    assert {*FRAMES.schema.names} == {*wide}
    assert decode_batch(table).messages.equals(wanted.messages)
    assert decode_packets(table).equals(wanted.packets)
    wide["frame"] = pa.nulls(batch.num_rows, pa.binary())
    nothing = decode_batch(pa.record_batch(list(wide.values()), list(wide)))
    assert nothing.quarantine.column("reason").to_pylist() == ["short"] * batch.num_rows


def test_an_error_without_a_reason_is_still_one() -> None:
    records = frame_records("comet", [(Error(3, "").encode(), Sender.SERVER)])
    (row,) = decode_batch(log_batch(*records)).messages.to_pylist()
    assert (row["status"], row["fields"]) == ("failed", '{"code":3}')
