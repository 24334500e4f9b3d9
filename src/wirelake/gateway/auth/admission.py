"""Limit who may connect, and what peers that have not logged in may cost.

Every admitted connection holds a `Slot` from the moment its TCP connection is accepted (with TLS: before the handshake)
until it is closed. Peers that have not logged in share a part of the slots, of which one address gets a part again. A
bound on memory and a quota on the log apply to all of them together. So peers that do log in find room, however many
there are that do not.

`LogQuota` bounds the records and bytes a second that such peers may write to the log, each and in total. What a peer on
a connection causes is always recorded: the gateway reads it more slowly when its quota is overdrawn, and closes it when
that would take too long. A login refunds what the peer was charged. Datagrams cannot be slowed down: when the quota is
used up, a record of one from an unknown sender is dropped and counted.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wirelake.config import LimitsSection
from wirelake.gateway.transport.read_limiter import TokenBucket
from wirelake.limits import (
    GATEWAY_QUOTA_ADDRESSES_MAX,
    GATEWAY_QUOTA_BURST_S,
    GATEWAY_QUOTA_WAIT_S,
    GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE,
)

if TYPE_CHECKING:
    from wirelake.gateway.transport.connection import Connection

_OPEN_AND_CLOSE: Final = 2  # records of every connection


class _Buckets(Struct):
    records: TokenBucket
    bytes: TokenBucket

    def take(self, records: float, size: float, now_s: float) -> float:
        """Take so many records and bytes, and return for how many seconds the quota is then overdrawn."""
        return max(self.records.take(records, now_s), self.bytes.take(size, now_s))

    def has(self, records: float, size: float, now_s: float) -> bool:
        return self.records.available(now_s) >= records and self.bytes.available(now_s) >= size


class LogQuota:
    """Bound what peers without a login write to the log, for each address and in total."""

    def __init__(self, limits: LimitsSection, now_s: float) -> None:
        self.set_limits(limits, now_s)

    def set_limits(self, limits: LimitsSection, now_s: float) -> None:
        """Start over with full buckets of these limits."""
        share = GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE
        self._per_address = (limits.unauthenticated_records * share, limits.unauthenticated_log_bytes * share)
        self._total = _new_buckets(limits.unauthenticated_records, limits.unauthenticated_log_bytes, now_s)
        self._by_host: OrderedDict[str, _Buckets] = OrderedDict()  # the least recently used first

    def charge(self, host: str, records: int, size: int, now_s: float) -> float:
        """Count records that are written in any case. Return for how many seconds the quota is then overdrawn."""
        of_host = self._buckets_of(host, now_s).take(records, size, now_s)
        return max(of_host, self._total.take(records, size, now_s))

    def admits(self, host: str, size: int, now_s: float) -> bool:
        """Return whether one more record of so many bytes may be written; if so, count it."""
        of_host = self._buckets_of(host, now_s)
        if not (of_host.has(1, size, now_s) and self._total.has(1, size, now_s)):
            return False
        of_host.take(1, size, now_s)
        self._total.take(1, size, now_s)
        return True

    def _buckets_of(self, host: str, now_s: float) -> _Buckets:
        found = self._by_host.get(host)
        if found is None:
            found = self._by_host[host] = _new_buckets(*self._per_address, now_s)
            if len(self._by_host) > GATEWAY_QUOTA_ADDRESSES_MAX:
                self._by_host.popitem(last=False)
        else:
            self._by_host.move_to_end(host)
        return found


def _new_buckets(records: float, size: float, now_s: float) -> _Buckets:
    return _Buckets(TokenBucket(records, now_s, GATEWAY_QUOTA_BURST_S), TokenBucket(size, now_s, GATEWAY_QUOTA_BURST_S))


class Admission:
    """Admit connections: so many in total, from one address, and without a login."""

    def __init__(self, limits: LimitsSection, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self.quota = LogQuota(limits, now_s())  # of connections
        self.droppable_quota = LogQuota(limits, now_s())  # of records that may be dropped: datagrams, HTTP requests
        self.open = 0
        self.unauthenticated = 0  # of those open
        self.unauthenticated_bytes = 0  # in memory because of these
        self._by_host: Counter[str] = Counter()
        self._unauthenticated_by_host: Counter[str] = Counter()

    def set_limits(self, limits: LimitsSection) -> None:
        """Use these limits for new connections; open ones stay."""
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
        """Return a slot for a connection from this address, or the reason for refusal.

        An `authenticated` connection needs no login of its own: where everybody is admitted, or over HTTP, where each
        request has credentials.
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
            per_host_max = max(1, int(at_most * GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE))
            if self._unauthenticated_by_host[host] >= per_host_max:
                return "unauthenticated_per_address_max"
        self.open += 1
        self._by_host[host] += 1
        slot = Slot(self, host)
        if not authenticated:
            slot.revoke()
            wait_s = slot.charge(_OPEN_AND_CLOSE, 0)
        if wait_s > GATEWAY_QUOTA_WAIT_S:
            slot.refund()
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
    """Represent one open connection in the counts of `Admission`."""

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
        self.deciding_bytes = 0  # received while a login was being decided; the session holds them
        self._charged_records = self._charged_bytes = 0
        self._released = False

    @property
    def host(self) -> str:
        return self._host

    def authenticate(self) -> None:
        """Count the peer as logged in, and refund what it was charged before."""
        if not self.authenticated:
            self.refund()
            self._leave_unauthenticated()

    def _leave_unauthenticated(self) -> None:
        if not self.authenticated:
            self.hold(0)
            self.authenticated = True
            self._admission.count_unauthenticated(self._host, -1)

    def revoke(self) -> None:
        """Count the peer as not logged in, or no longer."""
        if self.authenticated and not self._released:
            self.authenticated = False
            self._admission.count_unauthenticated(self._host, 1)

    def hold(self, held_bytes: int) -> bool:
        """Account for the memory that a peer without a login uses. Return False if all of them now use too much."""
        if self.authenticated:
            return True
        admission = self._admission
        more = held_bytes - self._held_bytes
        self._held_bytes = held_bytes
        admission.unauthenticated_bytes += more
        return more <= 0 or admission.unauthenticated_bytes <= admission.unauthenticated_bytes_max

    def charge(self, records: int, size: int) -> float:
        """Count records that a peer without a login causes. Return how long to pause reading from it."""
        if self.authenticated:
            return 0.0
        self._charged_records += records
        self._charged_bytes += size
        return self._admission.charge(self._host, records, size)

    def refund(self) -> None:
        """Return what the peer was charged to the quota."""
        self._admission.charge(self._host, -self._charged_records, -self._charged_bytes)
        self._charged_records = self._charged_bytes = 0

    def release(self) -> None:
        """Free the slot when the connection is closed. Releasing it again has no effect."""
        if not self._released:
            self._leave_unauthenticated()
            self._released = True
            self._admission.leave(self._host)


def account_for(connection: "Connection", size: int) -> None:
    """Account for received bytes of a peer without a login; close it if all such peers use too much memory."""
    slot = connection.slot
    if slot is None:
        return
    slot.deciding_bytes = slot.deciding_bytes + size if connection.session.is_deciding_login else 0
    if not slot.hold(connection.held_bytes + slot.deciding_bytes):
        connection.disconnect("unauthenticated_bytes", "peers without a login use too much memory")


def charge(connection: "Connection", frames: int, size: int) -> float:
    """Charge the records of these frames and of their answers. Return how long to pause reading from the peer."""
    wait_s = 0.0 if connection.slot is None else connection.slot.charge(2 * frames, 2 * size)
    if wait_s > GATEWAY_QUOTA_WAIT_S:
        connection.disconnect("unauthenticated_records", "peers without a login write to the log too fast")
    return wait_s


def host_of(address: str) -> str:
    """Return an address without its port."""
    return address.rpartition(":")[0]


def address_of(name: object) -> str:
    """Return a socket's name as text."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "")


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
