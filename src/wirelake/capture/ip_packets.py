"""Find TCP segments and UDP datagrams in packets: link headers, VLAN tags, IPv4, IPv6 and fragments of both."""

import struct
from collections import Counter
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from dpkt import UnpackError, ip, ip6, tcp, udp
from msgspec import Struct

from wirelake.capture.packet_reader import LinkPacket
from wirelake.limits import CAPTURE_FRAGMENT_S, CAPTURE_FRAGMENTED_PACKETS_MAX

HostPort = tuple[str, int]
_ETHERNET: Final = 1
_LOOPBACK: Final = {0, 108}  # BSD and OpenBSD: four bytes with the address family
_RAW: Final = {12, 14, 101, 228, 229}
_COOKED: Final = 113
_COOKED_2: Final = 276
_VLAN_TAGS: Final = {0x8100, 0x88A8, 0x9100}
_IP: Final = {0x0800, 0x86DD}
_FRAGMENT: Final = 0x3FFF  # more fragments, or an offset
_MORE: Final = 0x2000
_FRAGMENT_US: Final = int(CAPTURE_FRAGMENT_S * 1_000_000)
_PACKET_BYTES_MAX: Final = 65_535


class TcpSegment(Struct, frozen=True, gc=False):
    at_us: int
    source: HostPort
    target: HostPort
    seq: int
    flags: int
    data: bytes

    @property
    def syn(self) -> bool:
        return bool(self.flags & tcp.TH_SYN)

    @property
    def ack(self) -> bool:
        return bool(self.flags & tcp.TH_ACK)

    @property
    def fin(self) -> bool:
        return bool(self.flags & tcp.TH_FIN)

    @property
    def rst(self) -> bool:
        return bool(self.flags & tcp.TH_RST)


class UdpDatagram(Struct, frozen=True, gc=False):
    at_us: int
    source: HostPort
    target: HostPort
    data: bytes
    missing_bytes: int = 0  # the capture has only the first bytes of each packet


class IpParser:
    """Parse packets one by one. `skipped` counts those that are neither TCP nor UDP, by reason."""

    def __init__(self, skipped: Counter[str]) -> None:
        self._skipped = skipped
        self._fragments = _FragmentReassembly(skipped)

    def parse(self, packet: LinkPacket) -> TcpSegment | UdpDatagram | None:
        data = _ip_packet(packet.link, packet.data)
        if data is None:
            self._skipped[f"packets of link type {packet.link}"] += 1
            return None
        if not data or data[0] >> 4 not in (4, 6):
            self._skipped["packets that are not IP"] += 1
            return None
        try:
            return self._parse_ip(packet.at_us, data)
        except (UnpackError, struct.error, IndexError):
            self._skipped["damaged packets"] += 1
            return None

    def finish(self) -> None:
        """Count the packets whose fragments are incomplete."""
        self._fragments.finish()

    def _parse_ip(self, at_us: int, data: bytes) -> TcpSegment | UdpDatagram | None:
        if data[0] >> 4 == 4:
            if struct.unpack_from(">H", data, 6)[0] & _FRAGMENT:
                data = self._fragments.add_4(at_us, data)
            found: Any = ip.IP(data) if data else None
        else:
            found = ip6.IP6(data)
            if ip.IP_PROTO_FRAGMENT in found.extension_hdrs:
                data = self._fragments.add_6(at_us, data, found)
                found = ip6.IP6(data) if data else None
        if found is None:
            return None  # the rest of its fragments is to come
        content = found.data
        if not isinstance(content, tcp.TCP | udp.UDP):
            damaged = found.p in (ip.IP_PROTO_TCP, ip.IP_PROTO_UDP)
            self._skipped["damaged packets" if damaged else "packets that are neither TCP nor UDP"] += 1
            return None
        source, target = (_address(found.src), content.sport), (_address(found.dst), content.dport)
        payload = bytes(content.data)
        if isinstance(content, tcp.TCP):
            return TcpSegment(at_us, source, target, content.seq, content.flags, payload)
        size = content.ulen - 8 if content.ulen else len(payload)
        return UdpDatagram(at_us, source, target, payload[: max(0, size)], max(0, size - len(payload)))


def _ip_packet(link: int, data: bytes) -> bytes | None:
    """Return the IP packet; b"" if it is another one, None if the link type is unknown."""
    if link in _RAW:
        return data
    if link in _LOOPBACK:
        return data[4:]
    if link == _COOKED:
        return data[16:] if int.from_bytes(data[14:16]) in _IP else b""
    if link == _COOKED_2:
        return data[20:] if int.from_bytes(data[:2]) in _IP else b""
    if link != _ETHERNET:
        return None
    at = 12
    while int.from_bytes(data[at : at + 2]) in _VLAN_TAGS:
        at += 4
    return data[at + 2 :] if int.from_bytes(data[at : at + 2]) in _IP else b""


@lru_cache(maxsize=4096)
def _address(packed: bytes) -> str:
    return str(ip_address(packed))


_Key = tuple[bytes, bytes, int, int]


class _Fragments(Struct):
    at_us: int
    parts: dict[int, bytes]
    size: int = -1  # of the whole payload, once the last fragment is known


class _FragmentReassembly:
    """Join the fragments of IP packets. Of bytes that overlap, those that arrived first count."""

    def __init__(self, skipped: Counter[str]) -> None:
        self._skipped = skipped
        self._open: dict[_Key, _Fragments] = {}

    def add_4(self, at_us: int, data: bytes) -> bytes:
        """Return the whole packet, or b"" if fragments are missing."""
        head_bytes = (data[0] & 15) * 4
        total, number, field = struct.unpack_from(">HHH", data, 2)
        key = (data[12:16], data[16:20], data[9], number)
        payload = data[head_bytes:total]
        whole = self._add(key, at_us, (field & 0x1FFF) * 8, payload, is_last=not field & _MORE)
        if whole is None:
            return b""
        return struct.pack(">BBHHH", 0x45, data[1], 20 + len(whole), number, 0) + data[8:20] + whole

    def add_6(self, at_us: int, data: bytes, found: Any) -> bytes:
        start = ip6.IP6.__hdr_len__
        for header in found.all_extension_headers:
            start += header.length
            if isinstance(header, ip6.IP6FragmentHeader):
                break
        key = (found.src, found.dst, header.nxt, header.id)
        payload = data[start : ip6.IP6.__hdr_len__ + found.plen]
        whole = self._add(key, at_us, header.frag_off * 8, payload, is_last=not header.m_flag)
        if whole is None:
            return b""
        return data[:4] + struct.pack(">HBB", len(whole), header.nxt, data[7]) + data[8:40] + whole

    def finish(self) -> None:
        self._skipped["packets with missing fragments"] += len(self._open)
        self._open.clear()

    def _add(self, key: _Key, at_us: int, offset: int, payload: bytes, *, is_last: bool) -> bytes | None:
        found = self._open.get(key)
        if found is None or at_us - found.at_us > _FRAGMENT_US:
            self._skipped["packets with missing fragments"] += found is not None
            found = self._open[key] = _Fragments(at_us, {})
        if offset + len(payload) > _PACKET_BYTES_MAX:
            del self._open[key]
            raise UnpackError("fragments beyond the end of a packet")
        found.parts.setdefault(offset, payload)
        if is_last:
            found.size = offset + len(payload)
        if 0 <= found.size <= sum(map(len, found.parts.values())) and len(whole := _joined(found)) >= found.size:
            del self._open[key]
            return whole[: found.size]
        if len(self._open) > CAPTURE_FRAGMENTED_PACKETS_MAX:
            del self._open[next(iter(self._open))]
            self._skipped["packets with missing fragments"] += 1
        return None


def _joined(fragments: _Fragments) -> bytes:
    """Return the payload up to the first missing fragment."""
    whole = bytearray()
    for start, part in sorted(fragments.parts.items()):
        if start > len(whole):
            break
        whole += part[len(whole) - start :]
    return bytes(whole)
