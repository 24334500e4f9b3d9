"""Assemble commands from the packets of one device in one direction, in the order of the log.

See `reassembly.Reassembly` for who calls this. The acceptance of packets, sealed alternatives, replays and the joining
of packets are the same code as in the gateway (`assembly.py`). The bookkeeping is separate: the gateway has all devices
in one object and expires commands by its clock, while this state is packed between two batches, device by device. So a
packet is recognised by its CRC, not by Python's hash, which differs in every process; and `add` takes plain values
instead of a Packet. With the gateway's Assembler, a packet would take 2.9 µs instead of 1.7 µs, and its state could not
be packed.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from fastcrc import crc64
from msgspec import Struct, field, json, msgpack

from wirelake.errors import SealError
from wirelake.protocols.apostol.alternatives import Alternatives
from wirelake.protocols.apostol.assembly import add_packet, key_bits
from wirelake.protocols.apostol.commands import DeviceCommand, Status, parse_command
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_FINISHED_PER_DEVICE_MAX,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_REPLAY_WINDOW_S,
    COMMAND_BITS,
    COUNTER_BITS,
    FIRST,
    LAST,
    SEALED,
    TIME_ERROR,
    TO_DEVICE,
    ZIPPED,
)
from wirelake.protocols.apostol.duplicates import Replays
from wirelake.protocols.apostol.envelope import associated_data, join, open_command, unseal
from wirelake.protocols.reassembly import (
    COMPLETE,
    EXPIRED,
    REFUSED,
    REPLAYED,
    CommandContent,
    DeviceAddress,
    FinishedCommand,
    KeyOf,
)

KIND: Final = "fragment"
_VERSION: Final = 1  # of the packed state
_DEVICE_HEAD_BYTES: Final = 6  # of a device's command, before its data
_BITS: Final = (
    ("first", FIRST),
    ("last", LAST),
    ("to_device", TO_DEVICE),
    ("answer", ANSWER),
    ("zlib", ZIPPED),
    ("sealed", SEALED),
)
_NEVER_US: Final = 2**62
_crc = crc64.xz


class Rules(Struct, frozen=True):
    """The settings by which the gateway accepts commands."""

    timeout_us: int = int(APOSTOL_ASSEMBLY_S * 1_000_000)
    command_bytes_max: int = APOSTOL_COMMAND_BYTES_MAX
    inflated_bytes_max: int = APOSTOL_INFLATED_BYTES_MAX
    assembling_max: int = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of one device
    require_seal: bool = False  # by devices that have a key
    replay_window_s: float = APOSTOL_REPLAY_WINDOW_S  # of their sealed commands

    @property
    def assembling_bytes_max(self) -> int:
        """Return the limit for the open commands of one device together."""
        return max(APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX, self.command_bytes_max)


RULES: Final = Rules()


def rules_from(settings: Any) -> Rules:
    """Return the rules that the settings under [apostol] make."""
    return Rules(
        timeout_us=int(settings.assembly_s * 1_000_000),
        command_bytes_max=settings.command_bytes_max,
        inflated_bytes_max=settings.inflated_bytes_max,
        assembling_max=settings.assembling_per_device,
        require_seal=settings.require_seal,
        replay_window_s=settings.replay_window_s,
    )


class PartialCommand(Struct, array_like=True, gc=False):
    """A command whose packets have not all arrived. Times are microseconds."""

    params: int
    first_seq: int
    first_at: int
    node: str
    parts: dict[int, bytes] = field(default_factory=dict)
    fingerprints: dict[int, int] = field(default_factory=dict)
    last: int | None = None
    size: int = 0
    duplicates: int = 0
    conflicts: int = 0
    sealed: Alternatives | None = None  # instead of parts, fingerprints, last and size

    @property
    def held_bytes(self) -> int:
        return self.size if self.sealed is None else self.sealed.size

    @property
    def packets(self) -> int:
        return len(self.parts) if self.sealed is None else len(self.sealed.pieces)

    @property
    def repeated(self) -> int:
        return self.duplicates if self.sealed is None else self.sealed.repeats

    @property
    def offered(self) -> bool:
        """Return whether a refusal was reported already."""
        return self.sealed is not None and self.sealed.offered

    @property
    def marks(self) -> dict[int, int]:
        """Return what its packets can be recognised by."""
        if self.sealed is None:
            return self.fingerprints
        return {number: _crc(pieces[-1][1]) ^ pieces[-1][0] for number, pieces in self.sealed.pieces.items()}


class FinishedPackets(Struct, array_like=True, gc=False):
    """What is kept of a finished command: enough to recognise its packets."""

    complete: bool
    done_at: int
    fingerprints: dict[int, int]


class DeviceAssembly(Struct, array_like=True):
    """Commands by slot: the bits that distinguish commands of one number, and the number."""

    open: dict[int, PartialCommand] = field(default_factory=dict)
    finished: dict[int, FinishedPackets] = field(default_factory=dict)  # the oldest first
    size: int = 0  # bytes of all open ones
    repeats: int = 0  # packets of finished commands that arrived again, since the state was unpacked
    late: int = 0  # packets of commands that did not become complete
    replays: Replays | None = None  # of sealed commands, where a seal is required
    version: int = 0

    def add(
        self,
        seq: int,
        at: int,
        node: str,
        params: int,
        number: int,
        data: bytes,
        done: list[FinishedCommand],
        rules: Rules = RULES,
        seal: "Seal | None" = None,
    ) -> None:
        """Take a packet; `number` is command_no << 8 | packet_no. Without a `seal`, the packets that come first win."""
        opened, finished = self.open, self.finished
        if opened:
            self._expire(at, done, rules)
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > at:
                break
            del finished[oldest]
        packet_no = number & 0xFF
        slot = (params & (COMMAND_BITS if params & SEALED else COUNTER_BITS)) << 8 | number >> 8
        partial = opened.get(slot)
        is_whole = params & LAST and not packet_no and len(data) <= rules.command_bytes_max
        if partial is None or (is_whole and partial.sealed is not None):
            memory = finished.get(slot)
            if memory is not None and self._is_known(memory, params, packet_no, data):
                return
            if is_whole:
                self._remember(slot, FinishedPackets(True, at, {0: _crc(data) ^ params}))
                bits = params & COMMAND_BITS
                done.append(FinishedCommand(seq, at, node, bits, slot & 0xFF, 1, 0, at, at, COMPLETE, data))
                return
            if rules.require_seal and not params & (SEALED | TO_DEVICE) and seal is not None and seal.has_key:
                bits, command_no = params & COMMAND_BITS, slot & 0xFF
                done.append(FinishedCommand(seq, at, node, bits, command_no, 1, 0, at, at, REFUSED, reason="unsealed"))
                return
            if len(opened) >= rules.assembling_max:
                self._end(next(iter(opened)), REFUSED, seq, at, done, "assembling_per_device_max")
            partial = opened[slot] = PartialCommand(params & COMMAND_BITS, seq, at, node)
            partial.sealed = Alternatives() if params & SEALED and seal is not None and seal.has_key else None
        self._add_to(slot, partial, params, packet_no, seq, at, data, done, rules, seal)
        while self.size > rules.assembling_bytes_max and opened:
            self._end(next(iter(opened)), REFUSED, seq, at, done, "assembling_bytes_max")

    def _add_to(
        self,
        slot: int,
        partial: PartialCommand,
        params: int,
        packet_no: int,
        seq: int,
        at: int,
        data: bytes,
        done: list[FinishedCommand],
        rules: Rules,
        seal: "Seal | None",
    ) -> None:
        held = partial.held_bytes
        if partial.sealed is None:
            add_packet(partial, params, packet_no, data, _crc(data) ^ params)
            self.size += partial.size - held
            if partial.size > rules.command_bytes_max:
                self._end(slot, REFUSED, seq, at, done, "command_bytes_max")
            elif partial.last is not None and len(partial.parts) == partial.last + 1:
                self._end(slot, COMPLETE, seq, at, done)
            return
        is_new = partial.sealed.add(packet_no, params, data)
        self.size += partial.held_bytes - held
        if is_new and seal is not None:
            self._try_seals(slot, partial, partial.sealed, packet_no, seq, at, done, rules, seal)

    def _try_seals(
        self,
        slot: int,
        partial: PartialCommand,
        sealed: Alternatives,
        packet_no: int,
        seq: int,
        at: int,
        done: list[FinishedCommand],
        rules: Rules,
        seal: "Seal",
    ) -> None:
        """Try the selections that this packet completes. The one whose seal is valid ends the command.

        One that is not valid is reported once, to be refused; the packets stay, because a genuine one may be missing.
        """
        for selection in sealed.selections(packet_no):
            data = b"".join([piece for _, piece in selection])
            is_too_long = len(data) > rules.command_bytes_max
            is_valid = not is_too_long and seal.is_valid(slot & 0xFF, data)
            if is_valid:
                del self.open[slot]
                self.size -= sealed.size
                marks = {number: _crc(piece) ^ params for number, (params, piece) in enumerate(selection)}
                self._remember(slot, FinishedPackets(True, at, marks))
            elif sealed.offered:
                continue
            state, reason = (REFUSED, "command_bytes_max") if is_too_long else (COMPLETE, "")
            content = b"" if is_too_long else data
            done.append(_finished(partial, slot, seq, at, at, state, content, reason, packets=len(selection)))
            if is_valid:
                return
            sealed.offered = True

    def expire(self, clock_us: int, rules: Rules = RULES) -> list[FinishedCommand]:
        """Finish the commands whose time is over."""
        done: list[FinishedCommand] = []
        self._expire(clock_us, done, rules)
        return done

    def give_up(self, slot: int, reason: str) -> list[FinishedCommand]:
        """Finish an open command to make room for others."""
        partial, done = self.open[slot], list[FinishedCommand]()
        self._end(slot, REFUSED, partial.first_seq, partial.first_at, done, reason)
        return done

    def accept(self, device_time: int, done: FinishedCommand, rules: Rules) -> bool:
        """Return whether this sealed command is not a replay."""
        if self.replays is None:
            self.replays = Replays()
        return self.replays.take(device_time, done.data, done.done_at / 1_000_000, rules.replay_window_s)

    def due_us(self, rules: Rules) -> int:
        """Return when the oldest command expires; without one, when nothing here can matter any more."""
        if self.open:
            return min(partial.first_at for partial in self.open.values()) + rules.timeout_us
        if self.finished:
            return max(memory.done_at for memory in self.finished.values()) + rules.timeout_us
        return _NEVER_US

    def forget(self, sure_us: int, rules: Rules) -> bool:
        """Drop what cannot matter any more; return whether anything is left."""
        finished = self.finished
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > sure_us:
                return True
            del finished[oldest]
        return bool(self.open) or self.replays is not None

    def waiting(self, clock_us: int, rules: Rules) -> Iterator[tuple[int, PartialCommand, bool]]:
        """Yield the open commands, and whether their time is over."""
        for slot, partial in self.open.items():
            if partial.offered:
                continue
            yield slot, partial, partial.first_at + rules.timeout_us <= clock_us

    def _expire(self, now_us: int, done: list[FinishedCommand], rules: Rules) -> None:
        opened = self.open
        while opened:
            slot = next(iter(opened))
            partial = opened[slot]
            deadline = partial.first_at + rules.timeout_us
            if deadline > now_us:
                return
            self._end(slot, EXPIRED, partial.first_seq, deadline, done)

    def _is_known(self, memory: FinishedPackets, params: int, packet_no: int, data: bytes) -> bool:
        """Return whether the packet belongs to a finished command."""
        mark = memory.fingerprints.get(packet_no)
        if mark is not None and mark == _crc(data) ^ params:
            self.repeats += 1
            return True
        if not memory.complete and packet_no and not params & SEALED:  # a forged packet must not block a sealed command
            self.late += 1
            return True
        return False

    def _end(self, slot: int, state: str, seq: int, at: int, done: list[FinishedCommand], reason: str = "") -> None:
        partial = self.open.pop(slot)
        self.size -= partial.held_bytes
        complete = state == COMPLETE
        self._remember(slot, FinishedPackets(complete, at, partial.marks))
        if not partial.offered:
            data = join(partial.parts) if complete else b""
            settled_at = partial.first_at if state == EXPIRED else at
            done.append(_finished(partial, slot, seq, settled_at, at, state, data, reason, packets=partial.packets))

    def _remember(self, slot: int, memory: FinishedPackets) -> None:
        finished = self.finished
        finished.pop(slot, None)
        if len(finished) >= APOSTOL_FINISHED_PER_DEVICE_MAX:
            del finished[next(iter(finished))]
        finished[slot] = memory


class Seal:
    """The key of one device, looked up when it is first needed."""

    __slots__ = ("_device", "_key", "_key_of", "_looked_up", "_serial")

    def __init__(self, key_of: Callable[[str], bytes | None], serial: str, device: tuple[int, str]) -> None:
        """`device` is type and serial as the packets have them: a broadcast has no serial."""
        self._key_of = key_of
        self._serial = serial
        self._device = device
        self._key: bytes | None = None
        self._looked_up = False

    @property
    def key(self) -> bytes | None:
        if not self._looked_up:
            self._key, self._looked_up = self._key_of(self._serial), True
        return self._key

    @property
    def has_key(self) -> bool:
        return self.key is not None

    def is_valid(self, command_no: int, sealed: bytes) -> bool:
        """Return whether a whole command is genuine."""
        if self.key is None:
            return False
        try:
            unseal(sealed, self.key, associated_data(*self._device, command_no))
        except SealError:
            return False
        return True


def _finished(
    partial: PartialCommand,
    slot: int,
    seq: int,
    at: int,
    done_at: int,
    state: str,
    data: bytes,
    reason: str,
    *,
    packets: int,
) -> FinishedCommand:
    return FinishedCommand(
        seq,
        at,
        partial.node,
        partial.params,
        slot & 0xFF,
        packets,
        partial.repeated,
        partial.first_at,
        done_at,
        state,
        data,
        reason,
    )


def new_assembly() -> DeviceAssembly:
    return DeviceAssembly()


_unpack: Final = msgpack.Decoder(DeviceAssembly).decode
_pack: Final = msgpack.Encoder().encode


def unpack(state: bytes) -> DeviceAssembly:
    assembly = _unpack(state)
    return assembly if assembly.version == _VERSION else _upgrade(assembly)


def _upgrade(assembly: DeviceAssembly) -> DeviceAssembly:
    """Upgrade a state of version 0, whose slots had no bits for zlib and the seal."""
    opened = {}
    for slot, partial in assembly.open.items():
        opened[key_bits(partial.params) << 8 | slot & 0xFF] = partial
    assembly.open = opened
    for slot, memory in list(assembly.finished.items()):
        for bits in (SEALED, SEALED | ZIPPED):
            assembly.finished[slot | bits << 8] = memory
    return assembly


def pack(assembly: DeviceAssembly) -> bytes:
    assembly.version = _VERSION
    assembly.repeats = assembly.late = 0
    return _pack(assembly)


def counts_of(assembly: DeviceAssembly) -> dict[str, int]:
    return {"packets_repeated": assembly.repeats, "packets_late": assembly.late}


def seal_of(key_of: KeyOf, address: DeviceAddress) -> Seal:
    return Seal(key_of, address.serial, (address.device_type, address.sent_serial))


def is_response(params: int) -> bool:
    return params & ANSWER != 0


def decode_packets(frames: Any) -> tuple[Any, Any]:
    from wirelake.protocols.apostol import columns  # noqa: PLC0415 (needs Numba, which only the pipeline has)

    return columns.parse_packets(frames)


def packet_params(packets: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 (with the above)
    import pyarrow.compute as pc  # noqa: PLC0415

    params = None
    for name, bit in _BITS:
        bits = pc.multiply(packets[name].cast(pa.int32()), bit)
        params = bits if params is None else pc.add(params, bits)
    return params


def read_command(
    address: DeviceAddress, assembly: DeviceAssembly, done: FinishedCommand, key_of: KeyOf, rules: Rules
) -> CommandContent:
    data, params = done.data, done.params
    if rules.require_seal and not params & (SEALED | TO_DEVICE) and key_of(address.serial) is not None:
        raise SealError("unsealed", "this device has a key, and its commands have to be sealed", 0)
    if params & (SEALED | ZIPPED):
        key = key_of(address.serial) if params & SEALED else None
        device_type, serial = address.device_type, address.sent_serial
        data = open_command(data, params, device_type, serial, done.command_no, key, rules.inflated_bytes_max)
    command = parse_command(data, to_device=params & TO_DEVICE != 0)
    if not isinstance(command, DeviceCommand):
        return CommandContent(command.command_type, data=command.data)
    if params & SEALED and rules.require_seal and not assembly.accept(command.time, done, rules):
        raise SealError(REPLAYED, "this sealed command came before, or is too old to tell", 0)
    device_time_us = command.time * 1_000_000 if command.time > TIME_ERROR else None
    content, fields = command.data, None
    readings: tuple[tuple[int, float | None], ...] = ()
    if isinstance(content, Status):
        fields = json.encode({"status": content}).decode()
    elif isinstance(content, tuple):
        fields = json.encode({"readings": content}).decode()
        readings = tuple((each.type, None if isinstance(each.value, bytes) else each.value) for each in content)
    return CommandContent(
        command.command_type, command.error, device_time_us, data[_DEVICE_HEAD_BYTES:], fields, readings
    )
