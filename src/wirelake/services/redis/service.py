"""The service `redis`: each operation is a redis command with its `args`.

What is told of a value is told once that value is on disk: a question behind a write that is still on its way waits for
it. A long command is done bit by bit, with others served in between, but for one that is part of a transaction.
"""

from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import Any, Final

from wirelake.broker.broker import Broker, answered
from wirelake.broker.jobs import Job, Jobs
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.commit import Commit
from wirelake.errors import InputError, StorageError
from wirelake.limits import (
    STATE_VALUES_BYTES_MAX,
    VALUES_ANSWER_BYTES_MAX,
    VALUES_ANSWER_HELD_BYTES,
)
from wirelake.message import FailureCode, Kind, Message, Operation
from wirelake.protocols.redis.frames import EncodedArray, EncodedMap
from wirelake.services.redis.arguments import (
    OK,
    RedisCall,
    Work,
    Writes,
    at_least,
    exactly,
    quoted,
    read_args,
    run_through,
)
from wirelake.services.redis.hashes import HashCommands
from wirelake.services.redis.keys import KeyCommands
from wirelake.services.redis.streams import Blocked, Later, StreamCommands
from wirelake.services.redis.strings import StringCommands
from wirelake.services.redis.transactions import Watches
from wirelake.state.store import StateStore

SERVICE: Final = "redis"

_CONFIG: Final = {b"appendonly": b"yes", b"databases": b"1", b"maxmemory": b"%d" % STATE_VALUES_BYTES_MAX, b"save": b""}
_REDIS: Final = "redis"  # the protocol whose sessions have transactions


class RedisService:
    """Also a watcher of the broker's: a peer that goes away watches and waits no longer."""

    def __init__(
        self,
        broker: Broker,
        state: StateStore,
        jobs: Jobs,
        now_ms: Callable[[], int],
        now_s: Callable[[], float],
        later: Later,
        is_admin: Callable[[Peer], bool],
        about: Callable[[], str],
    ) -> None:
        self._broker = broker
        self._values = state.values
        self._jobs = jobs
        self._now_ms = now_ms
        self._about = about  # what INFO tells
        self._writes = Writes()
        self._watches = Watches(state.values)
        self._streams = StreamCommands(broker, state, self._writes, now_s, later)
        self._operations: dict[str, Callable[[RedisCall], Any]] = {
            "config": self._config,
            "info": self._info,
            **StringCommands(state.values, self._writes).operations,
            **KeyCommands(state.values, state.topics, self._writes, is_admin).operations,
            **HashCommands(state.values, self._writes).operations,
            **self._streams.operations,
        }
        self._of_sessions: dict[str, Callable[[RedisCall], Any]] = {"watch": self._watch, "unwatch": self._unwatch}
        broker.observers.append(self)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        """Raises InputError in the words of redis."""
        op = message.target.op.lower() if isinstance(message.target, Operation) else ""
        if op == "exec" and peer.protocol == _REDIS:
            self._execute(peer, message)
            return
        decided = self._writes.decided
        said = self._do(op, RedisCall(peer, read_args(message), self._now_ms()))
        if isinstance(said, GeneratorType):
            self._jobs.start(peer, message, self._work(peer, message, said, decided))
            return
        answer = _answer(message, said)
        if self._writes.last is decided:
            self._broker.after(None, peer, answer)
        else:
            self._say(peer, message, answer, decided, len(answer.payload))

    def on_close(self, peer: Peer) -> None:
        self._watches.remove(peer)
        self._streams.left(peer)

    def on_drain(self, peer: Peer) -> None:
        """Nothing is held back for a slow reader."""

    def _do(self, op: str, call: RedisCall) -> Any:
        operation = self._operations.get(op)
        if operation is None and call.peer.protocol == _REDIS:
            operation = self._of_sessions.get(op)
        if operation is None:
            raise InputError(f"ERR unknown command '{op[:128]}'")
        return operation(call)

    def _say(self, peer: Peer, message: Message, answer: Message, decided: Commit | None, size_bytes: int) -> None:
        """Answer, when what was written since, or was on its way to the disk before, is there."""
        commit = self._writes.last
        if commit is decided:
            self._broker.after(None, peer, answer)
        elif size_bytes > VALUES_ANSWER_HELD_BYTES and not commit.is_done:
            self._jobs.start(peer, message, self._wait(peer, answer, commit))
        else:
            self._broker.after(commit, peer, answer)

    def _work(self, peer: Peer, message: Message, work: Work, decided: Commit | None) -> Job:
        """Answer a long command, when what it tells of is durable."""
        said = yield from work
        if isinstance(said, Blocked):
            self._streams.wait(said, partial(self._read_again, peer, message, said))
            return
        commit = None if self._writes.last is decided else self._writes.last
        yield commit
        self._broker.after(commit, peer, _answer(message, said))

    def _read_again(self, peer: Peer, message: Message, asked: Blocked) -> None:
        work = self._work(peer, message, self._streams.read(asked), self._writes.decided)
        self._jobs.start(peer, message, work)

    def _wait(self, peer: Peer, answer: Message, commit: Commit) -> Job:
        """Answer when this is durable."""
        yield commit
        self._broker.after(commit, peer, answer)

    # Transactions

    def _execute(self, peer: Peer, message: Message) -> None:
        """Do the commands that a session queued, all of them at once and on disk as one."""
        now_ms, decided = self._now_ms(), self._writes.decided
        if not self._watches.remove(peer, now_ms):
            self._say(peer, message, answered(message, fields={"value": None}), decided, 0)
            return
        parts: list[Message] = []
        size = 0
        with self._values.transaction():
            for verb, *args in message.fields["commands"]:
                part = self._part(verb, RedisCall(peer, args, now_ms, is_queued=True))
                size += _size(part)
                if size > VALUES_ANSWER_BYTES_MAX:
                    part = failed("", f"ERR the answer is over the limit of {VALUES_ANSWER_BYTES_MAX} bytes")
                parts.append(part)
        self._say(peer, message, answered(message, name="exec", parts=tuple(parts)), decided, size)

    def _part(self, verb: bytes, call: RedisCall) -> Message:
        """The answer to one of several commands."""
        try:
            if verb == b"publish":
                return self._publish(call)
            said = self._do(verb.decode(errors="backslashreplace"), call)
            return _answer(_PART, run_through(said) if isinstance(said, GeneratorType) else said)
        except InputError as error:
            return failed("", str(error), FailureCode.BAD_REQUEST)
        except StorageError as error:
            return failed("", str(error), FailureCode.STORAGE)

    def _publish(self, call: RedisCall) -> Message:
        topic, content = exactly(call.args, 2, "publish")
        message = Message(kind=Kind.NOTIFICATION, payload=content)
        said, commit = self._broker.publish(
            topic.decode(errors="backslashreplace"), message, call.peer.identity, call.now_ms
        )
        self._writes.last = commit or self._writes.last
        return answered(_PART, fields=said.fields or {"id": said.id})

    def _watch(self, call: RedisCall) -> Any:
        self._watches.add(call.peer, at_least(call.args, 1, "watch"), call.now_ms)
        return OK

    def _unwatch(self, call: RedisCall) -> Any:
        self._watches.remove(call.peer)
        return OK

    # About the gateway

    def _info(self, _call: RedisCall) -> bytes:
        """All of it, whatever sections were asked for."""
        keys = len(self._values)
        keyspace = f"# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n" if keys else "# Keyspace\r\n"
        return (self._about() + f"# Memory\r\nused_memory:{self._values.size_bytes}\r\n\r\n" + keyspace).encode()

    def _config(self, call: RedisCall) -> dict[bytes, bytes]:
        """The few that benchmarks and clients look at; nothing can be changed here."""
        sub, *names = at_least(call.args, 1, "config")
        if sub.lower() != b"get" or not names:
            raise InputError(f"ERR CONFIG {quoted(sub)} is not served here")
        return {name: _CONFIG[name] for name in map(bytes.lower, names) if name in _CONFIG}


_PART: Final = Message(kind=Kind.REQUEST)  # a command of a transaction: its answer has no number of its own


def _answer(message: Message, said: Any) -> Message:
    if isinstance(said, bytes):
        return answered(message, name="bulk_string", protocol=_REDIS, payload=said)
    return answered(message, fields={} if said is OK else {"value": said})


def _size(answer: Message) -> int:
    """About how many bytes it holds."""
    value = answer.fields.get("value")
    if isinstance(value, EncodedArray | EncodedMap):
        return len(value.data)
    if isinstance(value, dict):
        return sum(len(key) + len(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(len(each) for each in value if isinstance(each, bytes))
    return len(answer.payload)
