"""Read the arguments of redis commands, and refuse them in the words of redis."""

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
OK: Final = object()  # what a command answers that has nothing to tell

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_ITEM_BYTES: Final = 16  # about what an item of a list takes beside its own bytes
_SHOWN_BYTES_MAX: Final = 32  # of what a client wrote, in an error that quotes it

Args = Sequence[bytes]
Work = Generator[Commit | None, None, Any]  # a long command: yields as a `Job` does, returns what is to be answered


class RedisCall(Struct, frozen=True, gc=False):
    """A command to be done."""

    peer: Peer
    args: Args
    now_ms: int
    is_queued: bool = False  # part of a transaction: it must neither wait nor be interrupted


class Writes:
    """The last write: when it is durable, so are those before it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = Commit.resolved()

    @property
    def decided(self) -> Commit | None:
        """The last write, if its outcome is known: whoever asks from here on need not wait for it."""
        return self.last if self.last.is_done else None


def read_args(message: Message) -> list[bytes]:
    """Bytes from redis clients; from others, texts and numbers too."""
    args = message.fields.get("args", [])
    if not isinstance(args, list | tuple):
        raise InputError("ERR args is a list")
    return [arg if type(arg) is bytes else _bytes(arg) for arg in args]


def number(text: bytes, refusal: str = NOT_A_NUMBER) -> int:
    if _INTEGER.fullmatch(text) is None or int(text) not in I64:
        raise InputError(refusal)
    return int(text)


def counted(size: int, item: bytes) -> int:
    """The size of a list with one more item. Raises InputError beyond the limit of an answer."""
    size += len(item) + _ITEM_BYTES
    if size > VALUES_ANSWER_BYTES_MAX:
        raise InputError(
            f"ERR the answer is over the limit of {VALUES_ANSWER_BYTES_MAX} bytes: ask for less, with SCAN or COUNT"
        )
    return size


def exactly(args: Args, count: int, name: str) -> Args:
    if len(args) != count:
        raise misused(name)
    return args


def at_least(args: Args, count: int, name: str) -> Args:
    if len(args) < count:
        raise misused(name)
    return args


def at_most(args: Args, count: int, what: str) -> Args:
    """Raises InputError beyond one of our own limits."""
    if len(args) > count:
        raise InputError(f"ERR {len(args)} {what} at once: at most {count}")
    return args


def pairs(args: Args, name: str) -> dict[bytes, bytes]:
    """Names and values in turn; the last one of a name counts."""
    if not args or len(args) % 2:
        raise misused(name)
    return dict(zip(args[::2], args[1::2], strict=True))


def misused(name: str) -> InputError:
    return InputError(f"ERR wrong number of arguments for '{name}' command")


def quoted(word: bytes) -> str:
    return word[:_SHOWN_BYTES_MAX].decode(errors="backslashreplace")


def run_through(work: Work) -> Any:
    """Do a long command at once, and return what it returns."""
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
