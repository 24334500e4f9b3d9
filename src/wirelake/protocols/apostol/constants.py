"""The numbers of apostol, their names, and its limits."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wirelake.limits import KIB, MIB
from wirelake.message import BROADCAST_DEVICE_TYPE
from wirelake.protocols.protocol import ReadingName

VERSION: Final = 1

# Bits of params. TO_DEVICE, ANSWER, ZIPPED and SEALED are about the whole command.
FIRST: Final = 0x01
LAST: Final = 0x02
TO_DEVICE: Final = 0x04
ANSWER: Final = 0x08
ZIPPED: Final = 0x10
SEALED: Final = 0x20
RECEIPT: Final = 0x40
RESERVED: Final = 0x80
COMMAND_BITS: Final = TO_DEVICE | ANSWER | ZIPPED | SEALED
COUNTER_BITS: Final = TO_DEVICE | ANSWER  # each combination has command numbers of its own

REQUEST_BIT: Final = 0x80  # of command_type: set in commands to the device, clear in commands from it

BROADCAST_DEVICE: Final = (BROADCAST_DEVICE_TYPE, "")  # type and serial of a broadcast


class CommandType(IntEnum):
    STATUS = 0x01
    TRANSPARENT = 0x02
    READINGS = 0x04


class ErrorCode(IntEnum):
    NONE = 0
    UNSPECIFIED = 1
    UNKNOWN_COMMAND = 2
    BAD_FORMAT = 3
    BAD_PARAMETERS = 4


COMMAND_NAMES: Mapping[int, str] = {kind.value: kind.name.lower() for kind in CommandType}
ERROR_NAMES: Mapping[int, str] = {code.value: code.name.lower().replace("_", " ") for code in ErrorCode}
DEVICE_TYPE_NAMES: Mapping[int, str] = {0x00: "IoT", 0x01: "Android", 0x02: "iOS", BROADCAST_DEVICE_TYPE: "undefined"}
TIME_SYNC_NAMES: Mapping[int, str] = {0: "undefined", 1: "by hand", 2: "NTP"}
# Types of readings. The protocol leaves them to the devices: these are what our own clients and the simulator send.
VOLTAGE: Final = 1
ENERGY: Final = 2
FREQUENCY: Final = 3
READING_NAMES: Mapping[int, ReadingName] = {
    VOLTAGE: ReadingName("voltage", "V"),
    ENERGY: ReadingName("energy", "Wh"),
    FREQUENCY: ReadingName("frequency", "Hz"),
}

# Values of a time that are not times.
TIME_UNKNOWN: Final = 0
TIME_ERROR: Final = 1

BIT_NAMES: Final = ("first packet", "last packet", "to the device", "answer", "zlib", "AES-128", "receipt")


def params_in_words(params: int) -> str:
    """Return the names of the bits that are set, and the direction."""
    direction = "to the device" if params & TO_DEVICE else "from the device"
    found = [name for bit, name in enumerate(BIT_NAMES) if params & 1 << bit & ~TO_DEVICE]
    return ", ".join([direction, *found])


# ── limits: each name ends with its unit; a setting can change those marked (setting)

LENGTH_MIN: Final = 8  # version, params, device_type, n, command_no, packet_no, crc
LENGTH_MAX: Final = 0x7FFF  # the highest that two bytes can hold
APOSTOL_PACKET_BYTES_MAX: Final = 2 + LENGTH_MAX
APOSTOL_PACKET_DATA_BYTES: Final = 1024  # (setting) of a command, in each packet we send: no IP fragments
APOSTOL_COMMAND_BYTES_MAX: Final = MIB  # (setting) the joined packets of one command
APOSTOL_INFLATED_BYTES_MAX: Final = MIB  # (setting)
APOSTOL_ASSEMBLY_S: Final = 30.0  # (setting) from a command's first packet to its last
APOSTOL_ASSEMBLING_COMMANDS_MAX: Final = 4096
APOSTOL_ASSEMBLING_PER_DEVICE_MAX: Final = 32  # (setting)
APOSTOL_ASSEMBLING_BYTES_MAX: Final = 64 * MIB  # (setting) of all devices together
APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX: Final = 4 * MIB
APOSTOL_FINISHED_COMMANDS_MAX: Final = 65_536  # remembered to recognise duplicates
APOSTOL_FINISHED_PER_DEVICE_MAX: Final = 128  # half a cycle of command numbers: one used again is a new command
APOSTOL_ALTERNATIVES_MAX: Final = 4  # differing packets of one number of a sealed command, of which one may be genuine
APOSTOL_SEAL_TRIES_MAX: Final = 64  # selections of such packets that are tried when one more arrives
APOSTOL_SEAL_TRIES_BYTES_MAX: Final = 16 * MIB  # tried for one command; beyond that, one selection for each packet
APOSTOL_REPLAY_WINDOW_S: Final = 300.0  # (setting) how far behind a device's newest sealed command another may be
APOSTOL_SEALS_PER_DEVICE_MAX: Final = 512  # sealed commands in that window that are recognised
APOSTOL_SEALS_UNORDERED_MAX: Final = 64  # the same, of those without a usable time
APOSTOL_CLOCK_AHEAD_S: Final = 86_400.0  # a time that is further ahead of our clock is not usable
APOSTOL_HELD_PACKETS_MAX: Final = 64  # packets that arrive while the device is looked up
APOSTOL_HELD_BYTES_MAX: Final = 64 * KIB
APOSTOL_RECEIPT_S: Final = 5.0  # (setting) a packet without a receipt for this long is resent
APOSTOL_RESENDS_MAX: Final = 3  # (setting)
APOSTOL_UNRECEIPTED_PACKETS_MAX: Final = 1024  # of a session, sent and kept to be resent
APOSTOL_REQUEST_S: Final = 30.0  # (setting) from a request to the device's answer
APOSTOL_CHECK_S: Final = 10.0  # to look up a device
