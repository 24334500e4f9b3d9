"""The peer's requests that wait for our answer."""

from collections import deque

from msgspec import Struct, field

from wirelake.message import Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.esnp.contents import Contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import SeqNo
from wirelake.protocols.esnp.opcodes import Flag
from wirelake.protocols.esnp.reply import ReplyTo, reply, reply_to, trace_info


class Question(Struct):
    to: ReplyTo
    traced: bool = False
    parts: int = 0  # how many messages of its answer are made
    done: bool = False
    held: list[EsnpMessage] = field(default_factory=list)  # made, but others come first


class Questions:
    """`plain_counts`: how the peer writes the counts of Maps and Lists, and so do our answers to it.

    Answers to requests with a number leave at once, those without in the order of the requests.
    """

    __slots__ = ("_last", "_open", "_queue", "plain_counts", "waiting")

    def __init__(self) -> None:
        self.plain_counts = False
        self.waiting = 0  # answers that are held back
        self._last = 0
        self._open: dict[str, Question] = {}
        self._queue: deque[Question] = deque()  # those without a number

    def __len__(self) -> int:
        return len(self._open)

    def correlate(self) -> str:
        """A correlation that no other request of this connection has."""
        self._last += 1
        return str(self._last)

    def add(self, contents: Contents) -> str:
        """Its correlation, which the answer has to bear."""
        question = Question(reply_to(contents), Flag.TRACE in contents.flags)
        correlation = self.correlate()
        self._open[correlation] = question
        if not question.to.numbered:
            self._queue.append(question)
        return correlation

    def answer(self, message: Common) -> list[EsnpMessage]:
        """What may be sent now. An answer to nothing, or one too many, is dropped."""
        question = self._open.get(message.correlation)
        if question is None:
            return []
        current = question.parts + 1
        several = message.more > 0 or current > 1
        last = 0 if message.more and _last_is_unknown(message) else current + message.more
        frame = reply(question.to, message, SeqNo(current, last) if several else None, plain_counts=self.plain_counts)
        question.parts = current
        if not message.more:
            question.done = True
            del self._open[message.correlation]
        return self._say(question, frame)

    def trace(self, hop: Common) -> list[EsnpMessage]:
        question = self._open.get(hop.correlation)
        if question is None or not question.traced:
            return []
        return self._say(question, trace_info(question.to, hop))

    def answer_now(self, contents: Contents, failure: Failure | None = None) -> list[EsnpMessage]:
        """Our own answer, empty or an error, behind those that have to come first."""
        to = reply_to(contents)
        frame = reply(to, Common(kind=Kind.RESPONSE, failure=failure))
        if to.numbered or not self._queue:
            return [frame]
        self._queue.append(Question(to, done=True, held=[frame]))
        self.waiting += 1
        return []

    def _say(self, question: Question, frame: EsnpMessage) -> list[EsnpMessage]:
        if question.to.numbered:
            return [frame]
        question.held.append(frame)
        self.waiting += 1
        return self._release()

    def _release(self) -> list[EsnpMessage]:
        released: list[EsnpMessage] = []
        while self._queue:
            first = self._queue[0]
            released += first.held
            first.held.clear()
            if not first.done:
                break
            self._queue.popleft()
        self.waiting -= len(released)
        return released


def _last_is_unknown(message: Common) -> bool:
    """Whether the service that answers did not know itself how many messages it would take."""
    return list(message.headers.get("esnp.seq_no", ()))[1:] == [0]
