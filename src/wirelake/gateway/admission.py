"""Who may connect at all: so many connections, in all and from one address."""

from collections import Counter


class Admission:
    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self.connections_max = connections_max
        self.per_address_max = per_address_max
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def enter(self, address: str) -> str:
        """Why not, or nothing."""
        host = host_of(address)
        if self.open >= self.connections_max:
            return "connections_max"
        if self._by_host[host] >= self.per_address_max:
            return "connections_per_address_max"
        self.open += 1
        self._by_host[host] += 1
        return ""

    def leave(self, address: str) -> None:
        host = host_of(address)
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


def host_of(address: str) -> str:
    """An address without its port."""
    return address.rpartition(":")[0]


def address_of(name: object) -> str:
    """A socket's name as text."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "")
