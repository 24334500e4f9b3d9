"""Parse the arguments of redis commands, and raise the errors of redis."""

import re
from collections.abc import Generator, Sequence
from typing import Any, Final

from msgspec import Struct

from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError
from wirelake.limits import VALUES_ANSWER_BYTES_MAX
from wirelake.message import Message

SYNTAX: Final = "ERR syntax error"
NOT_A_NUMBER: Final = "ERR value is not an integer or out of range"
I64: Final = range(-(2**63), 2**63)
OK: Final = object()  # the result of a command that returns nothing else

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_ITEM_BYTES: Final = 16  # about the overhead of an item of a list
_SHOWN_BYTES_MAX: Final = 32  # of a client's text that an error quotes

Args = Sequence[bytes]
Work = Generator[Commit | None, None, Any]  # a long command: yields as a `Job` does, returns the result


class RedisCall(Struct, frozen=True, gc=False):
    """Hold a command to run."""

    peer: Peer
    args: Args
    now_ms: int
    is_queued: bool = False  # part of a transaction: must neither wait nor be interrupted


class Writes:
    """Hold the last write. When it is durable, so are those before it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = Commit.resolved()

    @property
    def last_done(self) -> Commit | None:
        """Return the last write if it is done, so that later commands need not wait for it, otherwise None."""
        return self.last if self.last.is_done else None


def read_args(message: Message) -> list[bytes]:
    """Return the arguments as bytes. Clients of other protocols than redis also send texts and numbers."""
    args = message.fields.get("args", [])
    if not isinstance(args, list | tuple):
        raise InputError("ERR args is a list")
    return [arg if type(arg) is bytes else _bytes(arg) for arg in args]


def number(text: bytes, refusal: str = NOT_A_NUMBER) -> int:
    if _INTEGER.fullmatch(text) is None or int(text) not in I64:
        raise InputError(refusal)
    return int(text)


def add_size(size: int, item: bytes) -> int:
    """Return the size of a list with one more item. Raise InputError beyond the limit of a response."""
    size += len(item) + _ITEM_BYTES
    if size > VALUES_ANSWER_BYTES_MAX:
        raise InputError(
            f"ERR the answer is over the limit of {VALUES_ANSWER_BYTES_MAX} bytes: ask for less, with SCAN or COUNT"
        )
    return size


def exactly(args: Args, count: int, name: str) -> Args:
    if len(args) != count:
        raise wrong_arity(name)
    return args


def at_least(args: Args, count: int, name: str) -> Args:
    if len(args) < count:
        raise wrong_arity(name)
    return args


def at_most(args: Args, count: int, what: str) -> Args:
    """Raise InputError beyond a limit of the gateway."""
    if len(args) > count:
        raise InputError(f"ERR {len(args)} {what} at once: at most {count}")
    return args


def pairs(args: Args, name: str) -> dict[bytes, bytes]:
    """Return the values by name, from names and values in turn. The last value of a name counts."""
    if not args or len(args) % 2:
        raise wrong_arity(name)
    return dict(zip(args[::2], args[1::2], strict=True))


def wrong_arity(name: str) -> InputError:
    return InputError(f"ERR wrong number of arguments for '{name}' command")


def quoted(word: bytes) -> str:
    return word[:_SHOWN_BYTES_MAX].decode(errors="backslashreplace")


def run_to_end(work: Work) -> Any:
    """Run a long command without interruption, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode()
    raise InputError("ERR an argument is a text or a number")
