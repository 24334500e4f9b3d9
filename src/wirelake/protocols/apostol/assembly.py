"""Assemble commands from packets that arrive in any order, more than once, or never.

The packet numbers give the order, and the packet with the `last` bit gives their count. A packet that contradicts
earlier ones (other data under the same number, another last packet, a number beyond it) is dropped and counted.

A finished command is remembered for a while: if its packets arrive again, they are duplicates and make no second
command. A packet that differs from the remembered one belongs to a new command: the device's counter wrapped or
restarted. Packets of a command that did not become complete may still arrive late, so only a packet 0 starts another.

An answer has the number of its request, a report the device's own: these are two counters in one direction, and the
answer bit, which distinguishes them, is part of the key. So is the bit of the seal, and with it that of zlib: an
unsealed packet cannot displace a sealed one.

The first packet wins only where nothing better can decide: the differing packets of a sealed command are kept for a
while, and its seal decides (`alternatives.py`). Where a seal is required (`sealed_only`), an unsealed packet that is
not a whole command is refused at once, and uses none of the limits.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Generic, TypeVar
from typing import Protocol as Interface

from msgspec import Struct, field

from wirelake.protocols.apostol.alternatives import Alternatives
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_ASSEMBLING_BYTES_MAX,
    APOSTOL_ASSEMBLING_COMMANDS_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_FINISHED_COMMANDS_MAX,
    APOSTOL_FINISHED_PER_DEVICE_MAX,
    COMMAND_BITS,
    COUNTER_BITS,
    LAST,
    SEALED,
    TO_DEVICE,
)
from wirelake.protocols.apostol.duplicates import (
    BITS_SHIFT,
    DeviceKey,
    FinishedCommands,
    Memory,
    fingerprint_of,
    is_same_packet,
)
from wirelake.protocols.apostol.envelope import join
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.device_session import Assembling

CommandKey = tuple[DeviceKey, int, int]  # the device, its `key_bits`, command_no
SealCheck = Callable[[DeviceKey, int, bytes], bool]  # the device, command_no, the joined packets


def key_bits(params: int) -> int:
    """Return the bits that distinguish commands of one number."""
    return params & (COMMAND_BITS if params & SEALED else COUNTER_BITS)


class PartialPackets(Interface):
    """The packets of one command so far, as `add_packet` changes them."""

    params: int
    parts: dict[int, bytes]
    fingerprints: dict[int, int]
    last: int | None
    size: int
    duplicates: int
    conflicts: int


def add_packet(partial: PartialPackets, params: int, number: int, data: bytes, fingerprint: int) -> None:
    """Add a packet, unless it is a duplicate or contradicts the packets that came before it."""
    if number in partial.parts:
        if partial.fingerprints[number] == fingerprint:
            partial.duplicates += 1
        else:
            partial.conflicts += 1
        return
    is_last = params & LAST != 0
    is_beyond = partial.last is not None and (is_last or number > partial.last)
    is_too_early = is_last and bool(partial.parts) and max(partial.parts) > number
    if is_beyond or is_too_early or params & COMMAND_BITS != partial.params:
        partial.conflicts += 1
        return
    if is_last:
        partial.last = number
    partial.parts[number] = data
    partial.fingerprints[number] = fingerprint
    partial.size += len(data)


class State(StrEnum):
    """How a command ended."""

    COMPLETE = "complete"
    EXPIRED = "expired"
    REFUSED = "refused"


class Bounds(Struct, frozen=True):
    """The limits of an assembler."""

    timeout_s: float = APOSTOL_ASSEMBLY_S
    command_bytes_max: int = APOSTOL_COMMAND_BYTES_MAX
    assembling_bytes_max: int = APOSTOL_ASSEMBLING_BYTES_MAX
    assembling_commands_max: int = APOSTOL_ASSEMBLING_COMMANDS_MAX
    assembling_per_device_max: int = APOSTOL_ASSEMBLING_PER_DEVICE_MAX
    finished_commands_max: int = APOSTOL_FINISHED_COMMANDS_MAX
    finished_per_device_max: int = APOSTOL_FINISHED_PER_DEVICE_MAX


DEFAULT_BOUNDS = Bounds()


class Assembled(Struct, frozen=True):
    """A command that ended. If it is complete, `data` is its packets joined, still sealed and zipped."""

    state: State
    device_type: int
    serial: str
    command_no: int
    params: int  # direction, answer, zipped, sealed
    data: bytes
    packets: int  # how many different ones arrived
    duplicates: int
    conflicts: int
    first_at_s: float
    done_at_s: float
    reason: str = ""  # of a refused one: the limit that it exceeded, or `unsealed`

    @property
    def to_device(self) -> bool:
        return self.params & TO_DEVICE != 0

    @property
    def answer(self) -> bool:
        return self.params & ANSWER != 0


class Assembler:
    """Takes packets (never receipts) and the time, and returns the commands that end."""

    __slots__ = ("_bytes", "_open", "bounds", "duplicates", "finished", "is_seal_valid", "late", "sealed_only")

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds
        self.sealed_only = False
        self.is_seal_valid: SealCheck | None = None  # None: the key is not known, and the first packets win
        self.duplicates = 0  # packets of finished commands that arrived again
        self.late = 0  # packets of commands that were given up before
        self._bytes = 0
        self._open: _OpenCommands[_Partial | _SealedPartial] = _OpenCommands()
        self.finished = FinishedCommands(bounds.timeout_s, bounds.finished_per_device_max, bounds.finished_commands_max)

    def __len__(self) -> int:
        """Return the number of commands of which packets are missing."""
        return len(self._open.items)

    @property
    def deadline_s(self) -> float | None:
        """Return when the next command expires."""
        oldest = self._open.oldest()
        return None if oldest is None else self._open.items[oldest].first_at_s + self.bounds.timeout_s

    def add(self, packet: Packet, now_s: float) -> list[Assembled]:
        """Add a packet. Return the command that it completes, and any others that end now."""
        done = self.expire(now_s)
        device = (packet.device_type, packet.serial)
        params = packet.params
        key = (device, params & (COMMAND_BITS if params & SEALED else COUNTER_BITS), packet.command_no)
        partial = self._open.items.get(key)
        is_whole = params & LAST and not packet.packet_no and len(packet.data) <= self.bounds.command_bytes_max
        if partial is None or (is_whole and isinstance(partial, _SealedPartial)):
            if self._is_known(key, packet, now_s):
                return done
            if is_whole:
                done.append(self._whole_command(key, packet, now_s))
                return done
            if self.sealed_only and not params & SEALED:
                done.append(_refused(packet, now_s, "unsealed"))
                return done
            self._limit_open(device, now_s, done)
            partial = self._begin(key, params & COMMAND_BITS, now_s)
        held = partial.size
        if isinstance(partial, _SealedPartial):
            self._add_sealed(key, partial, packet, now_s, done)
        else:
            partial.add(packet)
            self._bytes += partial.size - held
            if partial.size > self.bounds.command_bytes_max:
                self._end(key, State.REFUSED, now_s, done, "command_bytes_max")
            elif partial.is_complete:
                self._end(key, State.COMPLETE, now_s, done)
        while self._bytes > self.bounds.assembling_bytes_max and (oldest := self._open.oldest()) is not None:
            self._end(oldest, State.REFUSED, now_s, done, "assembling_bytes_max")
        return done

    def _begin(self, key: CommandKey, params: int, now_s: float) -> "_Partial | _SealedPartial":
        is_sealed = params & SEALED and self.is_seal_valid is not None
        partial = _SealedPartial(params, now_s) if is_sealed else _Partial(params, now_s)
        self._open.put(key, partial)
        return partial

    def _add_sealed(
        self, key: CommandKey, partial: "_SealedPartial", packet: Packet, now_s: float, done: list[Assembled]
    ) -> None:
        """Try the selections that this packet completes. The one whose seal is valid ends the command.

        One that is not valid is handed on once, to be refused; the packets stay, because a genuine one may be missing.
        """
        held, parts, is_seal_valid = partial.size, partial.parts, self.is_seal_valid
        is_new = parts.add(packet.packet_no, packet.params, packet.data)
        self._bytes += partial.size - held
        if not is_new or is_seal_valid is None:
            return
        for selection in parts.selections(packet.packet_no):
            data = b"".join([piece for _, piece in selection])
            if len(data) > self.bounds.command_bytes_max:
                offered = _assembled(key, State.REFUSED, partial, now_s, "command_bytes_max")
            elif is_seal_valid(key[0], key[2], data):
                self._open.take(key)
                self._bytes -= partial.size
                fingerprints = {number: fingerprint_of(*piece) for number, piece in enumerate(selection)}
                self._remember(key, (fingerprints, now_s, True))
                done.append(_assembled(key, State.COMPLETE, partial, now_s, "", data, len(selection)))
                return
            else:
                offered = _assembled(key, State.COMPLETE, partial, now_s, "", data, len(selection))
            if not parts.offered:
                done.append(offered)
                parts.offered = True

    @property
    def open(self) -> Mapping[CommandKey, object]:
        """Return the commands of which packets are missing."""
        return self._open.items

    def under_way(self) -> list[Assembling]:
        """Return the progress of each command of which packets are missing, the oldest first."""
        return [
            Assembling(
                *device,
                command_no,
                bits & ANSWER != 0,
                partial.packets,
                partial.last,
                _missing(partial.fingerprints),
                partial.size,
                partial.first_at_s,
            )
            for (device, bits, command_no), partial in self._open.items.items()
            if not partial.offered
        ]

    @property
    def bytes(self) -> int:
        """Return the size of all packets that wait for others."""
        return self._bytes

    def refuse_all(self, now_s: float, reason: str) -> list[Assembled]:
        """Give up every command of which packets are missing, and return them."""
        done: list[Assembled] = []
        while (key := self._open.oldest()) is not None:
            self._end(key, State.REFUSED, now_s, done, reason)
        return done

    def expire(self, now_s: float) -> list[Assembled]:
        """End the commands whose time is over, and return them."""
        timeout_s = self.bounds.timeout_s
        done: list[Assembled] = []
        while (key := self._open.oldest()) is not None and self._open.items[key].first_at_s + timeout_s <= now_s:
            self._end(key, State.EXPIRED, now_s, done)
        return done

    def _whole_command(self, key: CommandKey, packet: Packet, now_s: float) -> Assembled:
        """Return a command in one packet, as most are; it is never open."""
        self._remember(key, (fingerprint_of(packet.params, packet.data), now_s, True))
        return Assembled(
            State.COMPLETE,
            packet.device_type,
            packet.serial,
            packet.command_no,
            packet.params & COMMAND_BITS,
            packet.data,
            1,
            0,
            0,
            now_s,
            now_s,
        )

    def _is_known(self, key: CommandKey, packet: Packet, now_s: float) -> bool:
        """Return whether the packet belongs to a command that ended."""
        memory = self.finished.get(key[0], _slot(key), now_s)
        if memory is None:
            return False
        if is_same_packet(memory, packet):
            self.duplicates += 1
            return True
        if not memory[2] and packet.packet_no and not key[1] & SEALED:  # a forged one must not block a sealed command
            self.late += 1
            return True
        return False

    def _limit_open(self, device: DeviceKey, now_s: float, done: list[Assembled]) -> None:
        """Refuse the oldest command where one more would be too many."""
        oldest, reason = None, ""
        if self._open.count(device) >= self.bounds.assembling_per_device_max:
            oldest, reason = self._open.oldest(device), "assembling_per_device_max"
        elif len(self._open.items) >= self.bounds.assembling_commands_max:
            oldest, reason = self._open.oldest(), "assembling_commands_max"
        if oldest is not None:
            self._end(oldest, State.REFUSED, now_s, done, reason)

    def _end(self, key: CommandKey, state: State, now_s: float, done: list[Assembled], reason: str = "") -> None:
        partial = self._open.take(key)
        self._bytes -= partial.size
        self._remember(key, (partial.fingerprints, now_s, state is State.COMPLETE))
        if not partial.offered:  # else a refusal was reported already
            data = join(partial.parts) if state is State.COMPLETE and isinstance(partial, _Partial) else b""
            done.append(_assembled(key, state, partial, now_s, reason, data))

    def _remember(self, key: CommandKey, memory: Memory) -> None:
        self.finished.put(key[0], _slot(key), memory)


def _missing(numbers: Collection[int]) -> tuple[int, ...]:
    """Return the packet numbers below the highest that are not there."""
    return tuple(number for number in range(max(numbers, default=0)) if number not in numbers)


def _slot(key: CommandKey) -> int:
    return key[1] << BITS_SHIFT | key[2]


def _refused(packet: Packet, now_s: float, reason: str) -> Assembled:
    """Return the refusal of a single packet."""
    params = packet.params & COMMAND_BITS
    head = (packet.device_type, packet.serial, packet.command_no)
    return Assembled(State.REFUSED, *head, params, b"", 1, 0, 0, now_s, now_s, reason)


class _Partial(Struct):
    """A command of which packets are missing."""

    params: int
    first_at_s: float
    parts: dict[int, bytes] = field(default_factory=dict)
    fingerprints: dict[int, int] = field(default_factory=dict)
    last: int | None = None
    size: int = 0
    duplicates: int = 0
    conflicts: int = 0

    @property
    def is_complete(self) -> bool:
        return self.last is not None and len(self.parts) == self.last + 1

    def add(self, packet: Packet) -> None:
        add_packet(self, packet.params, packet.packet_no, packet.data, fingerprint_of(packet.params, packet.data))

    @property
    def packets(self) -> int:
        return len(self.parts)

    @property
    def offered(self) -> bool:
        return False


class _SealedPartial(Struct):
    """A sealed command of which packets are missing or may be forged."""

    params: int
    first_at_s: float
    parts: Alternatives = field(default_factory=Alternatives)

    @property
    def fingerprints(self) -> dict[int, int]:
        """Return the fingerprint of the newest packet of each number."""
        return {number: fingerprint_of(*pieces[-1]) for number, pieces in self.parts.pieces.items()}

    @property
    def last(self) -> int | None:
        return self.parts.last

    @property
    def size(self) -> int:
        return self.parts.size

    @property
    def duplicates(self) -> int:
        return self.parts.repeats

    @property
    def conflicts(self) -> int:
        return self.parts.conflicts

    @property
    def packets(self) -> int:
        return len(self.parts.pieces)

    @property
    def offered(self) -> bool:
        return self.parts.offered


def _assembled(
    key: CommandKey,
    state: State,
    partial: _Partial | _SealedPartial,
    now_s: float,
    reason: str = "",
    data: bytes = b"",
    packets: int | None = None,
) -> Assembled:
    (device_type, serial), _, command_no = key
    return Assembled(
        state,
        device_type,
        serial,
        command_no,
        partial.params,
        data,
        partial.packets if packets is None else packets,
        partial.duplicates,
        partial.conflicts,
        partial.first_at_s,
        now_s,
        reason,
    )


Item = TypeVar("Item")


class _OpenCommands(Generic[Item]):
    """Items by command, the oldest first, in all and for each device."""

    __slots__ = ("_devices", "items")

    def __init__(self) -> None:
        self.items: dict[CommandKey, Item] = {}
        self._devices: dict[DeviceKey, dict[CommandKey, None]] = {}

    def put(self, key: CommandKey, item: Item) -> None:
        self.items[key] = item
        self._devices.setdefault(key[0], {})[key] = None

    def take(self, key: CommandKey) -> Item:
        of_device = self._devices[key[0]]
        del of_device[key]
        if not of_device:
            del self._devices[key[0]]
        return self.items.pop(key)

    def count(self, device: DeviceKey) -> int:
        return len(self._devices.get(device, ()))

    def oldest(self, device: DeviceKey | None = None) -> CommandKey | None:
        return next(iter(self.items if device is None else self._devices[device]), None)
