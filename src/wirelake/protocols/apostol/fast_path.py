"""The fast way for reports: whole plain commands in one packet, of devices that are known, one after the other.

Such packets of one length have everything at the same place, so one pass of `struct` over their joined bytes takes them
all apart. The bytes from version to serial are looked up as they are: what is found there is a device whose reports can
be skimmed, and whatever is not (another version, other params, a device not yet heard) is read the long way.

├────────┬─────────────────────────────────────────────┬────────────┬───────────┬────────┬───────┤
│ length │ version 1, params 3, device_type, n, serial │ command_no │ 0         │ data … │  crc  │   as it comes
│ length │ version 1, params 44, device_type, n, serial│ command_no │ 0         │        │  crc  │   its receipt
└────────┴─────────────────────────────────────────────┴────────────┴───────────┴────────┴───────┘

A CRC is linear: how a receipt's depends on the command_no is the same for every device, and one table says it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import repeat, takewhile
from struct import Struct as Layout
from typing import Final, Generic, TypeVar

from fastcrc.crc16 import modbus

from wirelake.limits import DEVICE_BATCH_PACKETS_MIN
from wirelake.protocols.apostol.assembly import Assembler
from wirelake.protocols.apostol.finished import print_of
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.apostol.limits import APOSTOL_SKIMMED_MAX
from wirelake.protocols.apostol.opcodes import FIRST, LAST, VERSION

PARAMS: Final = FIRST | LAST
_PLAIN: Final = bytes((VERSION, PARAMS))
_LONG: Final = 0x80  # in the first byte of a length: a second one follows
_HEAD_BYTES: Final = 4  # version, params, device_type, n
_END_BYTES: Final = 4  # command_no, packet_no and crc
_TOGETHER: Final = 64  # frames that are taken apart with one call
# What a receipt's crc is changed by, low and high byte, for each command_no.
_CRC_MASKS: Final = [modbus(bytes((number, 0))) ^ modbus(bytes(2)) for number in range(256)]
_CRC_LOW: Final = bytes(mask & 0xFF for mask in _CRC_MASKS)
_CRC_HIGH: Final = bytes(mask >> 8 for mask in _CRC_MASKS)


class Reports:
    """One device of one type: what is needed to know its reports, and to answer them."""

    __slots__ = ("assembler", "device_type", "head", "memories", "open", "purge_s", "receipt")

    def __init__(self, device_type: int, serial: str, assembler: Assembler) -> None:
        name = serial.encode()
        self.device_type = device_type
        self.head = _PLAIN + bytes((device_type, len(name))) + name
        self.open = assembler.open  # while there are some, every packet is read
        self.receipt = receipt_for(Packet(VERSION, PARAMS, device_type, serial, 0, 0, b"")).encode()  # of command_no 0
        self.assembler = assembler
        self.memories = assembler.finished.of((device_type, serial))
        self.purge_s = 0.0  # when to look for memories whose time is over

    def purge(self, now_s: float) -> None:
        if now_s >= self.purge_s:
            self.assembler.finished.purge(self.memories, now_s)
            self.purge_s = now_s + self.assembler.bounds.timeout_s

    def repeated(self, number: int, content: bytes, now_s: float) -> bool:
        """Whether this is the report that is remembered under its number; if not, that one is forgotten."""
        prints, done_s, _ = self.memories[number]
        known = prints if isinstance(prints, int) else prints.get(0)
        if known == print_of(PARAMS, content) and done_s > now_s - self.assembler.bounds.timeout_s:
            self.assembler.duplicates += 1
            return True
        del self.memories[number]
        return False


Each = TypeVar("Each", bound=Reports)


class Run(Generic[Each]):
    """Reports of one length that follow each other.

    `of`, `numbers` and `contents` have one item for each; `joined` are their frames, one behind the other.
    """

    __slots__ = ("contents", "counts", "frame_bytes", "joined", "numbers", "of")

    def __init__(self, joined: bytes, frame_bytes: int, of: list[Each], numbers: bytes, contents: list[bytes]) -> None:
        self.joined = joined
        self.frame_bytes = frame_bytes
        self.of = of
        self.numbers = numbers
        self.contents = contents
        self.counts = Counter(of)

    @property
    def receipt_bytes(self) -> int:
        return len(self.of[0].receipt)  # their serials are of one length too

    def receipts(self) -> bytes:
        """One behind the other: column by column, the bytes in which receipts of a device differ are put in."""
        numbers, size = self.numbers, self.receipt_bytes
        joined = bytearray(b"".join([reports.receipt for reports in self.of]))
        joined[size - 4 :: size] = numbers
        joined[size - 2 :: size] = _xor(joined[size - 2 :: size], numbers.translate(_CRC_LOW))
        joined[size - 1 :: size] = _xor(joined[size - 1 :: size], numbers.translate(_CRC_HIGH))
        return bytes(joined)

    def finish(self, now_s: float) -> list[int]:
        """These are done with. Answers the places of those that were before. The same as `Assembler.add` does."""
        repeats: list[int] = []
        for reports in self.counts:
            reports.purge(now_s)
        device_max = self.of[0].assembler.finished.device_max
        # Their print is the hash itself: see `print_of`.
        memories_of_these = zip(map(hash, self.contents), repeat(now_s), repeat(True))
        places = range(len(self.of))
        for place, reports, number, memory in zip(places, self.of, self.numbers, memories_of_these, strict=True):
            memories = reports.memories
            if number in memories:
                reports.assembler.finished.count -= 1
                if reports.repeated(number, self.contents[place], now_s):
                    repeats.append(place)
                    continue
            elif len(memories) >= device_max:
                reports.assembler.finished.make_room(memories)
            memories[number] = memory
        for reports, count in self.counts.items():
            reports.assembler.finished.count += count
        return repeats

    def forget(self, repeats: Collection[int]) -> None:
        """Undo `finish` for all but these places: what they said could not be passed on, and has to come again."""
        for place, (reports, number) in enumerate(zip(self.of, self.numbers, strict=True)):
            memory = reports.memories.get(number)
            if place not in repeats and memory is not None and memory[0] == hash(self.contents[place]):
                del reports.memories[number]
                reports.assembler.finished.count -= 1


def skim(frames: Sequence[bytes], start: int, reach: int, known: Mapping[bytes, Each]) -> Run[Each] | None:
    """The run of reports of known devices from `start` on, as long as they have the same length; None if there is none.

    Looks at `reach` frames at most, which are as the splitter cuts them.
    """
    first = frames[start]
    at = 1 if first[0] < _LONG else 2
    if first[at : at + 2] != _PLAIN:
        return None
    size, end = len(first), at + _HEAD_BYTES + first[at + 3]
    if end + _END_BYTES > size or first[at:end] not in known:
        return None
    alike = frames[start : start + reach]
    if set(map(len, alike)) != {size}:
        alike = list(takewhile(lambda frame: len(frame) == size, alike))
    joined = b"".join(alike)
    parts = _parts(joined, at, end, size)
    heads = parts[::2]
    try:
        of = list(map(known.__getitem__, heads))
    except KeyError:
        of = list(map(known.__getitem__, takewhile(known.__contains__, heads)))
    packet_nos = joined[end + 1 :: size]
    good = min(len(of), len(packet_nos) - len(packet_nos.lstrip(b"\0")))
    if any(reports.open for reports in set(of)):
        good = min(good, next(place for place, reports in enumerate(of) if reports.open))
    if any(map(modbus, alike)):
        good = min(good, next(place for place, frame in enumerate(alike) if modbus(frame)))
    if not good:
        return None
    if good < len(alike):
        joined, of = joined[: good * size], of[:good]
    return Run(joined, size, of, joined[end::size], parts[1 : 2 * good : 2])


def next_reach(reach: int, taken: int, there: int) -> int:
    """How many frames to look at next time, after so many of so many were taken: looking in vain must stay cheap."""
    if taken < min(reach, there):
        return DEVICE_BATCH_PACKETS_MIN
    return min(reach * 2, APOSTOL_SKIMMED_MAX) if taken == reach else reach


def _parts(joined: bytes, at: int, end: int, size: int) -> list[bytes]:
    """Of each frame what it is known by, and its content."""
    parts: list[bytes] = []
    many, start = _layout(at, end, size, _TOGETHER), 0
    for start in range(0, len(joined) - many.size + 1, many.size):
        parts += many.unpack_from(joined, start)
    left = len(joined) // size % _TOGETHER
    return parts + list(_layout(at, end, size, left).unpack_from(joined, len(joined) - left * size))


@lru_cache(maxsize=1024)
def _layout(at: int, end: int, size: int, frames: int) -> Layout:
    return Layout(f"{at}x{end - at}s2x{size - end - _END_BYTES}s2x" * frames)


def _xor(one: bytearray, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")
