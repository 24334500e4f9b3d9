"""Test what the inspector shows of a packet."""

from fastcrc.crc16 import modbus

from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.frames import FRAMES, Packet, Receipt
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Field

SAMPLE = bytes.fromhex("1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7")


def root_of(frame: Packet) -> Field:
    tree = FRAMES.dissect(frame.encode(), Sender.CLIENT)
    assert tree.error is None
    return tree.root


def device_packet(data: bytes, params: int = 3, packet_no: int = 0) -> Packet:
    return Packet(1, params, 0, "1234", 0, packet_no, data)


def test_the_documents_sample_with_every_field() -> None:
    shown = [
        (leaf.name, leaf.offset, leaf.size, leaf.value, leaf.note)
        for leaf in FRAMES.dissect(SAMPLE, Sender.CLIENT).root.leaves()
    ]
    assert shown == [
        ("length", 0, 1, 30, "all bytes after it"),
        ("version", 1, 1, 1, ""),
        ("params", 2, 1, 3, "from the device, first packet, last packet"),
        ("device_type", 3, 1, 6, "not a known type"),
        ("serial size", 4, 1, 4, ""),
        ("serial", 5, 4, "1234", ""),
        ("command_no", 9, 1, 0xF0, ""),
        ("packet_no", 10, 1, 0, ""),
        ("time", 11, 4, 1577866150, "2020-01-01T08:09:10"),
        ("command_type", 15, 1, 1, "status"),
        ("error", 16, 1, 0, "none"),
        ("state", 17, 2, 0, ""),
        ("tariff", 19, 1, 4, ""),
        ("configured_at", 20, 4, 0, "never"),
        ("time_sync", 24, 1, 2, "NTP"),
        ("synced_at", 25, 4, 1577866140, "2020-01-01T08:09:00"),
        ("crc", 29, 2, 0xC73E, "right"),
    ]


def test_readings_are_shown_one_by_one() -> None:
    readings = (Reading(1, 7, 1), Reading(2, 21.5, 8), Reading(3, b"abcde", 5), Reading(4, 70_000, 4))
    command = root_of(device_packet(DeviceCommand(1, 4, 0, readings).encode())).find("command")
    assert command.find("time").note == "the clock failed"
    assert command.find("count").value == 4
    values = [command.find(f"reading {index}", "value").value for index in range(4)]
    assert values == [7, 21.5, b"abcde", 70_000]
    assert command.find("reading 2", "value").note == "of no known size, kept as bytes"


def test_words_for_what_is_known_and_what_is_not() -> None:
    raw = root_of(device_packet(DeviceCommand(0, 0x33, 0, b"xyz").encode())).find("command")
    assert (raw.find("time").note, raw.find("command_type").note) == ("unknown", "not a known type")
    assert raw.find("data").value == b"xyz"
    failed = root_of(device_packet(DeviceCommand(0, 2, 3).encode())).find("command")
    assert failed.find("error").note == "bad format"
    odd = root_of(device_packet(DeviceCommand(0, 2, 77).encode())).find("command")
    assert odd.find("error").note == "not a known code"
    sync = root_of(device_packet(DeviceCommand(9, 1, 0, bytes(7) + b"\x09" + bytes(4)).encode())).find("command")
    assert sync.find("time_sync").note == "not a known way"


def test_a_request_is_shown_with_what_it_asks_for() -> None:
    asks = root_of(device_packet(b"\x82abc", params=7)).find("command")
    assert (asks.find("command_type").note, asks.find("data").value) == ("asks for transparent", b"abc")
    other = root_of(device_packet(b"\xc0", params=7)).find("command")
    assert (other.find("command_type").note, other.find("data").size) == ("not a known type", 0)


def test_a_malformed_command_is_raw_and_no_fault_of_the_packet() -> None:
    for data, params in ((b"abc", 3), (bytes(4) + b"\x01\x00\x01", 3), (b"\x02", 7), (b"", 7)):
        field = root_of(device_packet(data, params)).find("data")
        assert field.value == data
        assert field.note.startswith("not readable as a command: ")


def test_what_is_not_a_whole_plain_command_is_raw() -> None:
    whole = DeviceCommand(0, 2, 0, b"x").encode()
    for params, packet_no in ((1, 0), (2, 1), (0, 1), (3, 1)):
        assert root_of(device_packet(whole, params, packet_no)).find("data").note == "a piece of a command"
    for params in (0x13, 0x23, 0x33):
        assert root_of(device_packet(whole, params)).find("data").note == "a command, zipped or sealed"


def test_a_receipt_says_so() -> None:
    root = root_of(Receipt(1, 0x44, 0xFF, "1234", 1, 2, b""))
    assert root.name == "apostol receipt"
    assert root.find("params").note == "to the device, receipt"
    assert root.find("device_type").note == "undefined"


def test_with_a_wrong_crc_the_fields_are_still_shown() -> None:
    tree = FRAMES.dissect(SAMPLE[:-2] + b"\0\0", Sender.CLIENT)
    assert tree.error is not None
    assert (tree.error.code, tree.error.offset) == ("crc", 29)
    assert tree.root.find("crc").note == "should be 0xc73e"
    assert tree.root.find("command", "tariff").value == 4
    changed = b"\x1e\x02" + SAMPLE[2:]
    assert [field.name for field in FRAMES.dissect(changed, Sender.CLIENT).root.children] == ["length", "version"]


def test_with_a_right_crc_the_fields_stop_at_the_bad_one() -> None:
    body = b"\x1e\x01\x83" + SAMPLE[3:-2]
    tree = FRAMES.dissect(body + modbus(body).to_bytes(2, "little"), Sender.CLIENT)
    assert tree.error is not None
    assert tree.error.code == "params"
    assert [field.name for field in tree.root.children] == ["length", "version", "params"]
