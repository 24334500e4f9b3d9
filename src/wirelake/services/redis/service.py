"""Run redis commands: each operation of the service `redis` is a command with its `args`.

A response is sent once the values in it are on disk: a read waits for the writes before it. A long command runs in
steps, with others served in between, unless it is part of a transaction.
"""

from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import Any, Final

from msgspec import Struct, field

from wirelake.broker.broker import Broker, answered
from wirelake.broker.peer import Job, JobRunner, Peer
from wirelake.broker.services import REQUEST_ERRORS, failed, failed_with
from wirelake.commit import Commit
from wirelake.errors import InputError
from wirelake.limits import (
    STATE_VALUES_BYTES_MAX,
    VALUES_ANSWER_BYTES_MAX,
    VALUES_ANSWER_HELD_BYTES,
    VALUES_TRANSACTION_KEYS_MAX,
)
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.redis.frames import EncodedArray, EncodedMap
from wirelake.services.redis.access import CommandAccess
from wirelake.services.redis.arguments import (
    OK,
    Args,
    RedisCall,
    Work,
    Writes,
    at_least,
    exactly,
    quoted,
    read_args,
    run_to_end,
)
from wirelake.services.redis.keys import KeyCommands
from wirelake.services.redis.streams import BlockedRead, Later, StreamCommands
from wirelake.services.redis.values import HashCommands, StringCommands
from wirelake.state.store import StateStore
from wirelake.state.values import Values

SERVICE: Final = "redis"

_CONFIG: Final = {b"appendonly": b"yes", b"databases": b"1", b"maxmemory": b"%d" % STATE_VALUES_BYTES_MAX, b"save": b""}
_REDIS: Final = "redis"  # the protocol whose sessions have transactions


class RedisService:
    """Run commands for peers. It observes the broker, to end the watches and waits of a peer that is closed."""

    def __init__(
        self,
        broker: Broker,
        state: StateStore,
        jobs: JobRunner,
        now_ms: Callable[[], int],
        now_s: Callable[[], float],
        later: Later,
        may_flush: Callable[[Peer], bool],
        about: Callable[[], str],
    ) -> None:
        self._broker = broker
        self._access = CommandAccess(broker.access)
        self._values = state.values
        self._jobs = jobs
        self._now_ms = now_ms
        self._about = about  # the first part of INFO
        self._writes = Writes()
        self._watches = Watches(state.values)
        self._streams = StreamCommands(broker, state, self._writes, now_s, later)
        self._operations: dict[str, Callable[[RedisCall], Any]] = {
            "acl": self._acl,
            "config": self._config,
            "info": self._info,
            **StringCommands(state.values, self._writes).operations,
            **KeyCommands(state.values, state.topics, self._writes, self._access, may_flush).operations,
            **HashCommands(state.values, self._writes).operations,
            **self._streams.operations,
        }
        self._session_operations: dict[str, Callable[[RedisCall], Any]] = {
            "watch": self._watch,
            "unwatch": self._unwatch,
        }
        broker.add_observer(self)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        """Run the command, and send the response. Raise InputError with the error text of redis."""
        op = message.target.op.lower() if isinstance(message.target, Operation) else ""
        if op == "exec" and peer.protocol == _REDIS:
            self._execute(peer, message)
            return
        done_before = self._writes.last_done
        result = self._run(op, RedisCall(peer, read_args(message), self._now_ms()))
        if isinstance(result, GeneratorType):
            self._jobs.start(peer, message, self._work(peer, message, result, done_before))
            return
        response = _response(message, result)
        if self._writes.last is done_before:
            self._broker.after(None, peer, response)
        else:
            self._respond(peer, message, response, done_before, len(response.payload))

    def on_close(self, peer: Peer) -> None:
        self._watches.remove(peer)
        self._streams.on_close(peer)

    def on_drain(self, peer: Peer) -> None:
        """Do nothing: no response is held back for a slow reader."""

    def _run(self, op: str, call: RedisCall) -> Any:
        operation = self._operations.get(op)
        if operation is None and call.peer.protocol == _REDIS:
            operation = self._session_operations.get(op)
        if operation is None:
            raise InputError(f"ERR unknown command '{op[:128]}'")
        self._access.check(op, call)
        return operation(call)

    def _respond(
        self, peer: Peer, message: Message, response: Message, done_before: Commit | None, size_bytes: int
    ) -> None:
        """Send the response once all writes up to now are on disk."""
        commit = self._writes.last
        if commit is done_before:
            self._broker.after(None, peer, response)
        elif size_bytes > VALUES_ANSWER_HELD_BYTES and not commit.is_done:
            self._jobs.start(peer, message, self._wait(peer, response, commit))
        else:
            self._broker.after(commit, peer, response)

    def _work(self, peer: Peer, message: Message, work: Work, done_before: Commit | None) -> Job:
        """Send the response to a long command once the values in it are durable."""
        result = yield from work
        if isinstance(result, BlockedRead):
            self._streams.wait(result, partial(self._read_again, peer, message, result))
            return
        commit = None if self._writes.last is done_before else self._writes.last
        yield commit
        self._broker.after(commit, peer, _response(message, result))

    def _read_again(self, peer: Peer, message: Message, blocked: BlockedRead) -> None:
        self._jobs.start(peer, message, self._work(peer, message, self._resume(blocked), self._writes.last_done))

    def _resume(self, blocked: BlockedRead) -> Work:
        self._access.check("xread", blocked.call)  # the roles may have changed since
        return (yield from self._streams.read(blocked))

    def _wait(self, peer: Peer, response: Message, commit: Commit) -> Job:
        """Send the response once the commit is durable."""
        yield commit
        self._broker.after(commit, peer, response)

    # Transactions

    def _execute(self, peer: Peer, message: Message) -> None:
        """Run the commands that a session queued, without interruption and as one commit."""
        now_ms, done_before = self._now_ms(), self._writes.last_done
        if not self._watches.remove(peer, now_ms):
            self._respond(peer, message, answered(message, fields={"value": None}), done_before, 0)
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
        self._respond(peer, message, answered(message, name="exec", parts=tuple(parts)), done_before, size)

    def _part(self, verb: bytes, call: RedisCall) -> Message:
        """Return the response to one of several commands."""
        try:
            if verb == b"publish":
                return self._publish(call)
            result = self._run(verb.decode(errors="backslashreplace"), call)
            return _response(_PART, run_to_end(result) if isinstance(result, GeneratorType) else result)
        except REQUEST_ERRORS as error:
            return failed_with(error)

    def _publish(self, call: RedisCall) -> Message:
        topic, content = exactly(call.args, 2, "publish")
        self._access.check("publish", call)
        message = Message(kind=Kind.NOTIFICATION, payload=content)
        result, commit = self._broker.publish(
            topic.decode(errors="backslashreplace"), message, call.peer.identity, call.now_ms
        )
        self._writes.last = commit or self._writes.last
        return answered(_PART, fields=result.fields or {"id": result.id})

    def _watch(self, call: RedisCall) -> Any:
        self._watches.add(call.peer, at_least(call.args, 1, "watch"), call.now_ms)
        return OK

    def _unwatch(self, call: RedisCall) -> Any:
        self._watches.remove(call.peer)
        return OK

    # About the gateway

    def _acl(self, call: RedisCall) -> bytes:
        sub, *rest = at_least(call.args, 1, "acl")
        if sub.lower() != b"whoami":
            raise InputError(f"ERR unknown subcommand '{quoted(sub)}'. Try ACL HELP.")
        exactly(rest, 0, "acl|whoami")
        return (call.peer.identity or "default").encode(errors="backslashreplace")

    def _info(self, call: RedisCall) -> bytes:
        """Return all sections, whichever the client requests. Totals are for those who may read all keys."""
        if self._access.readable(call.peer) is not None:
            return (self._about() + "# Memory\r\n\r\n# Keyspace\r\n").encode()
        keys = len(self._values)
        keyspace = f"# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n" if keys else "# Keyspace\r\n"
        return (self._about() + f"# Memory\r\nused_memory:{self._values.size_bytes}\r\n\r\n" + keyspace).encode()

    def _config(self, call: RedisCall) -> dict[bytes, bytes]:
        """Return the few settings that benchmarks and clients read. None can be changed."""
        sub, *names = at_least(call.args, 1, "config")
        if sub.lower() != b"get" or not names:
            raise InputError(f"ERR CONFIG {quoted(sub)} is not served here")
        return {name: _CONFIG[name] for name in map(bytes.lower, names) if name in _CONFIG}


_PART: Final = Message(kind=Kind.REQUEST)  # a command of a transaction, whose response has no correlation of its own


def _response(message: Message, result: Any) -> Message:
    if isinstance(result, bytes):
        return answered(message, name="bulk_string", protocol=_REDIS, payload=result)
    return answered(message, fields={} if result is OK else {"value": result})


def _size(response: Message) -> int:
    """Estimate the size of a response."""
    value = response.fields.get("value")
    if isinstance(value, EncodedArray | EncodedMap):
        return len(value.data)
    if isinstance(value, dict):
        return sum(len(key) + len(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(len(each) for each in value if isinstance(each, bytes))
    return len(response.payload)


class _Watch(Struct, eq=False):
    """Hold the keys that one connection watches."""

    existed: dict[bytes, bool] = field(default_factory=dict)  # key → whether it had a value
    has_changed: bool = False


class Watches:
    """Track which keys connections WATCH, and whether one of them changes before EXEC."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._by_peer: dict[str, _Watch] = {}
        self._by_key: dict[bytes, dict[_Watch, None]] = {}

    def add(self, peer: Peer, keys: Args, now_ms: int) -> None:
        watch = self._by_peer.get(peer.id, _Watch())
        new = [key for key in dict.fromkeys(keys) if key not in watch.existed]
        if len(watch.existed) + len(new) > VALUES_TRANSACTION_KEYS_MAX:
            raise InputError(f"ERR a connection watches at most {VALUES_TRANSACTION_KEYS_MAX} keys")
        self._by_peer[peer.id] = watch
        for key in new:
            watch.existed[key] = self._values.type(key, now_ms) is not None
            self._by_key.setdefault(key, {})[watch] = None
        self._values.on_change = self._on_key_change

    def remove(self, peer: Peer, now_ms: int | None = None) -> bool:
        """End the watches of this connection, and return whether none of its keys changed."""
        watch = self._by_peer.pop(peer.id, None)
        if watch is None:
            return True
        for key in watch.existed:
            watches = self._by_key[key]
            del watches[watch]
            if not watches:
                del self._by_key[key]
        if not self._by_peer:
            self._values.on_change = None
        if now_ms is None or watch.has_changed:
            return not watch.has_changed
        types = [self._values.type(key, now_ms) for key, had_value in watch.existed.items() if had_value]
        return None not in types  # None: it has expired since

    def _on_key_change(self, key: bytes | None) -> None:
        """Note that a key was written or removed; all keys, if None."""
        for watch in list(self._by_peer.values()) if key is None else self._by_key.get(key, ()):
            watch.has_changed = True
