"""What each protocol has had since the start, as numbers."""

from collections.abc import Mapping

from msgspec import Struct

from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.traffic import Traffic


class ProtocolCounts(Struct):
    """Of one protocol, since the start. `frames_in` are those in the log, whether they could be read or not."""

    connections: int  # open now
    accepted: int
    refused: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    quarantined: int
    errors: int


def counts_by_protocol(api: HttpApi, traffic: Traffic) -> dict[str, ProtocolCounts]:
    counters = api.gateway.counters
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
    """Whatever the reason was."""
    sums: dict[str, int] = {}
    for (protocol, _), count in counts.items():
        sums[protocol] = sums.get(protocol, 0) + count
    return sums
