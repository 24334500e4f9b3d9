"""Count frames and bytes by protocol since the start, open sessions included, and the responses of HTTP."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.http.subscriber import EventStreams
from wirelake.gateway.metrics import Counters, Histogram
from wirelake.gateway.transport.connection import Connection

_LAG_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class HttpStats:
    """Counts that only the HTTP listener has."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.loop_lag_s = Histogram(_LAG_BOUNDS_S)


class ProtocolCounts(Struct):
    """Counts of one protocol since the start. `frames_in` are the frames in the log, decodable or not."""

    connections: int  # open now
    accepted: int
    refused: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    quarantined: int
    errors: int


class Traffic(Struct):
    """A snapshot, by protocol."""

    frames_in: Counter[str]
    frames_out: Counter[str]
    bytes_in: Counter[str]
    bytes_out: Counter[str]
    assembling: int = 0  # device commands that are not complete yet


class TrafficMeter:
    """Sum up the counters, which get the counts of a session when it ends, and the counts of the open sessions."""

    def __init__(
        self,
        counters: Counters,
        connections: Mapping[str, Connection],
        devices: DeviceSessions,
        streams: EventStreams,
    ) -> None:
        self._counters = counters
        self._connections = connections
        self._devices = devices
        self._streams = streams

    def read(self) -> Traffic:
        counters = self._counters
        traffic = Traffic(
            frames_in=Counter(counters.frames_in),  # counted frame by frame, also for open sessions
            frames_out=Counter(counters.frames_out),
            bytes_in=Counter(counters.bytes_in),
            bytes_out=Counter(counters.bytes_out),
        )
        for connection in self._connections.values():
            traffic.frames_out[connection.protocol] += connection.frames_out
            traffic.bytes_in[connection.protocol] += connection.bytes_in
            traffic.bytes_out[connection.protocol] += connection.bytes_out
        for device in self._devices.peers.values():  # possibly very many
            traffic.frames_out[device.protocol] += device.frames_out
            traffic.bytes_in[device.protocol] += device.bytes_in
            traffic.bytes_out[device.protocol] += device.bytes_out
            traffic.assembling += device.assembling
        for subscriber in self._streams:
            traffic.frames_out["http"] += subscriber.frames_out
            traffic.bytes_out["http"] += subscriber.bytes_out
        return traffic

    def by_protocol(self, traffic: Traffic) -> dict[str, ProtocolCounts]:
        counters = self._counters
        refused, errors = _by_protocol(counters.refused), _by_protocol(counters.errors)
        names = {*counters.accepted, *traffic.frames_in, *refused, *errors} - {""}
        return {
            name: ProtocolCounts(
                connections=counters.connections[name],
                accepted=counters.accepted[name],
                refused=refused.get(name, 0),
                frames_in=traffic.frames_in[name],
                frames_out=traffic.frames_out[name],
                bytes_in=traffic.bytes_in[name],
                bytes_out=traffic.bytes_out[name],
                quarantined=counters.quarantined[name],
                errors=errors.get(name, 0),
            )
            for name in sorted(names)
        }


def _by_protocol(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Add up the counts of all reasons."""
    sums: dict[str, int] = {}
    for (protocol, _), count in counts.items():
        sums[protocol] = sums.get(protocol, 0) + count
    return sums
