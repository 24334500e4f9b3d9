"""Frames and bytes since the start, those of open sessions included: their counts are added up when they end."""

from collections import Counter

from wirelake.gateway.http.api import HttpApi


class Traffic:
    """As it is at the moment of asking."""

    def __init__(self, api: HttpApi) -> None:
        gateway = api.gateway
        counters = gateway.counters
        self.frames_in = Counter(counters.frames_in)  # counted frame by frame
        self.frames_out = Counter(counters.frames_out)
        self.bytes_in = Counter(counters.bytes_in)
        self.bytes_out = Counter(counters.bytes_out)
        for connection in gateway.connections.values():
            self.frames_out[connection.protocol] += connection.frames_out
            self.bytes_in[connection.protocol] += connection.bytes_in
            self.bytes_out[connection.protocol] += connection.bytes_out
        devices = gateway.devices.peers.values()  # perhaps very many
        protocol = gateway.devices.protocol.name
        self.frames_out[protocol] += sum(device.frames_out for device in devices)
        self.bytes_in[protocol] += sum(device.bytes_in for device in devices)
        self.bytes_out[protocol] += sum(device.bytes_out for device in devices)
        self.assembling = sum(device.assembling for device in devices)  # commands not yet complete
        for subscriber in api.subscribers.values():
            self.frames_out["http"] += subscriber.frames_out
            self.bytes_out["http"] += subscriber.bytes_out
