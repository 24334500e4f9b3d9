"""The packets of one device in one direction, in the order of the log: which commands they make.

The rules are those of the gateway's own assembly (`protocols/apostol/assembly.py`), with event time for its clock; the
difference is that this one is made to be put away between two batches. So what is kept to know a packet again is a
CRC of it, not Python's hash, which is another one in every process.
"""

from collections.abc import Iterator
from typing import Any, Final

from fastcrc import crc64
from msgspec import Struct, field, msgpack

from wirelake.limits import (
    APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX,
    APOSTOL_ASSEMBLING_PER_DEVICE_MAX,
    APOSTOL_ASSEMBLY_S,
    APOSTOL_COMMAND_BYTES_MAX,
    APOSTOL_FINISHED_PER_DEVICE_MAX,
    APOSTOL_INFLATED_BYTES_MAX,
)
from wirelake.protocols.apostol.envelope import join
from wirelake.protocols.apostol.opcodes import ANSWER, COMMAND_BITS, LAST, TO_DEVICE

COMPLETE: Final = "complete"
EXPIRED: Final = "expired"
REFUSED: Final = "refused"
_COUNTER: Final = TO_DEVICE | ANSWER  # each has command numbers of its own
_crc = crc64.xz


class Rules(Struct, frozen=True):
    """What the gateway judges commands by, where that is a setting."""

    timeout_us: int = int(APOSTOL_ASSEMBLY_S * 1_000_000)
    command_bytes_max: int = APOSTOL_COMMAND_BYTES_MAX
    inflated_bytes_max: int = APOSTOL_INFLATED_BYTES_MAX
    assembling_max: int = APOSTOL_ASSEMBLING_PER_DEVICE_MAX  # commands of one device
    require_seal: bool = False  # of devices that have a key

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
    """Commands by slot: the bits that tell counters apart, and the number."""

    open: dict[int, Partial] = field(default_factory=dict)
    finished: dict[int, Memory] = field(default_factory=dict)  # the oldest first
    size: int = 0  # bytes of all open ones
    repeats: int = 0  # packets of finished commands that came again, since the state was unpacked
    late: int = 0  # packets of commands that were given up

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
    ) -> None:
        """`number` is command_no << 8 | packet_no."""
        opened, finished = self.open, self.finished
        if opened:
            self._expire(at, done, rules)
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > at:
                break
            del finished[oldest]
        packet_no = number & 0xFF
        slot = (params & _COUNTER) << 8 | number >> 8
        partial = opened.get(slot)
        if partial is None:
            memory = finished.get(slot)
            if memory is not None and self._is_known(memory, params, packet_no, data):
                return
            if params & LAST and not packet_no and len(data) <= rules.command_bytes_max:
                self._remember(slot, Memory(True, at, {0: _crc(data) ^ params}))
                done.append(Done(seq, at, node, params & COMMAND_BITS, slot & 0xFF, 1, 0, at, at, COMPLETE, data))
                return
            if len(opened) >= rules.assembling_max:
                done.append(self._end(next(iter(opened)), REFUSED, seq, at, "assembling_per_device_max"))
            partial = opened[slot] = Partial(params & COMMAND_BITS, seq, at, node)
        held = partial.size
        partial.add(params, packet_no, data)
        self.size += partial.size - held
        if partial.size > rules.command_bytes_max:
            done.append(self._end(slot, REFUSED, seq, at, "command_bytes_max"))
        elif partial.last is not None and len(partial.parts) == partial.last + 1:
            done.append(self._end(slot, COMPLETE, seq, at))
        while self.size > rules.assembling_bytes_max and opened:
            done.append(self._end(next(iter(opened)), REFUSED, seq, at, "assembling_bytes_max"))

    def overdue(self, clock_us: int, rules: Rules = RULES) -> list[Done]:
        """Commands whose time is over by a clock that no packet of theirs brought."""
        done: list[Done] = []
        self._expire(clock_us, done, rules)
        return done

    def give_up(self, slot: int, reason: str) -> Done:
        """To make room for others: of no packet's doing."""
        partial = self.open[slot]
        return self._end(slot, REFUSED, partial.first_seq, partial.first_at, reason)

    def forget(self, sure_us: int, rules: Rules) -> bool:
        """What cannot matter any more; answers whether anything is left."""
        finished = self.finished
        while finished:
            oldest = next(iter(finished))
            if finished[oldest].done_at + rules.timeout_us > sure_us:
                return True
            del finished[oldest]
        return bool(self.open)

    def waiting(self, clock_us: int, rules: Rules) -> Iterator[tuple[int, Partial, bool]]:
        """The open ones, and whether their time is over."""
        for slot, partial in self.open.items():
            yield slot, partial, partial.first_at + rules.timeout_us <= clock_us

    def _expire(self, now_us: int, done: list[Done], rules: Rules) -> None:
        opened = self.open
        while opened:
            slot = next(iter(opened))
            partial = opened[slot]
            deadline = partial.first_at + rules.timeout_us
            if deadline > now_us:
                return
            done.append(self._end(slot, EXPIRED, partial.first_seq, deadline))

    def _is_known(self, memory: Memory, params: int, packet_no: int, data: bytes) -> bool:
        """Whether the packet belongs to a command that is done with."""
        mark = memory.prints.get(packet_no)
        if mark is not None and mark == _crc(data) ^ params:
            self.repeats += 1
            return True
        if not memory.complete and packet_no:
            self.late += 1
            return True
        return False

    def _end(self, slot: int, state: str, seq: int, at: int, reason: str = "") -> Done:
        partial = self.open.pop(slot)
        self.size -= partial.size
        complete = state == COMPLETE
        self._remember(slot, Memory(complete, at, partial.prints))
        data = join(partial.parts) if complete else b""
        settled_at = partial.first_at if state == EXPIRED else at
        return Done(
            seq,
            settled_at,
            partial.node,
            partial.params,
            slot & 0xFF,
            len(partial.parts),
            partial.repeats,
            partial.first_at,
            at,
            state,
            data,
            reason,
        )

    def _remember(self, slot: int, memory: Memory) -> None:
        finished = self.finished
        finished.pop(slot, None)
        if len(finished) >= APOSTOL_FINISHED_PER_DEVICE_MAX:
            del finished[next(iter(finished))]
        finished[slot] = memory


_unpack: Final = msgpack.Decoder(Assembly).decode
_pack: Final = msgpack.Encoder().encode


def unpack(state: bytes) -> Assembly:
    return _unpack(state)


def pack(assembly: Assembly) -> bytes:
    assembly.repeats = assembly.late = 0
    return _pack(assembly)


def counted(assembly: Assembly) -> dict[str, Any]:
    return {"packets_repeated": assembly.repeats, "packets_late": assembly.late}
