"""What a client sends between MULTI and EXEC: kept, and handed up together.

The commands that a session answers by itself are answered when their turn comes, at EXEC, and their answers put
between those of the others.
"""

from collections.abc import Callable, Sequence

from wirelake.message import Kind, Message, Operation
from wirelake.protocols.redis.answers import Queued
from wirelake.protocols.redis.commands import error
from wirelake.protocols.redis.frames import Array, SimpleString, Value
from wirelake.protocols.redis.limits import REDIS_QUEUED_BYTES_MAX, REDIS_QUEUED_COMMANDS_MAX, REDIS_QUEUED_WORDS_MAX
from wirelake.protocols.redis.translation import SERVICE, reply_value

QUEUED = SimpleString(b"QUEUED")


class Transaction:
    __slots__ = ("_bytes", "_commands", "_words", "is_aborted")

    def __init__(self) -> None:
        self.is_aborted = False  # one of the commands was refused
        self._commands: list[tuple[bytes, ...]] = []
        self._words = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._commands)

    def add(self, args: tuple[bytes, ...]) -> Value:
        """Keep a command, unless nothing will be done anyway; the answer to it."""
        if self.is_aborted:
            return QUEUED
        words, size = self._words + len(args), self._bytes + sum(map(len, args))
        if (
            len(self._commands) >= REDIS_QUEUED_COMMANDS_MAX
            or words > REDIS_QUEUED_WORDS_MAX
            or size > REDIS_QUEUED_BYTES_MAX
        ):
            self.refuse()
            return error(
                b"ERR a transaction has at most %d commands, %d words and %d bytes"
                % (REDIS_QUEUED_COMMANDS_MAX, REDIS_QUEUED_WORDS_MAX, REDIS_QUEUED_BYTES_MAX)
            )
        self._commands.append((args[0].lower(), *args[1:]))
        self._words, self._bytes = words, size
        return QUEUED

    def refuse(self) -> None:
        """One of the commands cannot be kept: EXEC will do nothing."""
        self.is_aborted = True
        self._commands.clear()

    def execute(self, own: Callable[[Sequence[bytes]], Value | None]) -> tuple[list[Queued], Message]:
        """The commands, with those answers that `own` gives, and a message that asks for the others."""
        queued = [Queued(args, own(args)) for args in self._commands]
        asked = [list(each.args) for each in queued if each.answer is None]
        target = Operation(SERVICE, "exec")
        return queued, Message(
            kind=Kind.REQUEST, name="exec", protocol="redis", target=target, fields={"commands": asked}
        )


def executed(queued: list[Queued], message: Message, version: int) -> Value:
    """The answer to EXEC."""
    if message.failure is not None or not message.name:  # refused, or a watched key was changed
        return reply_value(message, b"exec", version)
    parts = iter(message.parts)
    answers = [
        each.answer if each.answer is not None else reply_value(next(parts), each.args[0], version) for each in queued
    ]
    return Array(tuple(answers))
