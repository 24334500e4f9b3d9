"""Hold answers back until those to earlier requests are sent."""

from collections import deque

from msgspec import Struct

from wirelake.protocols.redis.constants import (
    REDIS_ANSWERS_BYTES_MAX,
    REDIS_ANSWERS_PAUSE_BYTES,
    REDIS_REQUESTS_OPEN_MAX,
    REDIS_REQUESTS_PAUSE_AT,
)
from wirelake.protocols.redis.frames import Array, BulkString, EncodedArray, EncodedMap, Push, Value

_FEW = 16  # checked for each notification
_VALUE_BYTES = 64  # approximate memory of the smallest value


class Queued(Struct, frozen=True):
    """A command of a transaction, with its answer if the session itself gives it."""

    args: tuple[bytes, ...]
    answer: Value | None = None


class Question(Struct):
    """A request that is not answered, or whose answer waits for earlier ones."""

    correlation: str
    verb: bytes
    version: int  # of the protocol, when it was received
    times: int = 1  # how many equal requests it represents
    answers: list[Value] | None = None
    weight: int = 0  # approximate bytes of the answers
    confirmations: list[Value] | None = None  # the answers, if the subscription succeeds
    added: list[bytes] = []  # the names that it subscribed to
    queued: list[Queued] | None = None  # the commands of a transaction


class Answers:
    """A queue whose first request is always unanswered: answers are released in order."""

    __slots__ = ("_asked", "_count", "_open", "_waiting", "_weight")

    def __init__(self) -> None:
        self._asked = 0
        self._count = 0  # of open requests
        self._open: deque[Question] = deque()
        self._waiting: dict[str, Question] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def many(self) -> bool:
        """Return whether reading should pause until some are answered."""
        return self._count >= REDIS_REQUESTS_PAUSE_AT or self._weight >= REDIS_ANSWERS_PAUSE_BYTES

    @property
    def full(self) -> bool:
        """Return whether no more requests are accepted."""
        return self._count >= REDIS_REQUESTS_OPEN_MAX or self._weight >= REDIS_ANSWERS_BYTES_MAX

    @property
    def all_confirm(self) -> bool:
        """Return whether nothing but a few subscriptions is open."""
        few = len(self._open) <= _FEW
        return few and all(question.confirmations is not None for question in self._open)

    def ask(self, verb: bytes, version: int, times: int = 1) -> Question:
        """Append a request, or as many equal ones, to the queue."""
        self._asked += 1
        self._count += times
        question = Question(str(self._asked), verb, version, times)
        self._open.append(question)
        self._waiting[question.correlation] = question
        return question

    def find(self, correlation: str) -> Question | None:
        """Return the request with this correlation, only once."""
        return self._waiting.pop(correlation, None)

    def settle(self, question: Question, answers: list[Value]) -> list[Value]:
        """Set the answers of a request. Return what can be sent now."""
        question.answers = answers * question.times
        question.weight = sum(map(_weight, answers)) * question.times
        self._weight += question.weight
        return self._release()

    def say(self, value: Value) -> list[Value]:
        """Add an answer that the session gives itself. Return what can be sent now."""
        if not self._open:
            return [value]
        question = Question("", b"", 0)
        self._open.append(question)
        self._count += 1
        return self.settle(question, [value])

    def abandon(self, refusal: Value) -> list[Value]:
        """Answer every open request with an error. Return all answers."""
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
