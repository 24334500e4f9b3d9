"""Bound the bytes of bodies that are in memory, in all and from one address, counted as they arrive."""

from collections import Counter


class BodyBudget:
    def __init__(self, bytes_max: int, per_address_bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.per_address_bytes_max = per_address_bytes_max
        self.used_bytes = 0
        self._by_host: Counter[str] = Counter()

    def take(self, host: str, size_bytes: int) -> bool:
        """Count these bytes; False, and nothing is counted, if they are too many."""
        if self.used_bytes + size_bytes > self.bytes_max:
            return False
        if self._by_host[host] + size_bytes > self.per_address_bytes_max:
            return False
        self.used_bytes += size_bytes
        self._by_host[host] += size_bytes
        return True

    def give_back(self, host: str, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._by_host[host] -= size_bytes
        if not self._by_host[host]:
            del self._by_host[host]
