"""Both ends of a device's life, and what each packet does in it.

A session belongs to a device, not to a connection: packets say whose they are, the gateway sorts them by serial, and
over UDP the address may change at any time. There is no login on the wire. A device's first packet asks for one; what
it sends until that is decided is held, without a receipt, so that what does not fit is sent again by the device itself.
A device that is not known hears nothing at all.

Every packet is answered with a receipt, repeats too: the receipt may be what was lost. Our own packets are sent again
until their receipts come, and given up after some tries. A request is open until the device's answer or its time-out.
"""

from enum import Enum, auto

from msgspec import Struct

from wirelake.limits import (
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_CHECK_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_IDLE_S,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_PACKET_DATA_BYTES,
    APOSTOL_RECEIPT_S,
    APOSTOL_REPLAY_WINDOW_S,
    APOSTOL_REQUEST_S,
    APOSTOL_RESENDS_MAX,
)
from wirelake.protocols.table import Row, Table


class ServerState(Enum):
    UNKNOWN = auto()  # nothing heard yet
    CHECKING = auto()  # whether the device is known is being decided
    READY = auto()
    CLOSED = auto()


class ClientState(Enum):
    READY = auto()
    CLOSED = auto()


class Settings(Struct, frozen=True):
    idle_s: float = APOSTOL_IDLE_S
    check_s: float = APOSTOL_CHECK_S
    request_s: float = APOSTOL_REQUEST_S
    receipt_s: float = APOSTOL_RECEIPT_S
    resends_max: int = APOSTOL_RESENDS_MAX
    assembly_s: float = APOSTOL_ASSEMBLY_S
    command_bytes_max: int = APOSTOL_COMMAND_BYTES_MAX
    inflated_bytes_max: int = APOSTOL_INFLATED_BYTES_MAX
    assembling_max: int = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of which packets are missing
    packet_data_bytes: int = APOSTOL_PACKET_DATA_BYTES
    require_seal: bool = False  # from a device with a key, commands in clear are refused
    replay_window_s: float = APOSTOL_REPLAY_WINDOW_S  # kept to by whoever remembers the sealed commands


S = ServerState
SERVER_TABLE = Table(
    [
        Row(
            S.UNKNOWN,
            "packet",
            "_first",
            (S.UNKNOWN, S.CHECKING),
            "held; who the device is goes up to be decided. Broadcasts and packets to a device are ignored",
        ),
        Row(S.UNKNOWN, "receipt", "_stray", (S.UNKNOWN,), "counted, ignored"),
        Row(S.CHECKING, "packet", "_hold", (S.CHECKING,), "held until it is decided; beyond the limit, ignored"),
        Row(S.CHECKING, "receipt", "_stray", (S.CHECKING,), "counted, ignored"),
        Row(
            S.CHECKING,
            "app response",
            "_decide",
            (S.READY, S.CLOSED),
            "what was held is read; or close without a word",
        ),
        Row(S.CHECKING, "clock check", "_undecided", (S.CLOSED,), "close without a word"),
        Row(S.READY, "packet", "_packet", (S.READY,), "receipt; the command goes up once it is complete"),
        Row(S.READY, "receipt", "_receipt", (S.READY,), "that packet is not sent again"),
        Row(S.READY, "app request", "_ask", (S.READY,), "packets to the device, or a broadcast; its answer goes up"),
        Row(
            S.READY,
            "app event",
            "_tell",
            (S.READY,),
            "packets to the device, or to all of them; no answer is expected",
        ),
        Row(S.READY, "clock receipt", "_resend", (S.READY,), "packets without a receipt again, or given up"),
        Row(S.READY, "clock request", "_unanswered", (S.READY,), "the request is answered with a failure"),
        Row(S.READY, "clock assembly", "_expire", (S.READY,), "the command that is not complete is dropped, and told"),
        *(
            Row(state, event, do, (S.CLOSED,), says)
            for state in (S.UNKNOWN, S.CHECKING, S.READY)
            for event, do, says in (
                ("app fail", "_fail", "open requests fail; close"),
                ("app goodbye", "_goodbye", "open requests fail; close"),
                ("clock silence", "_silent", "open requests fail; close"),
            )
        ),
    ]
)

C = ClientState
CLIENT_TABLE = Table(
    [
        Row(C.READY, "packet", "_packet", (C.READY,), "receipt; the complete command goes up"),
        Row(C.READY, "receipt", "_receipt", (C.READY,), "that packet is not sent again; the last one is told above"),
        Row(C.READY, "app telemetry", "_report", (C.READY,), "packets with a number of our own"),
        Row(C.READY, "app response", "_answer", (C.READY,), "packets with the request's number and the answer bit"),
        Row(C.READY, "clock receipt", "_resend", (C.READY,), "packets without a receipt again, or given up"),
        Row(C.READY, "clock assembly", "_expire", (C.READY,), "the command that is not complete is dropped, and told"),
        Row(C.READY, "app fail", "_fail", (C.CLOSED,), "what waits for receipts fails; close"),
        Row(C.READY, "app goodbye", "_goodbye", (C.CLOSED,), "what waits for receipts fails; close"),
    ]
)
