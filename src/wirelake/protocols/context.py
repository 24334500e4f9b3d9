"""What a listener hands to a protocol that makes a server session: settings, time, randomness, keys."""

from collections.abc import Callable, Mapping
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
    """Everything a server session may know about the world around it."""

    settings: Any  # the protocol's own `Settings`, as they are in force now
    now_s: float
    number: int  # of the connection, never used twice while the gateway runs
    random: Callable[[int], bytes]  # that many fresh random bytes
    keys: KeyStore
    address: Address  # of the listener
    node_names: tuple[str, ...] = ()  # this node, this machine and loopback
    is_open: bool = False  # `auth.open`: everybody is let in
    is_secure: bool = False  # the connection is encrypted by TLS

    def session_settings(self, session_type: type[Settings], **more: Any) -> Settings:
        """Return the settings as the richer type that a session works with."""
        fields: Mapping[str, Any] = asdict(self.settings)
        return session_type(**fields, **more)
