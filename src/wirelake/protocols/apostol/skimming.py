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

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from struct import Struct as Layout
from typing import Final, Generic, TypeVar

from fastcrc.crc16 import modbus

from wirelake.limits import APOSTOL_SKIMMED_MAX, APOSTOL_SKIMMED_MIN
from wirelake.protocols.apostol.assembly import Assembler
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.apostol.opcodes import FIRST, LAST, VERSION

PARAMS: Final = FIRST | LAST
_PLAIN: Final = bytes((VERSION, PARAMS))
_LONG: Final = 0x80  # in the first byte of a length: a second one follows
_HEAD_BYTES: Final = 4  # version, params, device_type, n
_END_BYTES: Final = 4  # command_no, packet_no and crc
_NUMBER_MASKS: Final = [
    number | (modbus(bytes((number, 0))) ^ modbus(bytes(2))) << 16 for number in range(256)
]  # what a receipt's last four bytes are changed by


class Reports:
    """One device of one type: what is needed to know its reports, and to answer them."""

    __slots__ = (
        "assembler",
        "device_type",
        "head",
        "memories",
        "open",
        "purge_s",
        "receipt_bytes",
        "receipt_end",
        "receipt_start",
    )

    def __init__(self, device_type: int, serial: str, assembler: Assembler) -> None:
        name = serial.encode()
        self.device_type = device_type
        self.head = _PLAIN + bytes((device_type, len(name))) + name
        self.open = assembler.open  # while there are some, every packet is read
        receipt = receipt_for(Packet(VERSION, PARAMS, device_type, serial, 0, 0, b"")).encode()
        self.receipt_bytes = len(receipt)
        self.receipt_start = receipt[:-_END_BYTES]
        self.receipt_end = int.from_bytes(receipt[-_END_BYTES:], "little")
        self.assembler = assembler
        self.memories = assembler.finished.of((device_type, serial))
        self.purge_s = 0.0  # when to look for memories whose time is over


Each = TypeVar("Each", bound=Reports)


class Run(Generic[Each]):
    """Reports that follow each other. `of`, `numbers` and `contents` have one item for each frame."""

    __slots__ = ("contents", "frames", "numbers", "of")

    def __init__(self, frames: tuple[bytes, ...], of: list[Each], numbers: list[int], contents: list[bytes]) -> None:
        self.frames = frames
        self.of = of
        self.numbers = numbers
        self.contents = contents

    def receipts(self) -> tuple[bytes, ...]:
        masks, size = _NUMBER_MASKS, _END_BYTES
        return tuple(
            [
                reports.receipt_start + (reports.receipt_end ^ masks[number]).to_bytes(size, "little")
                for reports, number in zip(self.of, self.numbers, strict=True)
            ]
        )

    def finish(self, now_s: float) -> list[bool]:
        """These are done with; for each, whether it is none that was before. The same as `Assembler.add` does."""
        fresh: list[bool] = []
        add = fresh.append
        bounds = self.of[0].assembler.bounds
        over_s, device_max = now_s - bounds.timeout_s, self.of[0].assembler.finished.device_max
        for reports, number, content in zip(self.of, self.numbers, self.contents, strict=True):
            memories = reports.memories
            if now_s >= reports.purge_s:
                reports.assembler.finished.purge(memories, now_s)
                reports.purge_s = now_s + bounds.timeout_s
            before = memories.get(number)
            if before is not None:
                known = before[0] if isinstance(before[0], int) else before[0].get(0)
                if known == hash(content) ^ PARAMS and before[1] > over_s:
                    reports.assembler.duplicates += 1
                    add(False)
                    continue
                del memories[number]
            else:
                if len(memories) >= device_max:
                    reports.assembler.finished.make_room(memories)
                reports.assembler.finished.count += 1
            memories[number] = (hash(content) ^ PARAMS, now_s, True)
            add(True)
        return fresh


def skim(frames: Sequence[bytes], start: int, reach: int, known: Mapping[bytes, Each]) -> Run[Each] | None:
    """The run of reports of known devices from `start` on, as long as they have the same length; None if there is none.

    Looks at `reach` frames at most, which are as the splitter cuts them.
    """
    first = frames[start]
    at = 1 if first[0] < _LONG else 2
    if first[at : at + 2] != _PLAIN:
        return None
    size, serial_bytes = len(first), first[at + 3]
    data_bytes = size - at - _HEAD_BYTES - serial_bytes - _END_BYTES
    if data_bytes < 0 or first[at : at + _HEAD_BYTES + serial_bytes] not in known:
        return None
    alike = tuple(frames[start : start + reach])
    if set(map(len, alike)) != {size}:
        alike = tuple(takewhile(lambda frame: len(frame) == size, alike))
    of: list[Each] = []
    numbers: list[int] = []
    contents: list[bytes] = []
    find = known.get
    for head, number, packet_no, content in _layout(at, serial_bytes, data_bytes).iter_unpack(b"".join(alike)):
        reports = find(head)
        if reports is None or packet_no or reports.open:
            break
        of.append(reports)
        numbers.append(number)
        contents.append(content)
    crcs = list(map(modbus, islice(alike, len(of))))
    good = len(of)
    if any(crcs):
        good = next(place for place, crc in enumerate(crcs) if crc)
        del of[good:], numbers[good:], contents[good:]
    return Run(alike[:good], of, numbers, contents) if good else None


def next_reach(reach: int, taken: int, there: int) -> int:
    """How many frames to look at next time, after so many of so many were taken: looking in vain must stay cheap."""
    if taken < min(reach, there):
        return APOSTOL_SKIMMED_MIN
    return min(reach * 2, APOSTOL_SKIMMED_MAX) if taken == reach else reach


@lru_cache(maxsize=1024)
def _layout(at: int, serial_bytes: int, data_bytes: int) -> Layout:
    return Layout(f"{at}x{_HEAD_BYTES + serial_bytes}sBB{data_bytes}s2x")
