"""Whatever a file holds, it gives packets or an error that names the place."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pcap_writer import COOKED, ETHERNET, RAW, START_US, CapturedPacket, capture_file, pcapng_file, udp_packet

from wirelake.capture.ip_packets import IpParser, UdpDatagram
from wirelake.capture.packet_reader import CaptureReader, LinkPacket
from wirelake.errors import InputError

PACKETS = [CapturedPacket(START_US, udp_packet(("10.0.0.2", 5), ("10.0.0.1", 6), b"hello" * size)) for size in range(5)]
FILES = [capture_file(PACKETS), pcapng_file(PACKETS, [ETHERNET, RAW])]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=4)), max_size=6))
def test_a_damaged_file(tmp_path: Path, content: bytes, damage: list[tuple[int, bytes]]) -> None:
    damaged = bytearray(content)
    for at, data in damage:
        damaged[at : at + len(data)] = data
    file = tmp_path / "damaged.pcap"
    file.write_bytes(damaged)
    skipped: Counter[str] = Counter()
    parser = IpParser(skipped)
    with contextlib.suppress(InputError):
        for packet in CaptureReader(file):
            parser.parse(packet)
    parser.finish()


@settings(max_examples=300)
@given(st.sampled_from([0, ETHERNET, RAW, COOKED, 276, 105]), st.binary(max_size=120))
def test_random_packets(link: int, data: bytes) -> None:
    skipped: Counter[str] = Counter()
    parser = IpParser(skipped)
    for each in (data, b"\x45" + data, b"\x60" + data, bytes(12) + b"\x08\x00\x45" + data):
        found = parser.parse(LinkPacket(0, link, each))
        parser.finish()
        assert found is not None or sum(skipped.values()) > 0


def test_a_section_of_pcapng_has_its_own_order_and_interfaces(tmp_path: Path) -> None:
    file = tmp_path / "two.pcapng"
    file.write_bytes(pcapng_file(PACKETS) + pcapng_file(PACKETS, [RAW], order=">", nanoseconds=True))
    parser = IpParser(Counter())
    found = [parser.parse(packet) for packet in CaptureReader(file)]
    assert [each.data for each in found if isinstance(each, UdpDatagram)] == [b"hello" * size for size in range(5)] * 2
    assert {each.at_us for each in found if each is not None} == {START_US}


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(CaptureReader(tmp_path / "none.pcap"))
