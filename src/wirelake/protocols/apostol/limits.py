"""Bounds of apostol, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB, MIB

APOSTOL_PACKET_BYTES_MAX: Final = 2 + 0x7FFF  # what a two-byte length can say
APOSTOL_PACKET_DATA_BYTES: Final = 1024  # (setting) of a command, in each packet we send: a datagram that is not cut up
APOSTOL_COMMAND_BYTES_MAX: Final = MIB  # (setting) the joined packets of one command
APOSTOL_INFLATED_BYTES_MAX: Final = MIB  # (setting)
APOSTOL_ASSEMBLY_S: Final = 30.0  # (setting) from a command's first packet to its last
APOSTOL_ASSEMBLING_COMMANDS_MAX: Final = 4096
APOSTOL_ASSEMBLING_PER_DEVICE_MAX: Final = 32  # (setting)
APOSTOL_ASSEMBLING_BYTES_MAX: Final = 64 * MIB  # (setting) of all devices together
APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX: Final = 4 * MIB
APOSTOL_FINISHED_COMMANDS_MAX: Final = 65_536  # remembered, to know a repeat of one
APOSTOL_FINISHED_PER_DEVICE_MAX: Final = 128  # half a turn of the command counter: a number used again is a new command
APOSTOL_ALTERNATIVES_MAX: Final = 4  # packets of one number that differ, of a sealed command: one at most is genuine
APOSTOL_SEAL_TRIES_MAX: Final = 64  # selections of such packets that are tried when one more comes
APOSTOL_SEAL_TRIES_BYTES_MAX: Final = 16 * MIB  # tried for one command; from there on one selection for each packet
APOSTOL_REPLAY_WINDOW_S: Final = 300.0  # (setting) how far behind a device's newest sealed command another may be
APOSTOL_SEALS_PER_DEVICE_MAX: Final = 512  # sealed commands in that window that are known again
APOSTOL_SEALS_UNORDERED_MAX: Final = 64  # the same, of those whose time says nothing
APOSTOL_CLOCK_AHEAD_S: Final = 86_400.0  # a device's clock that is further ahead of ours says nothing
APOSTOL_SKIMMED_MAX: Final = 1024  # decoded together, once all that were tried could be
APOSTOL_HELD_PACKETS_MAX: Final = 64  # packets that came while the device was being looked up
APOSTOL_HELD_BYTES_MAX: Final = 64 * KIB
APOSTOL_RECEIPT_S: Final = 5.0  # (setting) without a receipt for this long, a packet is sent again
APOSTOL_RESENDS_MAX: Final = 3  # (setting)
APOSTOL_UNRECEIPTED_PACKETS_MAX: Final = 1024  # sent and kept, to be sent again
APOSTOL_REQUEST_S: Final = 30.0  # (setting) for the device's answer
APOSTOL_CHECK_S: Final = 10.0  # from a device's first packet to a decision about it
APOSTOL_LOGIN_S: Final = 10.0  # (setting) from a TCP connection to the first packet of a known device
APOSTOL_HALF_PACKET_S: Final = 10.0  # (setting) from a packet's first byte to its last, over TCP
APOSTOL_IDLE_S: Final = 3600.0  # (setting) a silent device is forgotten; its next packet begins anew
