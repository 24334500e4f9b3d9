"""Sessions of devices, which their frames name, wherever those come from.

Where each frame says which device it is from (`Protocol.device_of`), a session belongs to the device and not to a
connection: its address may change between two frames, and one connection may carry many devices.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from wirelake.limits import DEVICE_HALF_FRAME_S, DEVICE_IDLE_S, DEVICE_LOGIN_S
from wirelake.message import Message
from wirelake.protocols.frame import Frame
from wirelake.protocols.session import Session, Step
from wirelake.protocols.settings import ProtocolSettings, Seconds

DELIVERED: Final = "receipt"  # name of a CONTROL message: the device confirmed the request with this correlation
KEY_FIELD: Final = "key"  # field of the response to a LOGIN: the device's key, if it has one
MEMORY_FIELD: Final = "memory"  # field of the same: what `take_unsaved` returned in earlier sessions of the device


class DeviceSettings(ProtocolSettings, frozen=True):
    """The settings of every protocol whose sessions belong to devices."""

    open: bool = False  # True accepts devices that are not registered
    idle_s: Seconds = DEVICE_IDLE_S  # a silent device is forgotten, a silent TCP connection closed
    login_s: Seconds = DEVICE_LOGIN_S  # over TCP, from connecting to the first frame of a known device
    half_packet_s: Seconds = DEVICE_HALF_FRAME_S  # over TCP, from a frame's first byte to its last


class Assembling(Struct, frozen=True):
    """A command of which packets are missing."""

    device_type: int
    serial: str
    command_no: int
    answer: bool
    packets: int  # how many different ones arrived
    last: int | None  # the number of the last one; None while that has not arrived
    missing: tuple[int, ...]  # the numbers below the highest that arrived, without those that arrived
    bytes: int
    first_at_s: float


class DeviceSession(Session):
    """The gateway's end of a device's session.

    Its first frame makes a LOGIN message, which the gateway answers from the registry of devices. Frames of a step that
    are replies (`Frame.is_reply`) go to where the received frame came from, once what it reported is published. All
    others go to where the device is.
    """

    __slots__ = ()
    forgery_reasons: ClassVar[frozenset[str]] = frozenset()  # of refused commands that somebody else may have sent
    device_type: int  # as the device reports it
    serial: str

    @property
    def takes_commands(self) -> bool:
        return True

    @property
    def is_located(self) -> bool:
        """Return whether the device is where its last frame came from; False if somebody else may have sent that."""
        return True

    @property
    def assembling_bytes(self) -> int:
        """Return the size of the commands of which packets are missing."""
        return 0

    @property
    def assembling_bytes_max(self) -> int:
        """Return the limit on `assembling_bytes` of all devices together."""
        return 0

    @property
    def assembly_s(self) -> float:
        """Return how long a command may take from its first packet to its last."""
        return 0.0

    @property
    def can_batch(self) -> bool:
        """Return whether its reports may be read in batches at present: see `TelemetryReader`."""
        return False

    @property
    def has_unsaved(self) -> bool:
        """Return whether `take_unsaved` has something."""
        return False

    @property
    def assembling(self) -> int:
        """Return the number of commands of which packets are missing."""
        return 0

    def under_way(self) -> Sequence[Assembling]:
        """Return the commands of which packets are missing."""
        return ()

    def relieve(self, now_s: float) -> Step:
        """Give up the commands of which packets are missing: all devices together hold too much."""
        return Step()

    def is_report(self, frame: Frame) -> bool:
        """Return whether a frame is, or may complete, telemetry that has to be published."""
        return True

    def withdraw(self, frame: Frame, report: Message) -> None:
        """Take note that a report, completed by this frame, was not published: a repeat of it has to be handed up."""

    def take_unsaved(self) -> dict[int, bytes]:
        """Return what must survive a restart and changed since the last call, by a number of the protocol's choice."""
        return {}

    def keep_unsaved(self, number: int) -> None:
        """Take note that this part of what `take_unsaved` returned could not be saved."""
