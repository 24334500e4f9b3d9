"""The packets of one device in one direction, in the order of the log: which commands they make.

The rules are those of the gateway's own assembly (`protocols/apostol/assembly.py`), with event time for its clock; the
difference is that this one is made to be put away between two batches. So what is kept to know a packet again is a
CRC of it, not Python's hash, which is another one in every process.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from fastcrc import crc64
from msgspec import Struct, field, msgpack

from wirelake.errors import SealError
from wirelake.protocols.apostol import crypto
from wirelake.protocols.apostol.alternatives import Alternatives
from wirelake.protocols.apostol.assembly import key_bits
from wirelake.protocols.apostol.envelope import join
from wirelake.protocols.apostol.limits import (
    APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_FINISHED_PER_DEVICE_MAX,
    APOSTOL_INFLATED_BYTES_MAX,
    APOSTOL_REPLAY_WINDOW_S,
)
from wirelake.protocols.apostol.opcodes import ANSWER, COMMAND_BITS, LAST, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.replays import Replays

COMPLETE: Final = "complete"
EXPIRED: Final = "expired"
REFUSED: Final = "refused"
_COUNTER: Final = TO_DEVICE | ANSWER  # each has command numbers of its own
_VERSION: Final = 1  # of what is put away
_NEVER_US: Final = 2**62
_crc = crc64.xz


class Rules(Struct, frozen=True):
    """What the gateway judges commands by, where that is a setting."""

    timeout_us: int = int(APOSTOL_ASSEMBLY_S * 1_000_000)
    command_bytes_max: int = APOSTOL_COMMAND_BYTES_MAX
    inflated_bytes_max: int = APOSTOL_INFLATED_BYTES_MAX
    assembling_max: int = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of one device
    require_seal: bool = False  # of devices that have a key
    replay_window_s: float = APOSTOL_REPLAY_WINDOW_S  # of their sealed commands

    @property
    def assembling_bytes_max(self) -> int:
        """Of one device's open commands together."""
        return max(APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX, self.command_bytes_max)


RULES: Final = Rules()


class Partial(Struct, array_like=True, gc=False):
    """A command of which not all packets are here."""

    params: int
    first_seq: int
    first_at: int
    node: str
    parts: dict[int, bytes] = field(default_factory=dict)
    prints: dict[int, int] = field(default_factory=dict)
    last: int | None = None
    size: int = 0
    repeats: int = 0
    conflicts: int = 0
    sealed: Alternatives | None = None  # instead of parts, prints, last and size

    @property
    def held_bytes(self) -> int:
        return self.size if self.sealed is None else self.sealed.size

    @property
    def packets(self) -> int:
        return len(self.parts) if self.sealed is None else len(self.sealed.pieces)

    @property
    def repeated(self) -> int:
        return self.repeats if self.sealed is None else self.sealed.repeats

    @property
    def offered(self) -> bool:
        """Whether it was told already that it cannot be read."""
        return self.sealed is not None and self.sealed.offered

    @property
    def marks(self) -> dict[int, int]:
        """What its packets are known by."""
        if self.sealed is None:
            return self.prints
        return {number: _crc(pieces[-1][1]) ^ pieces[-1][0] for number, pieces in self.sealed.pieces.items()}

    def add(self, params: int, number: int, data: bytes) -> None:
        mark = _crc(data) ^ params
        if number in self.parts:
            if self.prints[number] == mark:
                self.repeats += 1
            else:
                self.conflicts += 1
            return
        is_last = params & LAST != 0
        beyond = self.last is not None and (is_last or number > self.last)
        too_early = is_last and bool(self.parts) and max(self.parts) > number
        if beyond or too_early or params & COMMAND_BITS != self.params:
            self.conflicts += 1
            return
        if is_last:
            self.last = number
        self.parts[number] = data
        self.prints[number] = mark
        self.size += len(data)


class Memory(Struct, array_like=True, gc=False):
    """What is kept of a finished command: enough to know its packets again."""

    complete: bool
    done_at: int
    prints: dict[int, int]


class Done(Struct, gc=False):
    """A command that is done with. `seq` and `at` are those of the packet that did it; of the first, where none did."""

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


class Assembly(Struct, array_like=True):
    """Commands by slot: the bits that tell them apart, and the number."""

    open: dict[int, Partial] = field(default_factory=dict)
    finished: dict[int, Memory] = field(default_factory=dict)  # the oldest first
    size: int = 0  # bytes of all open ones
    repeats: int = 0  # packets of finished commands that came again, since the state was unpacked
    late: int = 0  # packets of commands that were given up
    replays: Replays | None = None  # what is known of sealed commands, where a seal is required
    version: int = 0

    def add(
        self,
        seq: int,
        at: int,
        node: str,
        params: int,
        number: int,
        data: bytes,
        done: list[Done],
        rules: Rules = RULES,
        seal: "Seal | None" = None,
    ) -> None:
        """`number` is command_no << 8 | packet_no. `seal` knows the key of the device; without one, what comes first is
        taken.
        """
        opened, finished = self.open, self.finished
        if opened:
            self._expire(at, done, rules)
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > at:
                break
            del finished[oldest]
        packet_no = number & 0xFF
        slot = (params & (COMMAND_BITS if params & SEALED else _COUNTER)) << 8 | number >> 8
        partial = opened.get(slot)
        is_whole = params & LAST and not packet_no and len(data) <= rules.command_bytes_max
        if partial is None or (is_whole and partial.sealed is not None):
            memory = finished.get(slot)
            if memory is not None and self._is_known(memory, params, packet_no, data):
                return
            if is_whole:
                self._remember(slot, Memory(True, at, {0: _crc(data) ^ params}))
                done.append(Done(seq, at, node, params & COMMAND_BITS, slot & 0xFF, 1, 0, at, at, COMPLETE, data))
                return
            if rules.require_seal and not params & (SEALED | TO_DEVICE) and seal is not None and seal.has_key:
                bits, command_no = params & COMMAND_BITS, slot & 0xFF
                done.append(Done(seq, at, node, bits, command_no, 1, 0, at, at, REFUSED, reason="unsealed"))
                return
            if len(opened) >= rules.assembling_max:
                self._end(next(iter(opened)), REFUSED, seq, at, done, "assembling_per_device_max")
            partial = opened[slot] = Partial(params & COMMAND_BITS, seq, at, node)
            partial.sealed = Alternatives() if params & SEALED and seal is not None and seal.has_key else None
        self._add_to(slot, partial, params, packet_no, seq, at, data, done, rules, seal)
        while self.size > rules.assembling_bytes_max and opened:
            self._end(next(iter(opened)), REFUSED, seq, at, done, "assembling_bytes_max")

    def _add_to(
        self,
        slot: int,
        partial: Partial,
        params: int,
        packet_no: int,
        seq: int,
        at: int,
        data: bytes,
        done: list[Done],
        rules: Rules,
        seal: "Seal | None",
    ) -> None:
        held = partial.held_bytes
        if partial.sealed is None:
            partial.add(params, packet_no, data)
            self.size += partial.size - held
            if partial.size > rules.command_bytes_max:
                self._end(slot, REFUSED, seq, at, done, "command_bytes_max")
            elif partial.last is not None and len(partial.parts) == partial.last + 1:
                self._end(slot, COMPLETE, seq, at, done)
            return
        is_new = partial.sealed.add(packet_no, params, data)
        self.size += partial.held_bytes - held
        if is_new and seal is not None:
            self._try(slot, partial, partial.sealed, packet_no, seq, at, done, rules, seal)

    def _try(
        self,
        slot: int,
        partial: Partial,
        sealed: Alternatives,
        packet_no: int,
        seq: int,
        at: int,
        done: list[Done],
        rules: Rules,
        seal: "Seal",
    ) -> None:
        """Of the selections that this packet completes, the one whose seal holds ends the command. One that does not
        hold is handed on once, to be refused; the packets stay, because a genuine one may still be missing.
        """
        for selection in sealed.selections(packet_no):
            data = b"".join([piece for _, piece in selection])
            is_too_long = len(data) > rules.command_bytes_max
            holds = not is_too_long and seal.holds(slot & 0xFF, data)
            if holds:
                del self.open[slot]
                self.size -= sealed.size
                marks = {number: _crc(piece) ^ params for number, (params, piece) in enumerate(selection)}
                self._remember(slot, Memory(True, at, marks))
            elif sealed.offered:
                continue
            state, reason = (REFUSED, "command_bytes_max") if is_too_long else (COMPLETE, "")
            kept = b"" if is_too_long else data
            done.append(_done(partial, slot, seq, at, at, state, kept, reason, packets=len(selection)))
            if holds:
                return
            sealed.offered = True

    def overdue(self, clock_us: int, rules: Rules = RULES) -> list[Done]:
        """Commands whose time is over by a clock that no packet of theirs brought."""
        done: list[Done] = []
        self._expire(clock_us, done, rules)
        return done

    def give_up(self, slot: int, reason: str) -> list[Done]:
        """To make room for others: of no packet's doing."""
        partial, done = self.open[slot], list[Done]()
        self._end(slot, REFUSED, partial.first_seq, partial.first_at, done, reason)
        return done

    def take(self, device_time: int, done: Done, rules: Rules) -> bool:
        """Whether this sealed command never came before."""
        if self.replays is None:
            self.replays = Replays()
        return self.replays.take(device_time, done.data, done.done_at / 1_000_000, rules.replay_window_s)

    def due_us(self, rules: Rules) -> int:
        """When its oldest command expires for good; with none, when nothing in it can matter any more."""
        if self.open:
            return min(partial.first_at for partial in self.open.values()) + rules.timeout_us
        if self.finished:
            return max(memory.done_at for memory in self.finished.values()) + rules.timeout_us
        return _NEVER_US

    def forget(self, sure_us: int, rules: Rules) -> bool:
        """What cannot matter any more; answers whether anything is left."""
        finished = self.finished
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > sure_us:
                return True
            del finished[oldest]
        return bool(self.open) or self.replays is not None

    def waiting(self, clock_us: int, rules: Rules) -> Iterator[tuple[int, Partial, bool]]:
        """The open ones, and whether their time is over."""
        for slot, partial in self.open.items():
            if partial.offered:
                continue
            yield slot, partial, partial.first_at + rules.timeout_us <= clock_us

    def _expire(self, now_us: int, done: list[Done], rules: Rules) -> None:
        opened = self.open
        while opened:
            slot = next(iter(opened))
            partial = opened[slot]
            deadline = partial.first_at + rules.timeout_us
            if deadline > now_us:
                return
            self._end(slot, EXPIRED, partial.first_seq, deadline, done)

    def _is_known(self, memory: Memory, params: int, packet_no: int, data: bytes) -> bool:
        """Whether the packet belongs to a command that is done with."""
        mark = memory.prints.get(packet_no)
        if mark is not None and mark == _crc(data) ^ params:
            self.repeats += 1
            return True
        if not memory.complete and packet_no and not params & SEALED:  # forged ones must not stand in its way
            self.late += 1
            return True
        return False

    def _end(self, slot: int, state: str, seq: int, at: int, done: list[Done], reason: str = "") -> None:
        partial = self.open.pop(slot)
        self.size -= partial.held_bytes
        complete = state == COMPLETE
        self._remember(slot, Memory(complete, at, partial.marks))
        if not partial.offered:
            data = join(partial.parts) if complete else b""
            settled_at = partial.first_at if state == EXPIRED else at
            done.append(_done(partial, slot, seq, settled_at, at, state, data, reason, packets=partial.packets))

    def _remember(self, slot: int, memory: Memory) -> None:
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

    def holds(self, command_no: int, sealed: bytes) -> bool:
        """Whether a whole command is genuine."""
        if self.key is None:
            return False
        try:
            crypto.unseal(sealed, self.key, crypto.associated_data(*self._device, command_no))
        except SealError:
            return False
        return True


def _done(
    partial: Partial, slot: int, seq: int, at: int, done_at: int, state: str, data: bytes, reason: str, *, packets: int
) -> Done:
    return Done(
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


_unpack: Final = msgpack.Decoder(Assembly).decode
_pack: Final = msgpack.Encoder().encode


def unpack(state: bytes) -> Assembly:
    assembly = _unpack(state)
    return assembly if assembly.version == _VERSION else _upgraded(assembly)


def _upgraded(assembly: Assembly) -> Assembly:
    """As the version before put it away: its slots had no bits for zlib and the seal."""
    opened = {}
    for slot, partial in assembly.open.items():
        opened[key_bits(partial.params) << 8 | slot & 0xFF] = partial
    assembly.open = opened
    for slot, memory in list(assembly.finished.items()):
        for bits in (SEALED, SEALED | ZIPPED):
            assembly.finished[slot | bits << 8] = memory
    return assembly


def pack(assembly: Assembly) -> bytes:
    assembly.version = _VERSION
    assembly.repeats = assembly.late = 0
    return _pack(assembly)


def counted(assembly: Assembly) -> dict[str, Any]:
    return {"packets_repeated": assembly.repeats, "packets_late": assembly.late}
