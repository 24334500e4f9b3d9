"""Who may connect at all: so many connections, in all, from one address, and of peers that have not logged in.

A connection that is let in holds a `Slot` from the moment its TCP connection is accepted (with TLS: before the
handshake) until it is closed. Peers that have not logged in share a part of the slots, of which one address gets a part
again, and a bound on the memory that all of them hold together: however many of them there are, those who log in find
room.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from wirelake.config import LimitsSection
from wirelake.gateway.auth.log_quota import LogQuota
from wirelake.limits import GATEWAY_QUOTA_WAIT_S, GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE

_OPEN_AND_CLOSE: Final = 2  # records of every connection


class Admission:
    def __init__(self, limits: LimitsSection, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self.quota = LogQuota(limits, now_s())  # of connections
        self.droppable_quota = LogQuota(limits, now_s())  # of what may be dropped: datagrams, and HTTP requests
        self.open = 0
        self.unauthenticated = 0  # of those open
        self.unauthenticated_bytes = 0  # that these hold
        self._by_host: Counter[str] = Counter()
        self._unauthenticated_by_host: Counter[str] = Counter()

    def set_limits(self, limits: LimitsSection) -> None:
        """From now on; connections that are there stay."""
        self._limits = limits
        for quota in (self.quota, self.droppable_quota):
            quota.set_limits(limits, self._now_s())

    @property
    def unauthenticated_max(self) -> int:
        return max(1, int(self._limits.connections * self._limits.unauthenticated_share))

    @property
    def unauthenticated_bytes_max(self) -> int:
        return self._limits.unauthenticated_bytes

    def enter(self, address: str, *, authenticated: bool = False) -> "Slot | str":
        """Let a connection from this address in, or answer why not.

        `authenticated`: it needs no login of its own (where everybody is let in; HTTP, which asks with each request).
        """
        host = host_of(address)
        if self.open >= self._limits.connections:
            return "connections_max"
        if self._by_host[host] >= self._limits.connections_per_address:
            return "connections_per_address_max"
        wait_s = 0.0
        if not authenticated:
            at_most = self.unauthenticated_max
            if self.unauthenticated >= at_most:
                return "unauthenticated_max"
            of_host_at_most = max(1, int(at_most * GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE))
            if self._unauthenticated_by_host[host] >= of_host_at_most:
                return "unauthenticated_per_address_max"
        self.open += 1
        self._by_host[host] += 1
        slot = Slot(self, host)
        if not authenticated:
            slot.revoke()
            wait_s = slot.charge(_OPEN_AND_CLOSE, 0)
        if wait_s > GATEWAY_QUOTA_WAIT_S:
            slot.give_back()
            slot.release()
            return "unauthenticated_records"
        return slot

    def charge(self, host: str, records: int, size: int) -> float:
        return self.quota.charge(host, records, size, self._now_s())

    def leave(self, host: str) -> None:
        self.open -= 1
        _decrement(self._by_host, host)

    def count_unauthenticated(self, host: str, change: int) -> None:
        self.unauthenticated += change
        if change > 0:
            self._unauthenticated_by_host[host] += change
        else:
            _decrement(self._unauthenticated_by_host, host)


class Slot:
    """One connection's place among those open."""

    __slots__ = (
        "_admission",
        "_charged_bytes",
        "_charged_records",
        "_held_bytes",
        "_host",
        "_released",
        "authenticated",
        "deciding_bytes",
    )

    def __init__(self, admission: Admission, host: str) -> None:
        self.authenticated = True
        self._admission = admission
        self._host = host
        self._held_bytes = 0
        self.deciding_bytes = 0  # that came while a login was being decided; its session holds them
        self._charged_records = self._charged_bytes = 0
        self._released = False

    @property
    def host(self) -> str:
        return self._host

    def authenticate(self) -> None:
        """The peer logged in: give its place among those who have not back, and what it took of their quota."""
        if not self.authenticated:
            self.give_back()
            self._leave_unauthenticated()

    def _leave_unauthenticated(self) -> None:
        if not self.authenticated:
            self.hold(0)
            self.authenticated = True
            self._admission.count_unauthenticated(self._host, -1)

    def revoke(self) -> None:
        """The peer is nobody, or nobody again."""
        if self.authenticated and not self._released:
            self.authenticated = False
            self._admission.count_unauthenticated(self._host, 1)

    def hold(self, held_bytes: int) -> bool:
        """Account for the memory that a peer without a login holds; False if all of them now hold too much."""
        if self.authenticated:
            return True
        admission = self._admission
        more = held_bytes - self._held_bytes
        self._held_bytes = held_bytes
        admission.unauthenticated_bytes += more
        return more <= 0 or admission.unauthenticated_bytes <= admission.unauthenticated_bytes_max

    def charge(self, records: int, size: int) -> float:
        """Count records of the log that a peer without a login causes; answers how long it should be read no more."""
        if self.authenticated:
            return 0.0
        self._charged_records += records
        self._charged_bytes += size
        return self._admission.charge(self._host, records, size)

    def give_back(self) -> None:
        """What it was charged turned out to be somebody's login."""
        self._admission.charge(self._host, -self._charged_records, -self._charged_bytes)
        self._charged_records = self._charged_bytes = 0

    def release(self) -> None:
        """The connection is closed. Once is enough; more often does no harm."""
        if not self._released:
            self._leave_unauthenticated()
            self._released = True
            self._admission.leave(self._host)


def host_of(address: str) -> str:
    """An address without its port."""
    return address.rpartition(":")[0]


def address_of(name: object) -> str:
    """A socket's name as text."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "")


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
