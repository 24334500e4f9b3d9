"""Both ends of a device's life, and what each packet does in it.

A session belongs to a device, not to a connection: packets say whose they are, the gateway sorts them by serial, and
over UDP the address may change at any time. There is no login on the wire. A device's first packet asks for one; what
it sends until that is decided is held, without a receipt, so that what does not fit is sent again by the device itself.
A device that is not known hears nothing at all.

Every packet is answered with a receipt, repeats too: the receipt may be what was lost. Our own packets are sent again
until their receipts come, and given up after some tries. A request is open until the device's answer or its time-out.
"""

from enum import Enum, auto

from wirelake.protocols.apostol.limits import (
    APOSTOL_ASSEMBLING_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_CHECK_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_HALF_PACKET_S,
    APOSTOL_IDLE_S,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_LOGIN_S,
    APOSTOL_PACKET_DATA_BYTES,
    APOSTOL_RECEIPT_S,
    APOSTOL_REPLAY_WINDOW_S,
    APOSTOL_REQUEST_S,
    APOSTOL_RESENDS_MAX,
)
from wirelake.protocols.settings import Count, ProtocolSettings, Seconds
from wirelake.protocols.state_machine import StateMachine, Transition


class ServerState(Enum):
    UNKNOWN = auto()  # nothing heard yet
    CHECKING = auto()  # whether the device is known is being decided
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    READY = auto()
    CLOSED = auto()


class Settings(ProtocolSettings, frozen=True):
    open: bool = False  # True takes devices that are not registered
    require_seal: bool = False  # commands in clear from devices that have a key are refused, and so are replayed ones
    replay_window_s: Seconds = APOSTOL_REPLAY_WINDOW_S  # how far behind a device's newest sealed command one may be
    receipt_s: Seconds = APOSTOL_RECEIPT_S  # without a receipt for this long, a packet is sent again
    resends_max: Count = APOSTOL_RESENDS_MAX  # then it is given up
    request_s: Seconds = APOSTOL_REQUEST_S  # for a device's answer
    assembly_s: Seconds = APOSTOL_ASSEMBLY_S  # from a command's first packet to its last
    command_bytes_max: Count = APOSTOL_COMMAND_BYTES_MAX  # the joined packets of one command
    inflated_bytes_max: Count = APOSTOL_INFLATED_BYTES_MAX  # the same, unzipped
    assembling_per_device: Count = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of which packets are missing
    assembling_bytes: Count = APOSTOL_ASSEMBLING_BYTES_MAX  # of such commands, of all devices together
    packet_data_bytes: Count = APOSTOL_PACKET_DATA_BYTES  # of a command, in each packet sent
    idle_s: Seconds = APOSTOL_IDLE_S  # a silent device is forgotten, a silent TCP connection closed
    login_s: Seconds = APOSTOL_LOGIN_S  # over TCP, from connecting to the first packet of a known device
    half_packet_s: Seconds = APOSTOL_HALF_PACKET_S  # over TCP, from a packet's first byte to its last


class SessionSettings(Settings, frozen=True):
    """The settings, and what is not for users to set."""

    check_s: float = APOSTOL_CHECK_S  # for the decision whether a device is known


S = ServerState
SERVER_MACHINE = StateMachine(
    [
        Transition(
            S.UNKNOWN,
            "packet",
            "_first",
            (S.UNKNOWN, S.CHECKING),
            "held; who the device is goes up to be decided. Broadcasts and packets to a device are ignored",
        ),
        Transition(S.UNKNOWN, "receipt", "_stray", (S.UNKNOWN,), "counted, ignored"),
        Transition(S.CHECKING, "packet", "_hold", (S.CHECKING,), "held until it is decided; beyond the limit, ignored"),
        Transition(S.CHECKING, "receipt", "_stray", (S.CHECKING,), "counted, ignored"),
        Transition(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CLOSED),
            "what was held is read; or close without a word",
        ),
        Transition(S.CHECKING, "clock check", "_undecided", (S.CLOSED,), "close without a word"),
        Transition(S.READY, "packet", "_packet", (S.READY,), "receipt; the command goes up once it is complete"),
        Transition(S.READY, "receipt", "_receipt", (S.READY,), "that packet is not sent again"),
        Transition(
            S.READY, "app request", "_ask", (S.READY,), "packets to the device, or a broadcast; its answer goes up"
        ),
        Transition(
            S.READY,
            "app event",
            "_tell",
            (S.READY,),
            "packets to the device, or to all of them; no answer is expected",
        ),
        Transition(S.READY, "clock receipt", "_resend", (S.READY,), "packets without a receipt again, or given up"),
        Transition(S.READY, "clock request", "_unanswered", (S.READY,), "the request is answered with a failure"),
        Transition(
            S.READY, "clock assembly", "_expire", (S.READY,), "the command that is not complete is dropped, and told"
        ),
        *(
            Transition(state, event, do, (S.CLOSED,), says)
            for state in (S.UNKNOWN, S.CHECKING, S.READY)
            for event, do, says in (
                ("app fail", "_fail", "open requests fail; close"),
                ("app close", "_goodbye", "open requests fail; close"),
                ("clock silence", "_silent", "open requests fail; close"),
            )
        ),
    ]
)

C = ClientState
CLIENT_MACHINE = StateMachine(
    [
        Transition(C.READY, "packet", "_packet", (C.READY,), "receipt; the complete command goes up"),
        Transition(
            C.READY, "receipt", "_receipt", (C.READY,), "that packet is not sent again; the last one is told above"
        ),
        Transition(C.READY, "app telemetry", "_report", (C.READY,), "packets with a number of our own"),
        Transition(
            C.READY, "app response", "_answer", (C.READY,), "packets with the request's number and the answer bit"
        ),
        Transition(C.READY, "clock receipt", "_resend", (C.READY,), "packets without a receipt again, or given up"),
        Transition(
            C.READY, "clock assembly", "_expire", (C.READY,), "the command that is not complete is dropped, and told"
        ),
        Transition(C.READY, "app fail", "_fail", (C.CLOSED,), "what waits for receipts fails; close"),
        Transition(C.READY, "app close", "_goodbye", (C.CLOSED,), "what waits for receipts fails; close"),
    ]
)
