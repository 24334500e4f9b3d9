"""Write captures: packets with right headers and checksums, in pcap and pcapng files.

A `TcpConversation` numbers the segments of one connection, `udp_packet` makes a datagram; both return IP packets, which
`capture_file` wraps for a link type. Tests reorder, drop and repeat packets between the two.
"""

import struct
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from wirelake.protocols.frame import Sender

# Link types, as in the header of a capture.
LOOPBACK = 0  # BSD: the address family in the byte order of the machine
ETHERNET = 1
RAW = 101
OPENBSD_LOOPBACK = 108  # the address family in network byte order
COOKED = 113
COOKED_2 = 276

TCP, UDP, FRAGMENT = 6, 17, 44
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
SEGMENT_BYTES = 1400
START_US = 1_700_000_000_000_000
STEP_US = 1000  # between two packets of a conversation
Endpoint = tuple[str, int]


class CapturedPacket(NamedTuple):
    at_us: int
    data: bytes  # an IP packet


# ── packets


def checksum(data: bytes) -> int:
    """Return the checksum of IP, TCP and UDP."""
    total: int = sum(struct.unpack(f">{len(data) // 2 + len(data) % 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_packet(source: str, target: str, protocol: int, payload: bytes, *, number: int = 1, fragment: int = 0) -> bytes:
    """Return an IPv4 or IPv6 packet. `fragment` is the field of flags and offset of IPv4."""
    from_, to = ip_address(source).packed, ip_address(target).packed
    if len(from_) == 16:
        return struct.pack(">IHBB", 0x60000000, len(payload), protocol, 64) + from_ + to + payload
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), number, fragment, 64, protocol, 0) + from_ + to
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def _with_checksum(source: str, target: str, protocol: int, segment: bytes, at: int) -> bytes:
    pseudo = ip_address(source).packed + ip_address(target).packed + struct.pack(">II", len(segment), protocol)
    found = checksum(pseudo + segment)
    return segment[:at] + struct.pack(">H", found or 0xFFFF) + segment[at + 2 :]


def tcp_packet(
    source: Endpoint, target: Endpoint, flags: int, seq: int, ack: int, data: bytes = b"", options: bytes = b""
) -> bytes:
    offset = (20 + len(options)) // 4 << 4
    numbers = (seq % 2**32, ack % 2**32)
    head = struct.pack(">HHIIBBHHH", source[1], target[1], *numbers, offset, flags, 65535, 0, 0)
    segment = _with_checksum(source[0], target[0], TCP, head + options + data, 16)
    return ip_packet(source[0], target[0], TCP, segment)


def _ip_head_bytes(packet: bytes) -> int:
    return 40 if packet[0] >> 4 == 6 else 20


def source_port(packet: bytes) -> int:
    """Return the port that sent a packet."""
    start = _ip_head_bytes(packet)
    return int.from_bytes(packet[start : start + 2])


def tcp_payload(packet: bytes) -> bytes:
    """Return the data of a TCP segment."""
    start = _ip_head_bytes(packet)
    return packet[start + (packet[start + 12] >> 4) * 4 :]


def udp_packet(source: Endpoint, target: Endpoint, data: bytes, number: int = 1) -> bytes:
    datagram = struct.pack(">HHHH", source[1], target[1], 8 + len(data), 0) + data
    datagram = _with_checksum(source[0], target[0], UDP, datagram, 6)
    return ip_packet(source[0], target[0], UDP, datagram, number=number)


def fragments(packet: bytes, size: int, number: int = 7) -> list[bytes]:
    """Return an IP packet in fragments with `size` bytes of payload, which must be a multiple of eight."""
    is_6 = packet[0] >> 4 == 6
    payload = packet[_ip_head_bytes(packet) :]
    found = []
    for start in range(0, len(payload), size):
        part, more = payload[start : start + size], start + size < len(payload)
        if is_6:
            source, target = (str(IPv6Address(packet[at : at + 16])) for at in (8, 24))
            head = struct.pack(">BBHI", packet[6], 0, start | more, number)
            found.append(ip_packet(source, target, FRAGMENT, head + part))
        else:
            source, target = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
            field = start // 8 | (0x2000 if more else 0)
            found.append(ip_packet(source, target, packet[9], part, number=number, fragment=field))
    return found


class TcpConversation:
    """Number the segments of one connection, in `packets`, with a time for each."""

    def __init__(
        self,
        client: Endpoint = ("10.0.0.2", 50_000),
        server: Endpoint = ("10.0.0.1", 7001),
        *,
        at_us: int = START_US,
        client_seq: int = 1000,
        server_seq: int = 2000,
    ) -> None:
        self.packets: list[CapturedPacket] = []
        self.at_us = at_us
        self._ends = {Sender.CLIENT: client, Sender.SERVER: server}
        self._seqs = {Sender.CLIENT: client_seq, Sender.SERVER: server_seq}

    def open(self) -> None:
        """Shake hands."""
        self._add(Sender.CLIENT, SYN, options=bytes.fromhex("020405b4"))
        self._add(Sender.SERVER, SYN | ACK, options=bytes.fromhex("020405b4"))
        self._add(Sender.CLIENT, ACK)

    def send(self, sender: Sender, data: bytes, size: int = SEGMENT_BYTES) -> None:
        """Send bytes in segments of this size, and acknowledge each."""
        for start in range(0, len(data), size):
            self._add(sender, PUSH | ACK, data[start : start + size])
            self._add(sender.other, ACK)

    def close(self) -> None:
        self._add(Sender.CLIENT, FIN | ACK)
        self._add(Sender.SERVER, FIN | ACK)
        self._add(Sender.CLIENT, ACK)

    def reset(self, sender: Sender) -> None:
        self._add(sender, RST | ACK)

    def data_packets(self, sender: Sender) -> list[CapturedPacket]:
        """Return the packets of one side that carry data."""
        port = self._ends[sender][1]
        return [each for each in self.packets if tcp_payload(each.data) and source_port(each.data) == port]

    def _add(self, sender: Sender, flags: int, data: bytes = b"", options: bytes = b"") -> None:
        ends, seqs = self._ends, self._seqs
        ack = seqs[sender.other] if flags & ACK else 0
        packet = tcp_packet(ends[sender], ends[sender.other], flags, seqs[sender], ack, data, options)
        self.packets.append(CapturedPacket(self.at_us, packet))
        self.at_us += STEP_US
        seqs[sender] += len(data) + (1 if flags & (SYN | FIN) else 0)


# ── files


def link_frame(packet: bytes, link: int, vlans: Sequence[int] = ()) -> bytes:
    """Return an IP packet as it is on a link of this type."""
    is_6 = packet[0] >> 4 == 6
    kind = struct.pack(">H", 0x86DD if is_6 else 0x0800)
    if link == ETHERNET:
        tags = b"".join(struct.pack(">HH", 0x8100, vlan) for vlan in vlans)
        return (bytes.fromhex("020000000001020000000002") + tags + kind + packet).ljust(60, b"\0")
    heads = {
        LOOPBACK: struct.pack("<I", 30 if is_6 else 2),
        OPENBSD_LOOPBACK: struct.pack(">I", 24 if is_6 else 2),
        RAW: b"",
        COOKED: struct.pack(">HHH8s", 0, 1, 6, b"\x02") + kind,
        COOKED_2: kind + struct.pack(">HIHBB8s", 0, 1, 1, 0, 6, b"\x02"),
    }
    return heads[link] + packet


def capture_file(
    packets: Iterable[CapturedPacket],
    link: int = ETHERNET,
    *,
    vlans: Sequence[int] = (),
    order: str = "<",
    nanoseconds: bool = False,
    snap_bytes: int = 262_144,
) -> bytes:
    """Return a pcap file."""
    unit_ns = 1 if nanoseconds else 1000
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, snap_bytes, link)]
    for at_us, packet in packets:
        frame = link_frame(packet, link, vlans)
        seconds, rest_us = divmod(at_us, 1_000_000)
        size = min(len(frame), snap_bytes)
        parts.append(struct.pack(f"{order}IIII", seconds, rest_us * 1000 // unit_ns, size, len(frame)))
        parts.append(frame[:size])
    return b"".join(parts)


def pcapng_file(
    packets: Iterable[CapturedPacket],
    links: Sequence[int] = (ETHERNET,),
    *,
    order: str = "<",
    nanoseconds: bool = False,
) -> bytes:
    """Return a pcapng file with one interface for each link type; the packets take turns on them."""
    parts = [_block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))]
    resolution = struct.pack(f"{order}HHB3xHH", 9, 1, 9, 0, 0) if nanoseconds else b""
    parts += [_block(order, 1, struct.pack(f"{order}HHI", link, 0, 262_144) + resolution) for link in links]
    parts.append(_block(order, 5, struct.pack(f"{order}III", 0, 0, 0)))  # statistics, which readers skip
    for index, (at_us, packet) in enumerate(packets):
        number = index % len(links)
        frame = link_frame(packet, links[number])
        ticks = at_us * 1000 if nanoseconds else at_us
        head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        parts.append(_block(order, 6, head + frame + bytes(-len(frame) % 4)))
    return b"".join(parts)


def _block(order: str, kind: int, body: bytes) -> bytes:
    size = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", kind) + size + body + size
