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

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct as Layout
from typing import Final, Generic, TypeVar

from fastcrc.crc16 import modbus

from wirelake.limits import APOSTOL_SKIMMED_MAX
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
        "_assembler",
        "_base",
        "_memories",
        "_memories_max",
        "_prefix",
        "_purge_s",
        "_timeout_s",
        "device_type",
        "head",
        "open",
        "receipt_bytes",
    )

    def __init__(self, device_type: int, serial: str, assembler: Assembler) -> None:
        name = serial.encode()
        self.device_type = device_type
        self.head = _PLAIN + bytes((device_type, len(name))) + name
        self.open = assembler.open  # while there are some, every packet is read
        receipt = receipt_for(Packet(VERSION, PARAMS, device_type, serial, 0, 0, b"")).encode()
        self._prefix, self._base = receipt[:-_END_BYTES], int.from_bytes(receipt[-_END_BYTES:], "little")
        self.receipt_bytes = len(receipt)
        self._assembler = assembler
        self._memories = assembler.finished.of((device_type, serial))
        self._memories_max = assembler.finished.device_max
        self._timeout_s = assembler.bounds.timeout_s
        self._purge_s = 0.0

    def receipt(self, number: int) -> bytes:
        return self._prefix + (self._base ^ _NUMBER_MASKS[number]).to_bytes(_END_BYTES, "little")

    def finish(self, number: int, data: bytes, now_s: float) -> bool:
        """The report is done with; False where it was before, and this is a repeat."""
        memories = self._memories
        if now_s >= self._purge_s:
            self._assembler.finished.purge(memories, now_s)
            self._purge_s = now_s + self._timeout_s
        print_ = hash(data) ^ PARAMS
        before = memories.get(number)
        if before is not None:
            known = before[0] if isinstance(before[0], int) else before[0].get(0)
            if known == print_ and before[1] + self._timeout_s > now_s:
                self._assembler.duplicates += 1
                return False
            del memories[number]
        elif len(memories) >= self._memories_max:
            del memories[next(iter(memories))]
        else:
            self._assembler.finished.count += 1
        memories[number] = (print_, now_s, True)
        return True


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
        return tuple([reports.receipt(number) for reports, number in zip(self.of, self.numbers, strict=True)])

    def finish(self, now_s: float) -> list[bool]:
        """For each report, whether it is none that came before."""
        return [
            reports.finish(number, content, now_s)
            for reports, number, content in zip(self.of, self.numbers, self.contents, strict=True)
        ]


def skim(frames: Sequence[bytes], start: int, known: Mapping[bytes, Each]) -> Run[Each] | None:
    """The run of reports of known devices from `start` on, as long as they have the same length; None if there is none.

    Frames are as the splitter cuts them.
    """
    first = frames[start]
    at = 1 if first[0] < _LONG else 2
    if first[at : at + 2] != _PLAIN:
        return None
    size, serial_bytes = len(first), first[at + 3]
    data_bytes = size - at - _HEAD_BYTES - serial_bytes - _END_BYTES
    if data_bytes < 0 or first[at : at + _HEAD_BYTES + serial_bytes] not in known:
        return None
    alike = tuple(_of_size(frames, start, size))
    of: list[Each] = []
    numbers: list[int] = []
    contents: list[bytes] = []
    for head, number, packet_no, content in _layout(at, serial_bytes, data_bytes).iter_unpack(b"".join(alike)):
        reports = known.get(head)
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


def _of_size(frames: Sequence[bytes], start: int, size: int) -> Iterator[bytes]:
    for frame in islice(frames, start, start + APOSTOL_SKIMMED_MAX):
        if len(frame) != size:
            return
        yield frame


@lru_cache(maxsize=1024)
def _layout(at: int, serial_bytes: int, data_bytes: int) -> Layout:
    return Layout(f"{at}x{_HEAD_BYTES + serial_bytes}sBB{data_bytes}s2x")
