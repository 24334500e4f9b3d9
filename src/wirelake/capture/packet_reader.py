"""Read the packets of a pcap or pcapng file, one by one, as they were on their link."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dpkt import UnpackError, pcap, pcapng

from wirelake.errors import InputError
from wirelake.limits import CAPTURE_PACKET_BYTES_MAX

_PCAPNG: Final = struct.pack(">I", pcapng.PCAPNG_BT_SHB)  # the same in both byte orders
_NANOSECONDS: Final = {pcap.TCPDUMP_MAGIC_NANO, pcap.PMUDPCT_MAGIC_NANO}
_LITTLE: Final = {pcap.PMUDPCT_MAGIC, pcap.PMUDPCT_MAGIC_NANO, pcap.PACPDOM_MAGIC}
_LINK_MASK: Final = 0xFFFF  # above are flags about checksums of the link
_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd", b"BZ": "bzip2", b"\xfd7": "xz"}
_US: Final = 1_000_000
_PACKET_BLOCKS: Final = {pcapng.PCAPNG_BT_EPB, pcapng.PCAPNG_BT_PB}


class LinkPacket(NamedTuple):
    """A packet as captured, with its link type."""

    at_us: int
    link: int
    data: bytes


class _Interface(NamedTuple):
    link: int
    ticks_per_s: int
    offset_s: int


class CaptureReader:
    """Iterate over the packets of a file. Afterwards, `skipped` says what was left out, and why."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.skipped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[LinkPacket]:
        try:
            with self._path.open("rb") as file:
                start = file.read(4)
                file.seek(0)
                if start == _PCAPNG:
                    yield from _PcapngBlocks(file, self._path, self.skipped)
                else:
                    yield from self._pcap(file)
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror or error}") from error

    def _pcap(self, file: BinaryIO) -> Iterator[LinkPacket]:
        raw = file.read(pcap.FileHdr.__hdr_len__)
        magic = int.from_bytes(raw[:4])
        if magic not in pcap.MAGIC_TO_PKT_HDR or len(raw) < pcap.FileHdr.__hdr_len__:
            packed = _COMPRESSED.get(raw[:2])
            hint = f": it looks compressed; unpack it first ({packed})" if packed else ""
            raise InputError(f"{self._path} is no pcap or pcapng file{hint}")
        head = pcap.LEFileHdr(raw) if magic in _LITTLE else pcap.FileHdr(raw)
        header = pcap.MAGIC_TO_PKT_HDR[magic]
        unit = 1000 if magic in _NANOSECONDS else 1
        link = head.linktype & _LINK_MASK
        while raw := file.read(header.__hdr_len__):
            if len(raw) < header.__hdr_len__:
                self.skipped["file ends inside a packet"] += 1
                return
            found = header(raw)
            if found.caplen > CAPTURE_PACKET_BYTES_MAX:
                raise InputError(
                    f"{self._path}: byte {file.tell()}: a packet of {found.caplen} bytes is over the limit of "
                    f"{CAPTURE_PACKET_BYTES_MAX}: the file is damaged"
                )
            data = file.read(found.caplen)
            if len(data) < found.caplen:
                self.skipped["file ends inside a packet"] += 1
                return
            yield LinkPacket(found.tv_sec * _US + found.tv_usec // unit, link, data)


class _PcapngBlocks:
    """Read the blocks of a pcapng file. A section has its own byte order and interfaces, these their own clocks."""

    def __init__(self, file: BinaryIO, path: Path, skipped: Counter[str]) -> None:
        self._file = file
        self._path = path
        self._skipped = skipped
        self._order = "<"
        self._interfaces: list[_Interface] = []

    def __iter__(self) -> Iterator[LinkPacket]:
        while (start := self._file.read(8)) and (block := self._rest(start)):
            kind = struct.unpack_from(f"{self._order}I", block)[0]
            try:
                if kind == pcapng.PCAPNG_BT_IDB:
                    self._interfaces.append(self._interface(block))
                elif kind in _PACKET_BLOCKS:
                    yield from self._packet(kind, block)
                elif kind == pcapng.PCAPNG_BT_SPB:
                    self._skipped["packets without a time"] += 1
            except (UnpackError, UnicodeDecodeError, struct.error) as error:
                at = self._file.tell() - len(block)
                raise InputError(f"{self._path}: byte {at}: a damaged block of pcapng: {error}") from error

    def _rest(self, start: bytes) -> bytes:
        """Return the whole block; b"" if the file ends before."""
        if start[:4] == _PCAPNG:
            start += self._file.read(4)
            self._order = "<" if start[8:] == struct.pack("<I", pcapng.BYTE_ORDER_MAGIC) else ">"
            self._interfaces = []
        size = struct.unpack_from(f"{self._order}I", start, 4)[0] if len(start) >= 8 else 0
        if len(start) >= 8 and not len(start) <= size <= CAPTURE_PACKET_BYTES_MAX:
            at = self._file.tell() - len(start)
            raise InputError(f"{self._path}: byte {at}: a block of {size} bytes: the file is damaged")
        block = start + self._file.read(max(0, size - len(start)))
        if len(block) < 8 or len(block) < size:
            self._skipped["file ends inside a packet"] += 1
            return b""
        return block

    def _interface(self, block: bytes) -> _Interface:
        kind = pcapng.InterfaceDescriptionBlockLE if self._order == "<" else pcapng.InterfaceDescriptionBlock
        found = kind(block)
        ticks_per_s, offset_s = _US, 0
        for option in found.opts:
            if option.code == pcapng.PCAPNG_OPT_IF_TSRESOL and option.data:
                exponent = option.data[0]
                ticks_per_s = 2 ** (exponent & 0x7F) if exponent & 0x80 else 10**exponent
            elif option.code == pcapng.PCAPNG_OPT_IF_TSOFFSET and len(option.data) == 8:
                offset_s = struct.unpack(f"{self._order}q", option.data)[0]
        return _Interface(found.linktype, ticks_per_s, offset_s)

    def _packet(self, kind: int, block: bytes) -> Iterator[LinkPacket]:
        if kind == pcapng.PCAPNG_BT_PB:
            found = (pcapng.PacketBlockLE if self._order == "<" else pcapng.PacketBlock)(block)
        else:
            found = (pcapng.EnhancedPacketBlockLE if self._order == "<" else pcapng.EnhancedPacketBlock)(block)
        if found.iface_id >= len(self._interfaces):
            self._skipped["packets of an interface that is not described"] += 1
            return
        link, ticks_per_s, offset_s = self._interfaces[found.iface_id]
        ticks = found.ts_high << 32 | found.ts_low
        yield LinkPacket(ticks * _US // ticks_per_s + offset_s * _US, link, found.pkt_data)
