"""Choose the listener for a key under [listen] by the transports of its protocol."""

import ssl

from wirelake.address import Address
from wirelake.gateway.devices.listener import DeviceListener
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.tcp import ProtocolListener, TcpListener
from wirelake.gateway.transport.udp import UdpListener
from wirelake.protocols.protocol import Carrier, Protocol


class SharedPort:
    """Open several transports of one protocol on one address."""

    def __init__(self, listeners: list[ProtocolListener]) -> None:
        """Take listeners; the first one determines the port if the settings say 0."""
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
    context: TransportContext,
    devices: DeviceSessions,
    protocol: Protocol,
    setting: str,
    address: Address,
    carriers: tuple[Carrier, ...],
) -> AnyListener:
    """Create the listener for a key under [listen]. It is not open yet."""
    if protocol.device_of is not None:
        return DeviceListener(context, devices, protocol, setting, address, carriers)
    streams_first = sorted(dict.fromkeys(carriers), key=lambda carrier: carrier is Carrier.UDP)
    listeners: list[ProtocolListener] = [
        UdpListener(context, protocol, setting, address)
        if carrier is Carrier.UDP
        else TcpListener(context, protocol, setting, address, carrier)
        for carrier in streams_first
    ]
    return listeners[0] if len(listeners) == 1 else SharedPort(listeners)
