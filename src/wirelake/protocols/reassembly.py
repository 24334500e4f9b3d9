"""The interface of a protocol whose devices send commands in several packets: see `Protocol.reassembly`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from typing import Protocol as Interface

from msgspec import Struct

COMPLETE: Final = "complete"
EXPIRED: Final = "expired"
REFUSED: Final = "refused"
# Reasons for a refusal that depend on more than the packets: on a device's key of today, and on earlier commands.
KEY_REASONS: Final = ("no_key", "bad_seal")
REPLAYED: Final = "replayed"  # a recorded command was sent again

KeyOf = Callable[[str], bytes | None]  # a device's key by its serial


class DeviceAddress(NamedTuple):
    """One device and one direction: what numbers commands."""

    direction: str
    device_type: int
    serial: str
    sent_serial: str  # as the packets have it: a broadcast has none


class FinishedCommand(Struct, gc=False):
    """A command that no packet can change any more.

    `seq` and `at` are those of the packet that finished it; of the first packet, if none did. Times are microseconds.
    """

    seq: int
    at: int
    node: str
    params: int
    command_no: int
    packets: int
    repeats: int
    first_at: int
    done_at: int
    state: str
    data: bytes = b""
    reason: str = ""


class CommandContent(Struct, frozen=True, gc=False):
    """The content of a complete command."""

    command_type: int | None = None
    error: int | None = None
    device_time_us: int | None = None
    data: bytes | None = None
    fields: str | None = None  # JSON
    readings: tuple[tuple[int, float | None], ...] = ()  # type, value


class OpenCommand(Interface):
    """A command whose packets have not all arrived."""

    params: int
    first_seq: int
    first_at: int
    node: str

    @property
    def held_bytes(self) -> int: ...

    @property
    def packets(self) -> int: ...

    @property
    def repeated(self) -> int: ...


class CommandAssembly(Interface):
    """The packets of one device in one direction. Commands are numbered by slots, whose low byte is the command_no."""

    @property
    def open(self) -> Mapping[int, OpenCommand]: ...

    def add(
        self,
        seq: int,
        at: int,
        node: str,
        params: int,
        number: int,
        data: bytes,
        done: list[FinishedCommand],
        rules: Any,
        seal: Any,
    ) -> None:
        """Take a packet, in the order of the log; `number` is command_no << 8 | packet_no. Append to `done`."""

    def expire(self, clock_us: int, rules: Any) -> list[FinishedCommand]:
        """Finish the commands whose time is over."""

    def give_up(self, slot: int, reason: str) -> list[FinishedCommand]:
        """Finish an open command to make room for others."""

    def due_us(self, rules: Any) -> int:
        """Return when `expire` or `forget` will have something to do."""

    def forget(self, sure_us: int, rules: Any) -> bool:
        """Drop what cannot matter any more; return whether anything is left."""

    def waiting(self, clock_us: int, rules: Any) -> Iterator[tuple[int, OpenCommand, bool]]:
        """Yield slot, open command, and whether its time is over."""


class Reassembly(Interface):
    """The module that `Protocol.reassembly` names.

    Its rules are what the protocol's settings decide; they have an attribute `timeout_us`, the longest time between the
    first and the last packet of a command.
    """

    KIND: str  # names the events and the state of this protocol in checkpoints: never change it
    RULES: Any  # by default

    def rules_from(self, settings: Any) -> Any:
        """Return the rules that the protocol's settings make."""

    def decode_packets(self, frames: Any) -> tuple[Any, Any]:
        """Return which of the frames are packets (int64), and their PACKET_COLUMNS."""

    def packet_params(self, packets: Any) -> Any:
        """Return the bits of each packet (int32) that `CommandAssembly.add` takes, from PACKET_COLUMNS."""

    def is_response(self, params: int) -> bool:
        """Return whether a command responds to one of the other side."""

    def new_assembly(self) -> CommandAssembly:
        """Return the state of a device that has not sent anything."""

    def pack(self, assembly: CommandAssembly) -> bytes:
        """Return the state as bytes, and reset its counts."""

    def unpack(self, state: bytes) -> CommandAssembly:
        """Return the state that was packed by this version or an older one."""

    def counts_of(self, assembly: CommandAssembly) -> dict[str, int]:
        """Return what was counted since the state was unpacked."""

    def seal_of(self, key_of: KeyOf, address: DeviceAddress) -> Any:
        """Return what `CommandAssembly.add` checks sealed packets with."""

    def read_command(
        self, address: DeviceAddress, assembly: CommandAssembly, done: FinishedCommand, key_of: KeyOf, rules: Any
    ) -> CommandContent:
        """Return the content of a complete command. Raise ProtocolError, whose code is the reason for its refusal."""
