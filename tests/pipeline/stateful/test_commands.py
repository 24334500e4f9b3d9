import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from pipeline.histories import NODE, SECOND, T0, BucketRun, Record, frame, numbered, reduced_rows
from wirelake.pipeline.stateful import commands
from wirelake.pipeline.stateful.events import EVENT_SCHEMA
from wirelake.protocols.apostol.commands import DeviceCommand, Reading, ServerCommand, Status
from wirelake.protocols.apostol.constants import ANSWER, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.reassembly import Rules

COMMANDS, READINGS = "silver.device_commands", "silver.readings"
KEY, NONCE = bytes(range(16)), bytes(12)
DECODER = f"{PROTOCOL.name}/{PROTOCOL.decoder_version}"
DEVICE_TIME = 1_600_000_000


def packets(body: bytes, params: int = 0, number: int = 7, size: int = 100, serial: str = "A1") -> list[Packet]:
    return build_packets(body, params, 6, serial, number, size, (KEY, NONCE))


def sent(packet: Packet, at: int = T0, direction: str = "in") -> Record:
    return frame("apostol", direction, packet.encode(), at, "d1", identity=packet.serial or "A1")


def when(us: int) -> datetime:
    return datetime.fromtimestamp(us / SECOND, UTC)


def only(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_readings_in_three_packets_out_of_order_and_one_twice() -> None:
    body = DeviceCommand(DEVICE_TIME, 4, 0, (Reading(1, 215, 2), Reading(9, 1.5), Reading(3, b"oddly"))).encode()
    first, second, third = packets(body, size=10)
    steps = [sent(third, T0), sent(first, T0 + 1), sent(third, T0 + 2), sent(second, T0 + 3)]
    assert reduced_rows(steps, COMMANDS) == [
        {
            "seq": 4,
            "received_at": when(T0 + 3),
            "node": NODE,
            "protocol": "apostol",
            "serial": "A1",
            "device_type": 6,
            "command_no": 7,
            "direction": "in",
            "answer": False,
            "packets": 3,
            "repeats": 1,
            "first_at": when(T0),
            "done_at": when(T0 + 3),
            "state": "complete",
            "command_type": 4,
            "error": 0,
            "device_time": when(DEVICE_TIME * SECOND),
            "data": body[6:],
            "fields": '{"readings":[{"type":1,"value":215,"size":2},{"type":9,"value":1.5,"size":8},'
            '{"type":3,"value":"b2RkbHk=","size":5}]}',
            "reason": None,
            "decoder": DECODER,
            "settled": True,
            "day": when(T0).date(),
        }
    ]
    about = {"seq": 4, "received_at": when(T0 + 3), "node": NODE, "protocol": "apostol", "serial": "A1"}
    about |= {"device_time": when(DEVICE_TIME * SECOND), "decoder": DECODER, "day": when(T0).date()}
    assert sorted(reduced_rows(steps, READINGS), key=lambda row: row["type"]) == [
        {**about, "type": 1, "value": 215.0, "name": "voltage", "unit": "V"},
        {**about, "type": 3, "value": None, "name": "frequency", "unit": "Hz"},
        {**about, "type": 9, "value": 1.5, "name": "reading 9", "unit": ""},
    ]


def test_a_status_an_error_and_an_answer_to_the_device() -> None:
    status = DeviceCommand(0, 1, 0, Status(1, 2, 3, 4, 5)).encode()
    error = DeviceCommand(1, 2, 3).encode()
    request = ServerCommand(0x82, b"\x01\x02").encode()
    steps = [
        sent(packets(status, number=1)[0]),
        sent(packets(error, ANSWER, number=2)[0]),
        sent(packets(request, TO_DEVICE, number=2)[0], direction="out"),
    ]
    rows = sorted(reduced_rows(steps, COMMANDS), key=lambda row: row["seq"])
    names = ("direction", "answer", "command_type", "error", "device_time", "data", "fields", "state")
    assert [only(row, *names) for row in rows] == [
        (
            "in",
            False,
            1,
            0,
            None,
            status[6:],
            '{"status":{"state":1,"tariff":2,"configured_at":3,"time_sync":4,"synced_at":5}}',
            "complete",
        ),
        ("in", True, 2, 3, None, b"", None, "complete"),
        ("out", False, 0x82, None, None, b"\x01\x02", None, "complete"),
    ]


def test_receipts_are_no_commands() -> None:
    (packet,) = packets(DeviceCommand(5, 2, 0, b"x").encode())
    steps = [sent(packet), frame("apostol", "out", receipt_for(packet).encode(), session="d1", identity="A1")]
    assert [row["command_no"] for row in reduced_rows(steps, COMMANDS)] == [7]


def test_what_waits_is_open_then_expired_then_final() -> None:
    first, second, _third = packets(DeviceCommand(5, 2, 0, bytes(20)).encode(), size=10)
    bucketed = BucketRun()
    bucketed.batch(numbered([sent(second, T0), sent(first, T0 + 5)]))
    names = ("seq", "state", "packets", "first_at", "done_at", "settled")
    (row,) = bucketed.rows(COMMANDS)
    assert only(row, *names) == (1, "open", 2, when(T0), None, False)
    for seconds, settled in ((29, False), (31, False), (41, True)):
        bucketed.events(EVENT_SCHEMA.empty_table(), T0 + seconds * SECOND)
        (row,) = bucketed.rows(COMMANDS)
        expired = seconds > 30
        done_at = when(T0 + 30 * SECOND) if expired else None
        state = "expired" if expired else "open"
        assert only(row, *names) == (1, state, 2, when(T0), done_at, settled)
    bucketed.batch(numbered([sent(second, T0 + 42 * SECOND)], 3))
    assert bucketed.counts == {"packets_repeated": 1}
    assert len(bucketed.rows(COMMANDS)) == 1


def test_a_number_used_again_is_a_new_command_and_a_repeat_is_none() -> None:
    (one,) = packets(DeviceCommand(5, 2, 0, b"one").encode())
    (two,) = packets(DeviceCommand(5, 2, 0, b"two").encode())
    bucketed = BucketRun()
    for seq, packet in enumerate((one, one, two, two, one), 1):
        bucketed.batch(numbered([sent(packet, T0 + seq)], seq))
    rows = sorted(bucketed.rows(COMMANDS), key=lambda row: row["seq"])
    assert [only(row, "seq", "data") for row in rows] == [(1, b"one"), (3, b"two"), (5, b"one")]
    assert bucketed.counts == {"packets_repeated": 2}


def test_sealed_and_zipped_commands_are_opened_with_the_devices_key() -> None:
    body = DeviceCommand(DEVICE_TIME, 2, 0, b"secret" * 9).encode()
    steps = [sent(packet) for packet in packets(body, SEALED | ZIPPED, size=10)]
    for keys, expected in (
        ({"A1": KEY}, ("complete", None, b"secret" * 9)),
        ({"A1": bytes(16)}, ("refused", "bad_seal", None)),
        ({}, ("refused", "no_key", None)),
    ):
        (row,) = reduced_rows(steps, COMMANDS, keys)
        assert only(row, "state", "reason", "data") == expected


@pytest.mark.parametrize(
    ("data", "params", "reason"),
    [
        (zlib.compress(bytes(2 * 1024 * 1024)), ZIPPED, "inflated_bytes_max"),
        (b"no zlib", ZIPPED, "bad_zlib"),
        (b"\x01", 0, "short"),
        (DeviceCommand(5, 4, 0, (Reading(1, 5),)).encode() + b"x", 0, "trailing"),
    ],
)
def test_refused(data: bytes, params: int, reason: str) -> None:
    steps = [sent(replace(packet, params=packet.params | params)) for packet in packets(data, size=1000)]
    (row,) = reduced_rows(steps, COMMANDS)
    assert only(row, "state", "reason", "command_type", "data", "fields") == ("refused", reason, None, None, None)


def test_the_gateways_settings_are_those_of_the_tables() -> None:
    body = DeviceCommand(DEVICE_TIME, 2, 0, bytes(2000)).encode()
    zipped = [sent(packet) for packet in packets(body, ZIPPED)]
    (row,) = reduced_rows(zipped, COMMANDS, rules=Rules(inflated_bytes_max=1000))
    assert only(row, "state", "reason") == ("refused", "inflated_bytes_max")
    clear = [sent(packet) for packet in packets(body, size=5000)]
    request = [sent(packet, direction="out") for packet in packets(ServerCommand(0x82, b"x").encode(), TO_DEVICE)]
    for keys, expected in (({"A1": KEY}, ("refused", "unsealed")), ({}, ("complete", None))):
        rows = reduced_rows([*clear, *request], COMMANDS, keys, Rules(require_seal=True))
        assert {row["direction"]: only(row, "state", "reason") for row in rows} == {
            "in": expected,
            "out": ("complete", None),
        }
    first, second = packets(body, size=1100)
    slow = [sent(first), sent(second, T0 + 60 * SECOND)]
    assert {row["state"] for row in reduced_rows(slow, COMMANDS)} == {"expired", "open"}
    (row,) = reduced_rows(slow, COMMANDS, rules=Rules(timeout_us=120 * SECOND))
    assert row["state"] == "complete"


def test_a_broadcast_is_one_command_for_each_device_it_was_sent_to() -> None:
    (packet,) = build_packets(ServerCommand(0x82, b"x").encode(), TO_DEVICE, 0xFF, "", 3, 100)
    steps = [frame("apostol", "out", packet.encode(), session=f"d{each}", identity=f"A{each}") for each in (1, 2)]
    assert sorted(only(row, "serial", "device_type", "state") for row in reduced_rows(steps, COMMANDS)) == [
        ("A1", 255, "complete"),
        ("A2", 255, "complete"),
    ]


def test_a_broadcast_of_a_device_is_its_command_and_opened_with_its_key() -> None:
    body = DeviceCommand(DEVICE_TIME, 4, 0, (Reading(1, 215, 2),)).encode()
    (clear,) = build_packets(body, 0, 0xFF, "", 3, 100)
    (sealed,) = build_packets(body, SEALED, 0xFF, "", 4, 100, (KEY, bytes(12)))
    steps = [
        frame("apostol", "in", packet.encode(), session="d", identity=identity)
        for packet in (clear, sealed)
        for identity in ("A1", "A2")
    ]
    rows = reduced_rows(steps, COMMANDS, {"A1": KEY}, Rules(require_seal=True))
    assert sorted(only(row, "serial", "command_no", "state", "reason") for row in rows if row["serial"] == "A1") == [
        ("A1", 3, "refused", "unsealed"),
        ("A1", 4, "complete", None),
    ]
    assert sorted(only(row, "serial", "command_no", "state", "reason") for row in rows if row["serial"] == "A2") == [
        ("A2", 3, "complete", None),
        ("A2", 4, "refused", "no_key"),
    ]
    assert [row["serial"] for row in reduced_rows(steps[:1], READINGS)] == ["A1"]


def test_too_many_open_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PIPELINE_COMMANDS_OPEN_MAX", 4)
    starts = [packets(bytes(20), size=10, serial=f"S{number}")[0] for number in range(6)]
    bucketed = BucketRun()
    bucketed.batch(numbered([sent(packet) for packet in starts]))
    rows = sorted(bucketed.rows(COMMANDS), key=lambda row: row["seq"])
    refused = ("refused", "commands_open_max", True)
    assert [only(row, "state", "reason", "settled") for row in rows] == [refused] * 3 + [("open", None, False)] * 3
    assert bucketed.counts == {"commands_given_up": 3}
    bucketed.batch(numbered([sent(starts[5], T0 + 1)], 7))
    assert len(bucketed.rows(COMMANDS)) == 6


def test_a_sealed_command_that_is_sent_again_is_refused_however_late() -> None:
    """Check this in later batches, when no other state of the device is left; its readings exist once."""
    body = DeviceCommand(T0 // SECOND, 4, 0, (Reading(1, 215, 2),)).encode()
    (packet,) = packets(body, SEALED)
    later = build_packets(
        DeviceCommand(T0 // SECOND + 9, 2, 0, b"x").encode(), SEALED, 6, "A1", 8, 100, (KEY, bytes(range(12)))
    )
    for require_seal, states in ((True, ["complete", "refused", "complete"]), (False, ["complete"] * 3)):
        bucketed = BucketRun(1, {"A1": KEY}, Rules(require_seal=require_seal))
        for seq, each in enumerate((packet, packet, *later), 1):
            bucketed.batch(numbered([sent(each, T0 + (seq - 1) * 100 * SECOND)], seq))
            bucketed.events(EVENT_SCHEMA.empty_table(), T0 + ((seq - 1) * 100 + 90) * SECOND)
        rows = sorted(bucketed.rows(COMMANDS), key=lambda row: row["seq"])
        assert [row["state"] for row in rows] == states
        assert [row["reason"] for row in rows] == [None, "replayed" if require_seal else None, None]
        assert len(bucketed.rows(READINGS)) == states[:2].count("complete")


def test_a_forged_packet_does_not_displace_a_sealed_command() -> None:
    first, second, third = packets(DeviceCommand(DEVICE_TIME, 2, 0, b"genuine").encode(), SEALED, size=20)
    forged = [replace(each, data=bytes(20)) for each in (first, second, third)]
    steps = [sent(each) for each in (forged[0], first, forged[1], forged[2], second, third)]
    rows = reduced_rows(steps, COMMANDS, {"A1": KEY}, Rules(require_seal=True))
    assert sorted(only(row, "state", "reason", "packets") for row in rows) == [
        ("complete", None, 3),
        ("refused", "bad_seal", 3),
    ]
