"""Answers in the order of the questions, whatever order they are found in."""

from collections import deque

from msgspec import Struct

from wirelake.protocols.redis.frames import Array, BulkString, EncodedArray, EncodedMap, Push, Value
from wirelake.protocols.redis.limits import (
    REDIS_ANSWERS_BYTES_MAX,
    REDIS_ANSWERS_PAUSE_BYTES,
    REDIS_REQUESTS_OPEN_MAX,
    REDIS_REQUESTS_PAUSE_AT,
)

_FEW = 16  # looked at for each notification
_VALUE_BYTES = 64  # about what the smallest value takes


class Queued(Struct, frozen=True):
    """A command of a transaction; with the answer, if the session has given it itself."""

    args: tuple[bytes, ...]
    answer: Value | None = None


class Question(Struct):
    correlation: str
    verb: bytes
    version: int  # of the protocol, when it was asked
    times: int = 1  # it stands for so many alike
    answers: list[Value] | None = None
    weight: int = 0  # about how many bytes the answers hold
    confirmations: list[Value] | None = None  # the answers, if a subscription is granted
    added: list[bytes] = []  # the names that it added
    queued: list[Queued] | None = None  # the commands of a transaction


class Answers:
    """A queue whose first place is always a question without an answer."""

    __slots__ = ("_asked", "_count", "_open", "_waiting", "_weight")

    def __init__(self) -> None:
        self._asked = 0
        self._count = 0  # of what is open, each as often as it stands for
        self._open: deque[Question] = deque()
        self._waiting: dict[str, Question] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def many(self) -> bool:
        """Whether it is time to stop reading until some are out."""
        return self._count >= REDIS_REQUESTS_PAUSE_AT or self._weight >= REDIS_ANSWERS_PAUSE_BYTES

    @property
    def full(self) -> bool:
        return self._count >= REDIS_REQUESTS_OPEN_MAX or self._weight >= REDIS_ANSWERS_BYTES_MAX

    @property
    def all_confirm(self) -> bool:
        """Whether nothing but a few subscriptions is open."""
        few = len(self._open) <= _FEW
        return few and all(question.confirmations is not None for question in self._open)

    def ask(self, verb: bytes, version: int, times: int = 1) -> Question:
        """A question at the end of the queue, or so many alike."""
        self._asked += 1
        self._count += times
        question = Question(str(self._asked), verb, version, times)
        self._open.append(question)
        self._waiting[question.correlation] = question
        return question

    def find(self, correlation: str) -> Question | None:
        """The question that this answers; once."""
        return self._waiting.pop(correlation, None)

    def settle(self, question: Question, answers: list[Value]) -> list[Value]:
        """These answer it, as often as it stands for. What is ready to be written now?"""
        question.answers = answers * question.times
        question.weight = sum(map(_weight, answers)) * question.times
        self._weight += question.weight
        return self._release()

    def say(self, value: Value) -> list[Value]:
        """The same for what nobody above was asked, and what comes after all that is open."""
        if not self._open:
            return [value]
        question = Question("", b"", 0)
        self._open.append(question)
        self._count += 1
        return self.settle(question, [value])

    def abandon(self, refusal: Value) -> list[Value]:
        """All that is left, with every question that has no answer refused."""
        for question in self._waiting.values():
            question.answers = [refusal] * question.times
        self._waiting.clear()
        return self._release()

    def _release(self) -> list[Value]:
        ready: list[Value] = []
        while self._open and (answers := self._open[0].answers) is not None:
            ready.extend(answers)
            question = self._open.popleft()
            self._weight -= question.weight
            self._count -= question.times
        return ready


def _weight(value: Value) -> int:
    match value:
        case BulkString() | EncodedArray() | EncodedMap():
            return _VALUE_BYTES + len(value.data)
        case Array() | Push():
            return _VALUE_BYTES + sum(map(_weight, value.items))
    return _VALUE_BYTES
