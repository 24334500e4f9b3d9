"""HELLO [version [AUTH user password] [SETNAME name]]: chooses the version of the protocol, and may log in."""

from collections.abc import Sequence

from msgspec import Struct

from wirelake.message import Credentials
from wirelake.protocols.redis.commands import NO_PROTO, error
from wirelake.protocols.redis.frames import SimpleError

VERSIONS = {b"2": 2, b"3": 3}


class Hello(Struct, frozen=True):
    version: int | None = None  # None keeps the one in force
    credentials: Credentials | None = None
    client_name: bytes | None = None


def read_hello(args: Sequence[bytes]) -> Hello | SimpleError:
    """What a HELLO asks for, or the answer to one that asks in vain. `args` begins with the command itself."""
    if len(args) == 1:
        return Hello()
    version = VERSIONS.get(args[1])
    if version is None:
        is_number = args[1].removeprefix(b"-").isdigit()
        return NO_PROTO if is_number else error(b"ERR Protocol version is not an integer or out of range")
    credentials = client_name = None
    place = 2
    while place < len(args):
        option, rest = args[place].lower(), len(args) - place - 1
        if option == b"auth" and rest >= 2:
            credentials = Credentials(as_text(args[place + 1]), as_text(args[place + 2]))
            place += 3
        elif option == b"setname" and rest >= 1:
            client_name = args[place + 1]
            place += 2
        else:
            return error(b"ERR Syntax error in HELLO option '%b'" % args[place][:128])
    return Hello(version, credentials, client_name)


def as_text(data: bytes) -> str:
    """Bytes that should be UTF-8. Those that are not stay visible."""
    return data.decode(errors="backslashreplace")
