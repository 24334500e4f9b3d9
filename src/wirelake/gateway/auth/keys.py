"""Create and read the gateway's own secrets in data/keys, which only its user can read."""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from wirelake.errors import InputError
from wirelake.files import replace_file
from wirelake.protocols.context import PrivateKey
from wirelake.state.identities import Identities
from wirelake.state.tokens import TokenKey

_log = logging.getLogger(__name__)

_TOKEN_BYTES = 24
_TOKEN_KEY_BYTES = 32
_NAMES_SHOWN = 10


class KeyFiles:
    """Read the files in data/keys. A missing file is created when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._private_keys: dict[str, PrivateKey] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def admin_token_file(self) -> Path:
        return self.folder / "admin.token"

    def admin_token(self) -> str:
        return (
            self._read_or_create("admin.token", lambda: f"a{secrets.token_urlsafe(_TOKEN_BYTES)}\n".encode())
            .decode()
            .strip()
        )

    def private_key(self, name: str, generate: Callable[[], PrivateKey]) -> PrivateKey:
        """Return a protocol's key, from NAME.pem; generate it the first time."""
        key = self._private_keys.get(name)
        if key is None:
            key = self._private_keys[name] = self._load_private(f"{name}.pem", generate)
        return key

    def token_key(self, identities: Identities) -> TokenKey:
        """Return the key that generated tokens are hashed with. Create it only if no token needs an older one.

        Raise InputError if the file is missing but needed. An empty file in its place means that the old key is lost
        for good: a new one is written, and the identities whose tokens needed the old one are named in the log.
        """
        path = self.folder / "tokens.key"
        generated = identities.list_generated()
        names = sorted({name for name, _ in generated})
        if not path.exists() and names:
            raise InputError(
                f"{path} is missing, and the tokens of {len(names)} identities cannot be checked without it. Restore"
                f" it from a backup of the data folder. If there is none, create an empty file of that name: a new key"
                f" is written to it, and those identities need new tokens (wirelake identity rotate)"
            )
        if path.exists() and not path.stat().st_size:
            path.unlink()
        key = self._read_or_create("tokens.key", lambda: secrets.token_bytes(_TOKEN_KEY_BYTES))
        if len(key) != _TOKEN_KEY_BYTES:
            raise InputError(f"{path} has {len(key)} bytes instead of {_TOKEN_KEY_BYTES}: restore it from a backup")
        token_key = TokenKey(key)
        lost = sorted({name for name, token in generated if token_key.uses_other_key(token.hash)})
        if lost:
            _log.error(
                "%d identities cannot log in, because their tokens were hashed with another key than the one in %s:"
                " restore the old file, or give them new tokens with wirelake identity rotate (%s)",
                len(lost),
                path,
                ", ".join(lost[:_NAMES_SHOWN]) + (" …" if len(lost) > _NAMES_SHOWN else ""),
            )
        return token_key

    def _load_private(self, name: str, make: Callable[[], PrivateKey]) -> PrivateKey:
        pem = self._read_or_create(
            name,
            lambda: make().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.folder / name} is not readable: {error}") from error
        if not isinstance(key, PrivateKey):
            raise InputError(
                f"{self.folder / name} is not a key of the type that the gateway writes: restore it from a backup"
            )
        return key

    def _read_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        path = self.folder / name
        if not path.exists():
            replace_file(path, make(), mode=0o600)
        return path.read_bytes()
