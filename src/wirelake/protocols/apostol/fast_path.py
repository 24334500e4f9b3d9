"""Read reports in batches: runs of packets of known devices that are whole commands, not sealed and not zipped.

Such packets of one length have every field at the same place, so one pass of `struct` over their joined bytes splits
all of them. The bytes from version to serial are the key under which a device whose reports can be batched is found.
Every other packet (another version, other params, a device that sent nothing yet) is decoded one by one.

├────────┬─────────────────────────────────────────────┬────────────┬───────────┬────────┬───────┤
│ length │ version 1, params 3, device_type, n, serial │ command_no │ 0         │ data … │  crc  │   as it arrives
│ length │ version 1, params 44, device_type, n, serial│ command_no │ 0         │        │  crc  │   its receipt
└────────┴─────────────────────────────────────────────┴────────────┴───────────┴────────┴───────┘

A CRC is linear: how that of a receipt depends on the command_no is the same for every device, so one table has it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat, takewhile
from struct import Struct as Layout
from typing import Any, Final

from fastcrc.crc16 import modbus

from wirelake.message import Message
from wirelake.protocols.apostol.constants import FIRST, LAST, VERSION
from wirelake.protocols.apostol.duplicates import fingerprint_of
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.batches import ReportStream, TelemetryBatch, TelemetryReader
from wirelake.protocols.frame import Frame

PARAMS: Final = FIRST | LAST
_PLAIN: Final = bytes((VERSION, PARAMS))
_LONG: Final = 0x80  # in the first byte of a length: a second one follows
_HEAD_BYTES: Final = 4  # version, params, device_type, n
_END_BYTES: Final = 4  # command_no, packet_no and crc
_SPLIT_TOGETHER: Final = 64  # frames that are split with one call
# What is XORed to the crc of the receipt of command_no 0, low and high byte, for each command_no.
_CRC_MASKS: Final = [modbus(bytes((number, 0))) ^ modbus(bytes(2)) for number in range(256)]
_CRC_LOW: Final = bytes(mask & 0xFF for mask in _CRC_MASKS)
_CRC_HIGH: Final = bytes(mask >> 8 for mask in _CRC_MASKS)


class Reports(ReportStream):
    """The reports of one device of one type: how to recognise them, and how to acknowledge them."""

    __slots__ = ("assembler", "device_type", "head", "memories", "open", "purge_s", "receipt", "session")

    def __init__(self, source: Any, session: ServerSession, device_type: int) -> None:
        super().__init__(source)
        serial, assembler = session.serial, session.assembler
        name = serial.encode()
        self.session = session
        self.device_type = device_type
        self.head = _PLAIN + bytes((device_type, len(name))) + name
        self.open = assembler.open  # while there are open commands, every packet is decoded
        self.receipt = receipt_for(Packet(VERSION, PARAMS, device_type, serial, 0, 0, b"")).encode()  # of command_no 0
        self.assembler = assembler
        self.memories = assembler.finished.of_device((device_type, serial))
        self.purge_s = 0.0  # when to forget the commands whose time is over

    def purge(self, now_s: float) -> None:
        """Forget the commands whose time is over, if it is time to look for them."""
        if now_s >= self.purge_s:
            self.assembler.finished.purge(self.memories, now_s)
            self.purge_s = now_s + self.assembler.bounds.timeout_s

    def is_repeat(self, number: int, content: bytes, now_s: float) -> bool:
        """Return whether this is the report that is remembered under its number; if not, forget that one."""
        fingerprints, done_s, _ = self.memories[number]
        known = fingerprints if isinstance(fingerprints, int) else fingerprints.get(0)
        if known == fingerprint_of(PARAMS, content) and done_s > now_s - self.assembler.bounds.timeout_s:
            self.assembler.duplicates += 1
            return True
        del self.memories[number]
        return False


class ReportBatch(TelemetryBatch):
    """Reports of one length. `numbers` and `contents` have one item for each report."""

    __slots__ = ("_repeats", "contents", "numbers")
    streams: Sequence[Reports]

    def __init__(
        self, joined: bytes, frame_bytes: int, streams: Sequence[Reports], numbers: bytes, contents: list[bytes]
    ) -> None:
        super().__init__(joined, frame_bytes, streams, len(streams[0].receipt))  # their serials are of one length too
        self.numbers = numbers
        self.contents = contents
        self._repeats: Collection[int] = ()

    def replies(self) -> bytes:
        """Return the receipts. The bytes in which those of a device differ are written column by column."""
        numbers, size = self.numbers, self.reply_bytes
        joined = bytearray(b"".join([reports.receipt for reports in self.streams]))
        joined[size - 4 :: size] = numbers
        joined[size - 2 :: size] = _xor(joined[size - 2 :: size], numbers.translate(_CRC_LOW))
        joined[size - 1 :: size] = _xor(joined[size - 1 :: size], numbers.translate(_CRC_HIGH))
        return bytes(joined)

    def accept(self, now_s: float) -> list[int]:
        """Do with each report what `Assembler.add` does."""
        repeats: list[int] = []
        counts: Mapping[Any, int] = self.counts
        for reports in counts:
            reports.purge(now_s)
        device_max = self.streams[0].assembler.finished.device_max
        # Their fingerprint is the hash itself: see `fingerprint_of`.
        new_memories = zip(map(hash, self.contents), repeat(now_s), repeat(True))
        places = range(len(self.streams))
        for place, reports, number, memory in zip(places, self.streams, self.numbers, new_memories, strict=True):
            memories = reports.memories
            if number in memories:
                reports.assembler.finished.count -= 1
                if reports.is_repeat(number, self.contents[place], now_s):
                    repeats.append(place)
                    continue
            elif len(memories) >= device_max:
                reports.assembler.finished.evict(memories)
            memories[number] = memory
        for reports, count in counts.items():
            reports.assembler.finished.count += count
            reports.session.on_batch(now_s)
        self._repeats = set(repeats)
        return repeats

    def messages(self, now_s: float) -> Iterator[tuple[ReportStream, Message]]:
        repeats = self._repeats
        each = zip(range(len(self.streams)), self.streams, self.numbers, self.contents, strict=True)
        for place, reports, command_no, content in each:
            if place not in repeats:
                for message in reports.session.report(reports.device_type, command_no, content, now_s):
                    yield reports, message

    def withdraw(self) -> None:
        for place, (reports, number) in enumerate(zip(self.streams, self.numbers, strict=True)):
            memory = reports.memories.get(number)
            if place not in self._repeats and memory is not None and memory[0] == hash(self.contents[place]):
                del reports.memories[number]
                reports.assembler.finished.count -= 1


class ReportReader(TelemetryReader):
    """Finds the devices whose reports can be read in batches by the bytes from version to serial."""

    def __init__(self) -> None:
        self._by_head: dict[bytes, Reports] = {}
        self._by_source: dict[Any, dict[int, Reports]] = {}  # by device type

    def can_add(self, source: Any, frame: Frame) -> bool:
        return (
            isinstance(frame, Packet)
            and frame.params == PARAMS
            and not frame.broadcast
            and frame.device_type not in self._by_source.get(source, ())
        )

    def add(self, source: Any, session: ServerSession, frame: Frame) -> None:
        if isinstance(frame, Packet):
            reports = Reports(source, session, frame.device_type)
            self._by_source.setdefault(source, {})[frame.device_type] = reports
            self._by_head[reports.head] = reports

    def remove(self, source: Any) -> None:
        for reports in self._by_source.pop(source, {}).values():
            self._by_head.pop(reports.head, None)

    def read(self, frames: Sequence[bytes], start: int, frames_max: int) -> ReportBatch | None:
        return report_run(frames, start, frames_max, self._by_head)


def report_run(
    frames: Sequence[bytes], start: int, frames_max: int, known: Mapping[bytes, Reports]
) -> ReportBatch | None:
    """Return the run of reports of known devices from `start` on that have one length; None if there is none.

    `frames` are as the splitter cuts them.
    """
    first = frames[start]
    at = 1 if first[0] < _LONG else 2
    if first[at : at + 2] != _PLAIN:
        return None
    size, end = len(first), at + _HEAD_BYTES + first[at + 3]
    if end + _END_BYTES > size or first[at:end] not in known:
        return None
    alike = frames[start : start + frames_max]
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
    return ReportBatch(joined, size, of, joined[end::size], parts[1 : 2 * good : 2])


def _parts(joined: bytes, at: int, end: int, size: int) -> list[bytes]:
    """Return, of each frame, the bytes from version to serial and the content."""
    parts: list[bytes] = []
    many, start = _layout(at, end, size, _SPLIT_TOGETHER), 0
    for start in range(0, len(joined) - many.size + 1, many.size):
        parts += many.unpack_from(joined, start)
    left = len(joined) // size % _SPLIT_TOGETHER
    return parts + list(_layout(at, end, size, left).unpack_from(joined, len(joined) - left * size))


@lru_cache(maxsize=1024)
def _layout(at: int, end: int, size: int, frames: int) -> Layout:
    return Layout(f"{at}x{end - at}s2x{size - end - _END_BYTES}s2x" * frames)


def _xor(one: bytearray, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")
