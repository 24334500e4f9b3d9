"""Where something listens or is to be called: HOST:PORT."""

from typing import Final

from msgspec import Struct

from wirelake.errors import InputError

OFF: Final = "off"
_PORT_MAX: Final = 65535


class Address(Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, key: str) -> Address | None:
    """Read HOST:PORT or [IPv6]:PORT; "off" is None. `key` is the setting that an InputError names."""
    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise InputError(f'settings: {key} = "{text}" is not HOST:PORT and not "{OFF}"')
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
