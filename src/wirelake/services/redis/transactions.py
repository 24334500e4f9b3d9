"""Keys that connections WATCH: whether one of them changed until EXEC."""

from msgspec import Struct, field

from wirelake.broker.peer import Peer
from wirelake.errors import InputError
from wirelake.limits import VALUES_TRANSACTION_KEYS_MAX
from wirelake.services.redis.arguments import Args
from wirelake.state.values import Values


class _Watch(Struct, eq=False):
    """What one connection watches."""

    were_there: dict[bytes, bool] = field(default_factory=dict)  # key → whether it had a value
    has_changed: bool = False


class Watches:
    def __init__(self, values: Values) -> None:
        self._values = values
        self._of_peer: dict[str, _Watch] = {}
        self._of_key: dict[bytes, dict[_Watch, None]] = {}

    def add(self, peer: Peer, keys: Args, now_ms: int) -> None:
        watch = self._of_peer.get(peer.id, _Watch())
        new = [key for key in dict.fromkeys(keys) if key not in watch.were_there]
        if len(watch.were_there) + len(new) > VALUES_TRANSACTION_KEYS_MAX:
            raise InputError(f"ERR a connection watches at most {VALUES_TRANSACTION_KEYS_MAX} keys")
        self._of_peer[peer.id] = watch
        for key in new:
            watch.were_there[key] = self._values.type(key, now_ms) is not None
            self._of_key.setdefault(key, {})[watch] = None
        self._values.on_change = self._changed

    def remove(self, peer: Peer, now_ms: int | None = None) -> bool:
        """Forget what this connection watches; whether none of it changed."""
        watch = self._of_peer.pop(peer.id, None)
        if watch is None:
            return True
        for key in watch.were_there:
            watching = self._of_key[key]
            del watching[watch]
            if not watching:
                del self._of_key[key]
        if not self._of_peer:
            self._values.on_change = None
        if now_ms is None or watch.has_changed:
            return not watch.has_changed
        types = [self._values.type(key, now_ms) for key, was_there in watch.were_there.items() if was_there]
        return None not in types  # or one is over meanwhile

    def _changed(self, key: bytes | None) -> None:
        """A key was written or removed; all of them, if None."""
        for watch in list(self._of_peer.values()) if key is None else self._of_key.get(key, ()):
            watch.has_changed = True
