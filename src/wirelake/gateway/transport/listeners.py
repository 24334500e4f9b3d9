"""Which listener serves a key under [listen]: by the transports that its protocol has there."""

import ssl
from typing import TYPE_CHECKING

from wirelake.address import Address
from wirelake.gateway.devices.listener import DeviceListener
from wirelake.gateway.transport.tcp import ProtocolListener, TcpListener
from wirelake.gateway.transport.udp import UdpListener
from wirelake.protocols.protocol import Carrier, Protocol

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class SharedPort:
    """Several transports of one protocol on one address."""

    def __init__(self, listeners: list[ProtocolListener]) -> None:
        """`listeners`: the first of them chooses the port where the settings leave that open."""
        self.listeners = listeners

    @property
    def address(self) -> Address:
        return self.listeners[0].address

    @property
    def is_open(self) -> bool:
        return all(listener.is_open for listener in self.listeners)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        for listener in self.listeners:
            listener.address = Address(listener.address.host, self.address.port)
            await listener.open(tls)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


AnyListener = ProtocolListener | SharedPort | DeviceListener


def new_listener(
    gateway: "Gateway", protocol: Protocol, setting: str, address: Address, carriers: tuple[Carrier, ...]
) -> AnyListener:
    """Return the listener for a key under [listen], not open yet."""
    if protocol.frames_name_devices:
        return DeviceListener(gateway, address)
    streams_first = sorted(dict.fromkeys(carriers), key=lambda carrier: carrier is Carrier.UDP)
    listeners: list[ProtocolListener] = [
        UdpListener(gateway, protocol, setting, address)
        if carrier is Carrier.UDP
        else TcpListener(gateway, protocol, setting, address, carrier)
        for carrier in streams_first
    ]
    return listeners[0] if len(listeners) == 1 else SharedPort(listeners)
