"""Transactions: the commands between MULTI and EXEC are queued, and passed up as one request.

The session itself answers some commands. It does so at EXEC, and puts these answers between those of the others.
"""

from collections.abc import Callable, Sequence

from wirelake.errors import StateError
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.answers import Question, Queued
from wirelake.protocols.redis.commands import (
    ABORTED,
    NESTED,
    NO_WATCH,
    NOT_IN_TRANSACTION,
    error,
    unknown_command,
    wrong_arguments,
)
from wirelake.protocols.redis.constants import REDIS_QUEUED_BYTES_MAX, REDIS_QUEUED_COMMANDS_MAX, REDIS_QUEUED_WORDS_MAX
from wirelake.protocols.redis.frames import Array, ClientFrame, Command, SimpleString, Value
from wirelake.protocols.redis.housekeeping import OK, misused_client
from wirelake.protocols.redis.translation import SERVICE, reply_value, to_message
from wirelake.protocols.session import Session, Step

QUEUED = SimpleString(b"QUEUED")


class Transaction:
    """The commands since MULTI."""

    __slots__ = ("_bytes", "_commands", "_words", "is_aborted")

    def __init__(self) -> None:
        self.is_aborted = False  # one of the commands was refused
        self._commands: list[tuple[bytes, ...]] = []
        self._words = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._commands)

    def add(self, args: tuple[bytes, ...]) -> Value:
        """Queue a command, unless the transaction is aborted. Return the answer to it."""
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
        """Abort the transaction: a command was refused, so EXEC will do nothing."""
        self.is_aborted = True
        self._commands.clear()

    def execute(self, own: Callable[[Sequence[bytes]], Value | None]) -> tuple[list[Queued], Message]:
        """Return the commands, with the answers that `own` gives, and the request for the others."""
        queued = [Queued(args, own(args)) for args in self._commands]
        commands = [list(each.args) for each in queued if each.answer is None]
        target = Operation(SERVICE, "exec")
        return queued, Message(
            kind=Kind.REQUEST, name="exec", protocol="redis", target=target, fields={"commands": commands}
        )


def executed(queued: list[Queued], message: Message, version: int) -> Value:
    """Return the answer to EXEC."""
    if message.failure is not None or not message.name:  # refused, or a watched key was changed
        return reply_value(message, b"exec", version)
    parts = iter(message.parts)
    answers = [
        each.answer if each.answer is not None else reply_value(next(parts), each.args[0], version) for each in queued
    ]
    return Array(tuple(answers))


BAD_NAME = error(b"ERR channel names and patterns are UTF-8 text here")


class QueueingSession(Session):
    """The part of the server session that handles transactions."""

    __slots__ = ("_is_watching", "_transaction")

    def __init__(self, now_s: float, idle_s: float | None) -> None:
        super().__init__(now_s, idle_s)
        self._transaction: Transaction | None = None
        self._is_watching = False  # keys, for the next transaction

    def _answer_now(self, value: Value, step: Step) -> None:
        raise NotImplementedError

    def _own(self, args: Sequence[bytes]) -> Value | None:
        raise NotImplementedError

    def _put(self, frame: ClientFrame, message: Message, step: Step) -> Question:
        raise NotImplementedError

    def _unknown(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._refuse(unknown_command(frame.args), step)

    def _misused(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._refuse(wrong_arguments(frame.verb), step)

    def _refuse(self, answer: Value, step: Step) -> None:
        """Answer with an error, and abort the transaction if there is one."""
        if self._transaction is not None:
            self._transaction.refuse()
        self._answer_now(answer, step)

    def _multi(self, _frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._transaction = Transaction()
        self._answer_now(OK, step)

    def _nested(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._answer_now(NESTED if frame.verb == b"multi" else NO_WATCH, step)

    def _no_transaction(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._answer_now(error(b"ERR %b without MULTI" % frame.verb.upper()), step)

    def _not_queued(self, _frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._refuse(NOT_IN_TRANSACTION, step)

    def _queue(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        if self._transaction is None:
            raise StateError("commands are queued after MULTI")
        refusal: Value | None = None
        if frame.verb == b"publish" and not is_text(frame.args[1]):
            refusal = BAD_NAME
        elif frame.verb == b"client":
            refusal = misused_client(frame.args)
        if refusal is None:
            self._answer_now(self._transaction.add(frame.args), step)
        else:
            self._refuse(refusal, step)

    def _exec(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        transaction = self._transaction
        if transaction is None:
            raise StateError("EXEC is for commands that were queued after MULTI")
        if transaction.is_aborted:
            self._forget_transaction(step)
            self._answer_now(ABORTED, step)
            return
        queued, message = transaction.execute(self._own)
        self._put(frame, message, step).queued = queued
        self._transaction, self._is_watching = None, False

    def _discard(self, _frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._forget_transaction(step)
        self._answer_now(OK, step)

    def _watch(self, frame: ClientFrame, _now_s: float, step: Step) -> None:
        self._is_watching = True
        self._put(frame, to_message(frame, Sender.CLIENT), step)

    def _forget_transaction(self, step: Step) -> None:
        """Drop the transaction and the watched keys."""
        self._transaction = None
        if self._is_watching:
            self._is_watching = False
            step.messages.append(to_message(Command((b"unwatch",)), Sender.CLIENT))


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
