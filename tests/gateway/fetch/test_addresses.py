from ipaddress import ip_address

import pytest

from wirelake.gateway.fetch.urls import is_public, parse_address

OWN = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # noqa: S104
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",  # behind a carrier's NAT
    "169.254.169.254",  # link-local: where clouds keep secrets
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "::127.0.0.1",
    "::10.0.0.1",
    "2002:7f00:1::",  # 6to4 of 127.0.0.1
    "2002:a00:1::1",
    "2002:c0a8:101::",
    "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::808:808",  # NAT64 of somebody's own
    "2001:0:7f00:1::f5ff:fffe",  # Teredo, server 127.0.0.1
]
ANYBODYS = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", OWN)
def test_addresses_of_ones_own(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ANYBODYS)
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(ip_address(address))


def test_only_a_written_out_address_is_a_literal() -> None:
    assert parse_address("127.0.0.1") == ip_address("127.0.0.1")
    assert parse_address("::1") == ip_address("::1")
    for name in ("localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1"):
        assert parse_address(name) is None
