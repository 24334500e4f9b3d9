"""Which addresses are anybody's on the internet, and which are somebody's own.

An IPv6 address may carry an IPv4 address that the packets end up at: it is no better than that one.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

IpAddress = IPv4Address | IPv6Address

# Networks whose last 32 bits are an IPv4 address: compatible, mapped, translated (SIIT), NAT64.
_IPV4_AT_THE_END: Final = tuple(
    map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)


def is_public(address: IpAddress) -> bool:
    """Not loopback, private, link-local, multicast, unspecified or reserved, nor one of those inside of another."""
    if isinstance(address, IPv6Address):
        inner = _inside(address)
        if inner:
            return all(map(is_public, inner)) and address not in _IPV4_AT_THE_END[-1]  # that one is for local use
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def literal(host: str) -> IpAddress | None:
    """The address that a URL names, where it names none of the names that have to be looked up."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _inside(address: IPv6Address) -> tuple[IPv4Address, ...]:
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo  # the server, and the client behind it
    if int(address) > 1 and any(address in network for network in _IPV4_AT_THE_END):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
