import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout.sampler import frames_of, protocol

from protocols.apostol.strategies import device_commands, server_commands
from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout import LayoutFrame
from wirelake.protocols import testing as laws
from wirelake.protocols.apostol.commands import (
    COMMANDS,
    Command,
    DeviceCommand,
    Reading,
    ServerCommand,
    Status,
    encode_data,
    parse_command,
    time_in_words,
)
from wirelake.protocols.frame import Sender

HEAD = "a6530c5e"  # 2020-01-01T08:09:10


@given(device_commands)
def test_a_devices_command_round_trips(command: DeviceCommand) -> None:
    assert parse_command(command.encode(), to_device=False) == command


@given(server_commands)
def test_a_command_to_a_device_round_trips(command: ServerCommand) -> None:
    assert parse_command(command.encode(), to_device=True) == command


def assert_read_or_refused(data: bytes, *, to_device: bool) -> None:
    refused: ProtocolError | None = None
    try:
        assert parse_command(data, to_device=to_device).encode() == data
    except ProtocolError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(data)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_command_or_refused_by_name(data: bytes, to_device: bool) -> None:
    assert_read_or_refused(data, to_device=to_device)


@given(device_commands, st.integers(min_value=0), st.integers(0, 255))
def test_a_changed_byte_never_raises_anything_else(command: DeviceCommand, place: int, byte: int) -> None:
    data = bytearray(command.encode())
    data[place % len(data)] = byte
    assert_read_or_refused(bytes(data), to_device=False)


DESCRIBED = protocol(COMMANDS)


@given(frames_of(COMMANDS))
def test_commands_drawn_from_the_description_round_trip(command: LayoutFrame) -> None:
    laws.check_round_trip(DESCRIBED, command, command.sender or Sender.CLIENT)


@given(frames_of(COMMANDS), st.integers(min_value=0), st.integers(0, 255), laws.senders)
def test_decode_and_dissect_agree_on_changed_commands(
    command: LayoutFrame, place: int, byte: int, sender: Sender
) -> None:
    wire = bytearray(command.encode())
    wire[place % len(wire)] = byte
    for data in (bytes(wire), bytes(wire)[: place % len(wire)], bytes(wire) + bytes([byte])):
        laws.check_verdict(DESCRIBED, data, sender)


@pytest.mark.parametrize(
    ("hex_", "command"),
    [
        (
            "a6530c5e0100" + "0000" + "04" + "00000000" + "02" + "9c530c5e",
            DeviceCommand(1577866150, 1, 0, Status(0, 4, 0, 2, 1577866140)),
        ),
        (
            HEAD + "0400" + "04" + "0101ff" + "0202ffff" + "0304ffffffff" + "0408" + "0000000000803540",
            DeviceCommand(
                1577866150,
                4,
                0,
                (Reading(1, 0xFF, 1), Reading(2, 0xFFFF, 2), Reading(3, 0xFFFFFFFF, 4), Reading(4, 21.5, 8)),
            ),
        ),
        (
            HEAD + "0400" + "02" + "0503563412" + "0606bc9a78563412",
            DeviceCommand(1577866150, 4, 0, (Reading(5, 0x123456, 3), Reading(6, 0x123456789ABC, 6))),
        ),
        (HEAD + "0400" + "00", DeviceCommand(1577866150, 4, 0, ())),
        (
            HEAD + "0400" + "02" + "01056162636465" + "0500",
            DeviceCommand(1577866150, 4, 0, (Reading(1, b"abcde", 5), Reading(5, b""))),
        ),
        (HEAD + "0200" + "616263", DeviceCommand(1577866150, 2, 0, b"abc")),
        (HEAD + "0104", DeviceCommand(1577866150, 1, 4)),
        ("000000000300", DeviceCommand(0, 3, 0, b"")),
    ],
)
def test_known_commands_of_a_device(hex_: str, command: DeviceCommand) -> None:
    assert parse_command(bytes.fromhex(hex_), to_device=False) == command
    assert command.encode().hex() == hex_


@pytest.mark.parametrize(
    ("hex_", "to_device", "code", "offset"),
    [
        ("", False, "short", 0),
        (HEAD + "01", False, "short", 5),
        (HEAD + "8100", False, "command_type", 4),
        (HEAD + "0201" + "61", False, "trailing", 6),
        (HEAD + "0100" + "00" * 11, False, "short", 17),
        (HEAD + "0100" + "00" * 13, False, "trailing", 18),
        (HEAD + "0400", False, "short", 6),
        (HEAD + "0400" + "01", False, "short", 7),
        (HEAD + "0400" + "01" + "05", False, "short", 8),
        (HEAD + "0400" + "01" + "0504aabb", False, "short", 11),
        (HEAD + "0400" + "01" + "0501aabb", False, "trailing", 10),
        ("", True, "short", 0),
        ("02aa", True, "command_type", 0),
    ],
)
def test_bad_commands_are_refused_at_the_bad_byte(hex_: str, to_device: bool, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_command(bytes.fromhex(hex_), to_device=to_device)
    assert (caught.value.code, caught.value.offset) == (code, offset)


@pytest.mark.parametrize(
    "command",
    [
        DeviceCommand(2**32, 2),
        DeviceCommand(0, 0x81),
        DeviceCommand(0, 2, 256),
        DeviceCommand(0, 2, 1, b"data"),
        DeviceCommand(0, 1, 0, Status(65536, 0, 0, 0, 0)),
        DeviceCommand(0, 4, 0, (Reading(1, 256, 1),)),
        DeviceCommand(0, 4, 0, (Reading(1, -1),)),
        DeviceCommand(0, 4, 0, (Reading(1, 2**48),)),
        DeviceCommand(0, 4, 0, (Reading(1, 1.5, 4),)),
        DeviceCommand(0, 4, 0, (Reading(1, 1, 5),)),
        DeviceCommand(0, 4, 0, (Reading(1, 10**400, 8),)),
        DeviceCommand(0, 4, 0, (Reading(1, b"abcd"),)),
        DeviceCommand(0, 4, 0, (Reading(1, b"abc", 5),)),
        DeviceCommand(0, 4, 0, (Reading(1, bytes(256)),)),
        DeviceCommand(0, 4, 0, (Reading(256, 1),)),
        DeviceCommand(0, 4, 0, (Reading(1, 1),) * 256),
        ServerCommand(0x02),
        ServerCommand(0x182),
    ],
)
def test_what_a_command_has_no_room_for_is_refused(command: Command) -> None:
    with pytest.raises(EncodeError):
        command.encode()


@pytest.mark.parametrize(("value", "size"), [(0, 1), (255, 1), (256, 2), (65_536, 4), (2**32 - 1, 4), (1.0, 8)])
def test_a_reading_without_a_size_takes_the_smallest(value: float, size: int) -> None:
    assert encode_data((Reading(1, value),))[2] == size
    assert encode_data((Reading(1, value, size),)) == encode_data((Reading(1, value),))


def test_a_whole_number_can_be_a_float_on_the_wire() -> None:
    assert encode_data((Reading(1, 20, 8),)) == encode_data((Reading(1, 20.0, 8),))


def test_times_in_words() -> None:
    assert time_in_words(0) == "unknown"
    assert time_in_words(1) == "the clock failed"
    assert time_in_words(1577866150) == "2020-01-01T08:09:10"
    assert time_in_words(2**32 - 1) == "2106-02-07T06:28:15"
