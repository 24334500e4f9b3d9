"""What the gateway counts: plain numbers, locked and formatted by nobody until /metrics is asked for."""

from collections import Counter

from msgspec import Struct, field


class Counters(Struct):
    connections: Counter[str] = field(default_factory=Counter)  # by protocol, open now
    accepted: Counter[str] = field(default_factory=Counter)  # by protocol
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and reason
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and reason
    frames_in: Counter[str] = field(default_factory=Counter)
    frames_out: Counter[str] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and code
    quarantined: Counter[str] = field(default_factory=Counter)
    device_commands: Counter[tuple[str, str]] = field(default_factory=Counter)  # that failed, by state and reason
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and outcome
