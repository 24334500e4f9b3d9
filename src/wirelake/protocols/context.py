"""What a protocol gets to make a server session: settings, time, randomness, keys."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric import rsa, x25519
from msgspec import Struct
from msgspec.structs import asdict

from wirelake.address import Address
from wirelake.protocols.settings import ProtocolSettings

PrivateKey = rsa.RSAPrivateKey | x25519.X25519PrivateKey
Settings = TypeVar("Settings", bound=ProtocolSettings)


class KeyStore(Protocol):
    """The gateway's keys, which outlive it."""

    def private_key(self, name: str, generate: Callable[[], PrivateKey]) -> PrivateKey:
        """Return the key of this name; generate and store it the first time."""
        ...


class SessionContext(Struct, frozen=True):
    """Everything that a server session may know about its surroundings."""

    settings: Any  # the protocol's own `Settings`, as they are in force now
    now_s: float
    number: int  # of the connection, never used twice while the gateway runs
    random: Callable[[int], bytes]  # that many fresh random bytes
    keys: KeyStore
    address: Address  # of the listener
    node_names: tuple[str, ...] = ()  # this node, this machine and loopback
    wall_s: Callable[[], float] = lambda: 0.0  # the system's time, to compare with times in frames
    is_open: bool = False  # `auth.open`: everybody is admitted
    is_secure: bool = False  # the connection is encrypted by TLS

    def session_settings(self, session_type: type[Settings], **more: Any) -> Settings:
        """Return the settings as the richer type that a session works with. Sessions with equal ones share them."""
        try:
            made: Settings = _session_settings(self.settings, session_type, tuple(more.items()))
        except TypeError:  # a setting of an installed protocol is a list: not hashable
            made = session_type(**asdict(self.settings), **more)
        return made


@lru_cache(maxsize=64)
def _session_settings(settings: Any, session_type: type[Any], more: tuple[tuple[str, Any], ...]) -> Any:
    return session_type(**asdict(settings), **dict(more))
