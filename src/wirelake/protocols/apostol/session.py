"""The settings and the state machines of both ends of a session.

A session belongs to a device, not to a connection: packets name their device, the gateway assigns them to sessions by
serial, and over UDP the address may change at any time. There is no login on the wire: the first packet of a device
makes the gateway look the device up. Packets that arrive meanwhile are held without a receipt; those beyond the limit
are dropped, and the device resends them. An unknown device gets no response at all.

Every packet gets a receipt, duplicates too, because it may be the receipt that was lost. Our own packets are resent
until their receipts come, and given up after some resends. A request is open until the device answers or it times out.
"""

from enum import Enum, auto

from wirelake.limits import DEVICE_HALF_FRAME_S, DEVICE_IDLE_S, DEVICE_LOGIN_S
from wirelake.protocols.apostol.constants import (
    APOSTOL_ASSEMBLING_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_CHECK_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_PACKET_DATA_BYTES,
    APOSTOL_RECEIPT_S,
    APOSTOL_REPLAY_WINDOW_S,
    APOSTOL_REQUEST_S,
    APOSTOL_RESENDS_MAX,
)
from wirelake.protocols.device_session import DeviceSettings
from wirelake.protocols.settings import Count, Seconds
from wirelake.protocols.state_machine import StateMachine, Transition, closing_transitions


class ServerState(Enum):
    UNKNOWN = auto()  # nothing received yet
    CHECKING = auto()  # the device is being looked up
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    READY = auto()
    CLOSED = auto()


class Settings(DeviceSettings, frozen=True):
    open: bool = False  # True accepts devices that are not registered
    require_seal: bool = False  # refuse unsealed and replayed commands of devices that have a key
    replay_window_s: Seconds = APOSTOL_REPLAY_WINDOW_S  # how far behind a device's newest sealed command one may be
    receipt_s: Seconds = APOSTOL_RECEIPT_S  # a packet without a receipt for this long is resent
    resends_max: Count = APOSTOL_RESENDS_MAX  # of a packet; then its command is given up
    request_s: Seconds = APOSTOL_REQUEST_S  # from a request to the device's answer
    assembly_s: Seconds = APOSTOL_ASSEMBLY_S  # from a command's first packet to its last
    command_bytes_max: Count = APOSTOL_COMMAND_BYTES_MAX  # the joined packets of one command
    inflated_bytes_max: Count = APOSTOL_INFLATED_BYTES_MAX  # the same, decompressed
    assembling_per_device: Count = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of which packets are missing
    assembling_bytes: Count = APOSTOL_ASSEMBLING_BYTES_MAX  # of such commands, of all devices together
    packet_data_bytes: Count = APOSTOL_PACKET_DATA_BYTES  # of a command, in each packet sent
    idle_s: Seconds = DEVICE_IDLE_S  # a silent device is forgotten, a silent TCP connection closed
    login_s: Seconds = DEVICE_LOGIN_S  # over TCP, from connecting to the first packet of a known device
    half_packet_s: Seconds = DEVICE_HALF_FRAME_S  # over TCP, from a packet's first byte to its last


class SessionSettings(Settings, frozen=True):
    """The settings, and what users cannot set."""

    check_s: float = APOSTOL_CHECK_S  # to look up a device


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(
            S.UNKNOWN,
            "packet",
            "_receive_first",
            (S.UNKNOWN, S.CHECKING),
            "held; the device is looked up. Broadcasts and packets to a device are ignored",
        ),
        Transition(S.UNKNOWN, "receipt", "_ignore_receipt", (S.UNKNOWN,), "counted, ignored"),
        Transition(
            S.CHECKING,
            "packet",
            "_hold",
            (S.CHECKING,),
            "held until the device is looked up; ignored beyond a limit",
        ),
        Transition(S.CHECKING, "receipt", "_ignore_receipt", (S.CHECKING,), "counted, ignored"),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CLOSED),
            "the held packets are handled; or, if the device is refused, close without a response",
        ),
        Transition(S.CHECKING, "clock check", "_too_late", (S.CLOSED,), "close without a response"),
        Transition(
            S.READY, "packet", "_receive_packet", (S.READY,), "receipt; the command is passed up once it is complete"
        ),
        Transition(S.READY, "receipt", "_receive_receipt", (S.READY,), "that packet is not resent"),
        Transition(
            S.READY,
            "app request",
            "_send_request",
            (S.READY,),
            "packets to the device, or a broadcast; the answer is passed up",
        ),
        Transition(
            S.READY, "app event", "_send_event", (S.READY,), "packets to the device, or to all; no answer is expected"
        ),
        Transition(
            S.READY, "clock receipt", "_resend", (S.READY,), "packets without a receipt are resent, or given up"
        ),
        Transition(S.READY, "clock request", "_expire_requests", (S.READY,), "the request fails"),
        Transition(
            S.READY,
            "clock assembly",
            "_expire_assembly",
            (S.READY,),
            "the incomplete command is dropped, and an event passed up",
        ),
        *closing_transitions(
            (S.UNKNOWN, S.CHECKING, S.READY),
            S.CLOSED,
            close="open requests fail; close",
            fail="open requests fail; close",
            silence="open requests fail; close",
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(
            C.READY, "packet", "_receive_packet", (C.READY,), "receipt; the command is passed up once it is complete"
        ),
        Transition(
            C.READY,
            "receipt",
            "_receive_receipt",
            (C.READY,),
            "that packet is not resent; with the last receipt of a report, a response is passed up",
        ),
        Transition(C.READY, "app telemetry", "_send_report", (C.READY,), "packets with a number of our own"),
        Transition(
            C.READY, "app response", "_send_answer", (C.READY,), "packets with the request's number and the answer bit"
        ),
        Transition(
            C.READY, "clock receipt", "_resend", (C.READY,), "packets without a receipt are resent, or given up"
        ),
        Transition(
            C.READY,
            "clock assembly",
            "_expire_assembly",
            (C.READY,),
            "the incomplete command is dropped, and an event passed up",
        ),
        *closing_transitions(
            (C.READY,),
            C.CLOSED,
            close="commands without all receipts fail; close",
            fail="commands without all receipts fail; close",
            silence=None,
        ),
    ]
)
