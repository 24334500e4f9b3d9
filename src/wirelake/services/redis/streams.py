"""Commands on streams. A durable topic is one: XADD publishes on it, XREAD and XRANGE read by position."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct, field

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError, WrongTypeError
from wirelake.limits import (
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
    VALUES_BLOCK_S_MAX,
    VALUES_KEYS_AT_ONCE,
    VALUES_STREAMS_MAX,
)
from wirelake.message import Kind, Message
from wirelake.protocols.redis.frames import EncodedArray
from wirelake.services.redis.arguments import (
    SYNTAX,
    Args,
    RedisCall,
    Work,
    Writes,
    at_least,
    counted,
    misused,
    number,
)
from wirelake.services.redis.entries import (
    content_of_fields,
    fields_of_content,
    first_position,
    id_of,
    last_position,
    read_id,
)
from wirelake.state.notifications import StoredNotification
from wirelake.state.store import StateStore

_TRIMMING: Final = frozenset({b"maxlen", b"minid", b"limit"})


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], object]], Timer]


class _Reading(Struct):
    """What an XREAD asks for."""

    count: int = 0  # of each stream; 0: as many as there are
    block_s: float | None = None
    starts: list[tuple[bytes, bytes]] = field(default_factory=list)  # stream, and the id behind which it begins


class Blocked(Struct, frozen=True):
    """An XREAD that found nothing yet, and may be asked again once there is something."""

    call: RedisCall
    after: list[tuple[bytes, str, int]]  # stream, topic and position
    count: int
    ends_s: float


class _Wait(Struct, frozen=True, eq=False):
    """Somebody waits for new entries of these topics."""

    names: tuple[str, ...]
    over: Commit
    timer: Timer


class StreamCommands:
    def __init__(
        self, broker: Broker, state: StateStore, writes: Writes, now_s: Callable[[], float], later: Later
    ) -> None:
        self._broker = broker
        self._values = state.values
        self._topics = state.topics
        self._writes = writes
        self._now_s = now_s
        self._later = later
        self._waits: dict[str, dict[_Wait, None]] = {}  # by peer
        self.operations: dict[str, Callable[[RedisCall], Any]] = {
            "xadd": self._add,
            "xrange": self._range,
            "xread": self._read,
        }

    def left(self, peer: Peer) -> None:
        """Forget a peer, and what it waited for."""
        for wait in list(self._waits.get(peer.id, ())):
            self._end_wait(peer, wait)

    def _add(self, call: RedisCall) -> bytes | None:
        key, *rest = at_least(call.args, 4, "xadd")
        makes_stream = True
        while rest and (option := rest[0].lower()) in _TRIMMING | {b"nomkstream"}:
            if option != b"nomkstream":
                raise InputError(
                    f"ERR {option.decode().upper()} is not served here: entries of a durable topic expire by their age"
                )
            makes_stream = False
            rest = rest[1:]
        wanted, *fields = rest or [b""]
        if wanted != b"*":
            read_id(wanted.removesuffix(b"-*"))
        if len(fields) < 2 or len(fields) % 2:
            raise misused("xadd")
        if not wanted.endswith(b"*") and read_id(wanted) == (0, 0):
            raise InputError("ERR The ID specified in XADD must be greater than 0-0")
        name = self._name(key, call.now_ms)
        if name is None:
            raise InputError("ERR a stream is a durable topic here, and its name begins with @")
        if wanted != b"*":
            raise _refused_id(*read_id(wanted.removesuffix(b"-*")), self._topics.head(name))
        if not makes_stream and not self._topics.head(name):
            return None
        message = Message(kind=Kind.NOTIFICATION, payload=content_of_fields(fields))
        with self._values.transaction():
            _, commit = self._broker.publish(name, message, call.peer.identity, call.now_ms)
            self._topics.make_stream(name)
        self._writes.last = commit or self._writes.last
        return id_of(self._topics.head(name))

    def _range(self, call: RedisCall) -> Work:
        key, start, end, *options = at_least(call.args, 3, "xrange")
        first, last = first_position(start), last_position(end)
        count = -1
        while options:
            option, *options = options
            if option.lower() != b"count" or not options:
                raise InputError(SYNTAX)
            count = max(number(options[0]), 0)
            options = options[1:]
        name = self._name(key, call.now_ms)
        if name is None or not self._topics.head(name):
            return []
        if not count:
            return None
        if not call.is_queued:
            yield self._writes.last  # only what is durable can be read
        entries = _Entries(is_redis=call.peer.protocol == "redis")
        position, left = first - 1, count if count > 0 else last
        while position < last and left > 0:
            rows = self._topics.read_after(name, position, min(left, VALUES_KEYS_AT_ONCE))
            rows = [row for row in rows if row.position <= last]
            if not rows:
                break
            for row in rows:
                entries.add(row)
            position, left = rows[-1].position, left - len(rows)
            yield None
        return entries.answer()

    def _read(self, call: RedisCall) -> Work:
        reading = _reading(at_least(call.args, 3, "xread"))
        after: list[tuple[bytes, str, int]] = []
        for key, start in reading.starts:
            name = self._name(key, call.now_ms)
            position = None if start == b"$" else _start(start)
            if name is not None:
                after.append((key, name, self._topics.head(name) if position is None else position))
        if not call.is_queued:
            yield self._writes.last
        if reading.block_s is None or call.is_queued:
            ends_s = 0.0
        else:
            ends_s = self._now_s() + min(reading.block_s or VALUES_BLOCK_S_MAX, VALUES_BLOCK_S_MAX)
        return (yield from self.read(Blocked(call, after, reading.count, ends_s)))

    def read(self, asked: Blocked) -> Work:
        """Return what there is, or that this has to wait."""
        found = yield from self._read_each(asked.call, asked.after, asked.count)
        if found or self._now_s() >= asked.ends_s:
            return found or None
        return asked

    def wait(self, asked: Blocked, resume: Callable[[], object]) -> None:
        """Call this when there may be something to read, or the time is up; unless the peer goes away before."""
        peer, names, over = asked.call.peer, tuple({name for _, name, _ in asked.after}), Commit()
        waits = self._waits.setdefault(peer.id, {})
        if len(waits) >= VALUES_STREAMS_MAX:
            raise InputError(f"ERR {len(waits)} requests of this connection wait already")
        wait = _Wait(names, over, self._later(max(asked.ends_s - self._now_s(), 0.0), partial(_resolve, over)))
        waits[wait] = None
        for name in names:
            self._broker.durable.readers.setdefault(name, {})[over] = None
        over.add_done_callback(lambda _: self._resume(peer, wait, resume))

    def _resume(self, peer: Peer, wait: _Wait, resume: Callable[[], object]) -> None:
        if wait in self._waits.get(peer.id, {}):
            self._end_wait(peer, wait)
            resume()

    def _read_each(self, call: RedisCall, after: list[tuple[bytes, str, int]], count: int) -> Work:
        found: list[list[Any]] = []
        rows_left, bytes_left = STATE_READ_ROWS_MAX, STATE_READ_BYTES_MAX
        for key, name, start in after:
            entries = _Entries(is_redis=call.peer.protocol == "redis")
            position, wanted = start, min(count or rows_left, rows_left)
            while wanted > 0 and bytes_left > 0:
                rows = self._topics.read_after(name, position, min(wanted, VALUES_KEYS_AT_ONCE), bytes_left)
                if not rows:
                    break
                for row in rows:
                    entries.add(row)
                    bytes_left -= len(row.content)
                position, wanted = rows[-1].position, wanted - len(rows)
                rows_left -= len(rows)
                yield None
            if entries.count:
                found.append([key, entries.answer()])
        return found

    def _name(self, key: bytes, now_ms: int) -> str | None:
        """The topic that this names, None for another name. Raises WrongTypeError where the key has a value."""
        if self._values.type(key, now_ms) is not None:
            raise WrongTypeError
        if not key.startswith(b"@"):
            return None
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise InputError("ERR the name of a topic is UTF-8 text") from error

    def _end_wait(self, peer: Peer, wait: _Wait) -> None:
        waits, readers = self._waits.get(peer.id, {}), self._broker.durable.readers
        waits.pop(wait, None)
        if not waits:
            self._waits.pop(peer.id, None)
        for name in wait.names:
            if name in readers:
                readers[name].pop(wait.over, None)
                if not readers[name]:
                    del readers[name]
        wait.timer.cancel()
        _resolve(wait.over)


class _Entries:
    """Entries for an answer. A redis client's are encoded on the way, others take lists."""

    def __init__(self, *, is_redis: bool) -> None:
        self.count = 0
        self._is_redis = is_redis
        self._encoded: list[bytes] = []
        self._plain: list[list[Any]] = []
        self._size = 0

    def add(self, row: StoredNotification) -> None:
        fields = fields_of_content(row.content)
        self._size = counted(self._size, row.content)
        self.count += 1
        if not self._is_redis:
            self._plain.append([id_of(row.position), fields])
            return
        shown = id_of(row.position)
        self._encoded.append(b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(shown), shown, len(fields)))
        self._encoded += [b"$%d\r\n%b\r\n" % (len(each), each) for each in fields]

    def answer(self) -> Any:
        if not self._is_redis:
            return self._plain
        return EncodedArray(b"".join([b"*%d\r\n" % self.count, *self._encoded]))


def _reading(args: Args) -> _Reading:
    found = _Reading()
    place = 0
    while place < len(args):
        option, rest = args[place].lower(), args[place + 1 :]
        if option == b"block" and rest:
            block_ms = number(rest[0], "ERR timeout is not an integer or out of range")
            if block_ms < 0:
                raise InputError("ERR timeout is negative")
            found.block_s = block_ms / 1000
        elif option == b"count" and rest:
            found.count = max(number(rest[0]), 0)
        elif option == b"streams" and rest:
            found.starts = _starts(rest)
            return found
        elif option == b"group" and len(rest) >= 2:
            raise InputError("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.")
        elif option == b"noack":
            raise InputError("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.")
        else:
            raise InputError(SYNTAX)
        place += 2
    raise InputError(SYNTAX)


def _starts(args: Args) -> list[tuple[bytes, bytes]]:
    """Names, then as many ids."""
    if len(args) % 2:
        raise InputError("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.")
    keys, ids = args[: len(args) // 2], args[len(args) // 2 :]
    if len(keys) > VALUES_STREAMS_MAX:
        raise InputError(f"ERR {len(keys)} streams at once: at most {VALUES_STREAMS_MAX}")
    return list(zip(keys, ids, strict=True))


def _start(text: bytes) -> int:
    """The position behind which to read."""
    if text == b">":
        raise InputError(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
        )
    return read_id(text)[0]


def _refused_id(position: int, seq: int, head: int) -> InputError:
    if (position, seq) <= (head, 0):
        return InputError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    return InputError("ERR the ids of a durable topic are given by the gateway: use *")


def _resolve(commit: Commit) -> None:
    if not commit.is_done:
        commit.resolve()
