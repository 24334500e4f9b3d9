"""The part of the gateway's end that keeps what comes between MULTI and EXEC."""

from collections.abc import Sequence

from wirelake.errors import StateError
from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.answers import Question
from wirelake.protocols.redis.commands import (
    ABORTED,
    NESTED,
    NO_WATCH,
    NOT_IN_TRANSACTION,
    error,
    unknown_command,
    wrong_arguments,
)
from wirelake.protocols.redis.frames import ClientFrame, Command, Value
from wirelake.protocols.redis.housekeeping import OK, misused_client
from wirelake.protocols.redis.transaction import Transaction
from wirelake.protocols.redis.translation import to_message
from wirelake.protocols.session import Session, Step

BAD_NAME = error(b"ERR channel names and patterns are UTF-8 text here")


class QueueingSession(Session):
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
        """Of a transaction, nothing is done then."""
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
        """And what was watched for it."""
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
