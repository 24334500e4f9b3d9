"""Write capture files (pcap) of conversations over TCP and UDP, as a packet sniffer on the loopback address would."""

import struct
from enum import IntFlag
from ipaddress import IPv4Address
from pathlib import Path

from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier

_ETHERNET = bytes(12) + b"\x08\x00"  # no addresses, as on loopback; IPv4
_LINK_TYPE_ETHERNET = 1
_SNAP_BYTES = 262_144
_TCP, _UDP = 6, 17
_SEGMENT_BYTES_MAX = 1_400
_CLIENT_HOST, _SERVER_HOST = IPv4Address("127.0.0.1"), IPv4Address("127.0.0.2")
_START_S = 1_750_000_000


class _TcpFlag(IntFlag):
    FIN = 0x01
    SYN = 0x02
    PUSH = 0x08
    ACK = 0x10


class CaptureFile:
    """Packets with right headers and checksums, one millisecond apart."""

    def __init__(self) -> None:
        self._packets: list[bytes] = []

    def add(self, protocol: int, sender: Sender, segment: bytes) -> None:
        """Add a segment or datagram whose checksum is still zero."""
        client = sender is Sender.CLIENT
        addresses = (_CLIENT_HOST, _SERVER_HOST) if client else (_SERVER_HOST, _CLIENT_HOST)
        packed = b"".join(address.packed for address in addresses)
        pseudo = packed + struct.pack(">BBH", 0, protocol, len(segment))
        place = 16 if protocol == _TCP else 6
        checksum = _checksum(pseudo + segment).to_bytes(2, "big")
        segment = segment[:place] + checksum + segment[place + 2 :]
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), len(self._packets), 0, 64, protocol, 0) + packed
        head = head[:10] + _checksum(head).to_bytes(2, "big") + head[12:]
        self._packets.append(_ETHERNET + head + segment)

    def write(self, path: Path) -> Path:
        """Write the file, and return its path."""
        parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _SNAP_BYTES, _LINK_TYPE_ETHERNET)]
        for index, packet in enumerate(self._packets):
            parts.append(struct.pack("<IIII", _START_S, index * 1000, len(packet), len(packet)))
            parts.append(packet)
        path.write_bytes(b"".join(parts))
        return path


class TcpConversation:
    """One connection in a capture."""

    def __init__(self, capture: CaptureFile, client_port: int, server_port: int) -> None:
        self._capture = capture
        self._ports = {Sender.CLIENT: (client_port, server_port), Sender.SERVER: (server_port, client_port)}
        self._next = {Sender.CLIENT: 1_000, Sender.SERVER: 5_000}
        self._add(Sender.CLIENT, _TcpFlag.SYN)
        self._add(Sender.SERVER, _TcpFlag.SYN | _TcpFlag.ACK)
        self._add(Sender.CLIENT, _TcpFlag.ACK)

    def send(self, sender: Sender, data: bytes) -> None:
        """Add the segments for some bytes, and the other end's acknowledgement."""
        for start in range(0, len(data), _SEGMENT_BYTES_MAX):
            self._add(sender, _TcpFlag.PUSH | _TcpFlag.ACK, data[start : start + _SEGMENT_BYTES_MAX])
        self._add(sender.other, _TcpFlag.ACK)

    def close(self) -> None:
        for sender in Sender:
            self._add(sender, _TcpFlag.FIN | _TcpFlag.ACK)
            self._add(sender.other, _TcpFlag.ACK)

    def _add(self, sender: Sender, flags: _TcpFlag, data: bytes = b"") -> None:
        acknowledged = self._next[sender.other] if flags & _TcpFlag.ACK else 0
        head = struct.pack(">HHIIBBHHH", *self._ports[sender], self._next[sender], acknowledged, 0x50, flags, 65_535, 0, 0)
        self._capture.add(_TCP, sender, head + data)
        self._next[sender] += len(data) + bool(flags & (_TcpFlag.SYN | _TcpFlag.FIN))


class UdpConversation:
    """Datagrams between two ports in a capture."""

    def __init__(self, capture: CaptureFile, client_port: int, server_port: int) -> None:
        self._capture = capture
        self._ports = {Sender.CLIENT: (client_port, server_port), Sender.SERVER: (server_port, client_port)}

    def send(self, sender: Sender, data: bytes) -> None:
        head = struct.pack(">HHHH", *self._ports[sender], 8 + len(data), 0)
        self._capture.add(_UDP, sender, head + data)

    def close(self) -> None:
        """Do nothing: datagrams have no end."""


def conversation(
    capture: CaptureFile, carrier: Carrier, client_port: int, server_port: int
) -> TcpConversation | UdpConversation:
    kind = UdpConversation if carrier is Carrier.UDP else TcpConversation
    return kind(capture, client_port, server_port)


def _checksum(data: bytes) -> int:
    """Return the checksum of IP, TCP and UDP."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF or 0xFFFF
