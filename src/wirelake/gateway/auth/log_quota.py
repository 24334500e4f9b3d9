"""How much of the log peers may fill that have not logged in: so many records and bytes a second, each and in all.

What a peer on a connection causes is always recorded: it is read more slowly when its quota is overdrawn, and closed
when that would take too long. What it caused until it logged in is given back then. Datagrams cannot be slowed down:
a record of one that comes from nobody known is dropped when the quota is used up, and counted.
"""

from collections import OrderedDict

from msgspec import Struct

from wirelake.config import LimitsSection
from wirelake.gateway.transport.token_bucket import TokenBucket
from wirelake.limits import (
    GATEWAY_QUOTA_ADDRESSES_MAX,
    GATEWAY_QUOTA_BURST_S,
    GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE,
)


class _Buckets(Struct):
    records: TokenBucket
    bytes: TokenBucket

    def overdrawn_s(self, records: float, size: float, now_s: float) -> float:
        return max(self.records.take(records, now_s), self.bytes.take(size, now_s))

    def have(self, records: float, size: float, now_s: float) -> bool:
        return self.records.left(now_s) >= records and self.bytes.left(now_s) >= size


class LogQuota:
    def __init__(self, limits: LimitsSection, now_s: float) -> None:
        self.set_limits(limits, now_s)

    def set_limits(self, limits: LimitsSection, now_s: float) -> None:
        """Begin anew with these."""
        share = GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE
        self._per_address = (limits.unauthenticated_records * share, limits.unauthenticated_log_bytes * share)
        self._all = _buckets(limits.unauthenticated_records, limits.unauthenticated_log_bytes, now_s)
        self._by_host: OrderedDict[str, _Buckets] = OrderedDict()  # the least recently used first

    def charge(self, host: str, records: int, size: int, now_s: float) -> float:
        """Count records that are written in any case; answers for how many seconds the quota is then overdrawn."""
        of_host = self._of(host, now_s).overdrawn_s(records, size, now_s)
        return max(of_host, self._all.overdrawn_s(records, size, now_s))

    def admits(self, host: str, size: int, now_s: float) -> bool:
        """Whether one more record of so many bytes may be written; if so, it is counted."""
        of_host = self._of(host, now_s)
        if not (of_host.have(1, size, now_s) and self._all.have(1, size, now_s)):
            return False
        of_host.overdrawn_s(1, size, now_s)
        self._all.overdrawn_s(1, size, now_s)
        return True

    def _of(self, host: str, now_s: float) -> _Buckets:
        found = self._by_host.get(host)
        if found is None:
            found = self._by_host[host] = _buckets(*self._per_address, now_s)
            if len(self._by_host) > GATEWAY_QUOTA_ADDRESSES_MAX:
                self._by_host.popitem(last=False)
        else:
            self._by_host.move_to_end(host)
        return found


def _buckets(records: float, size: float, now_s: float) -> _Buckets:
    return _Buckets(TokenBucket(records, now_s, GATEWAY_QUOTA_BURST_S), TokenBucket(size, now_s, GATEWAY_QUOTA_BURST_S))
