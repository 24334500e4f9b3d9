"""Implement the commands on streams. A durable topic is a stream: XADD publishes to it, XREAD and XRANGE read from it.

An entry's id is its position in the topic, `<position>-0`. Its fields are a JSON object of texts, which may have the
same name twice; bytes that are not UTF-8 are lone surrogates in it (`\\udc80` to `\\udcff`), so that nothing is lost.
Any other content is an entry with the single field `content`. So subscribers of other protocols receive plain text if
an entry has just that field, and what they publish can be read as entries.
"""

import json
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
    VALUES_ENTRY_BYTES_MAX,
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
    add_size,
    at_least,
    number,
    wrong_arity,
)
from wirelake.state.notifications import StoredNotification
from wirelake.state.store import StateStore

CONTENT: Final = b"content"
BAD_ID: Final = "ERR Invalid stream ID specified as stream command argument"

_ID_BYTES_MAX: Final = 127
_U64_MAX: Final = 2**64 - 1
_TRIMMING: Final = frozenset({b"maxlen", b"minid", b"limit"})


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], object]], Timer]


class _StreamRead(Struct):
    """Hold the arguments of an XREAD."""

    count: int = 0  # of each stream; 0: all
    block_s: float | None = None
    starts: list[tuple[bytes, bytes]] = field(default_factory=list)  # stream, and the id after which to read


class BlockedRead(Struct, frozen=True):
    """Hold an XREAD that found nothing yet, and is repeated when there is something."""

    call: RedisCall
    after: list[tuple[bytes, str, int]]  # stream, topic and position
    count: int
    deadline_s: float


class _Wait(Struct, frozen=True, eq=False):
    """Wait for new entries of these topics."""

    names: tuple[str, ...]
    wake: Commit
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
        self._waits: dict[str, dict[_Wait, None]] = {}  # by peer id
        self.operations: dict[str, Callable[[RedisCall], Any]] = {
            "xadd": self._add,
            "xrange": self._range,
            "xread": self._read,
        }

    def on_close(self, peer: Peer) -> None:
        """End the waits of a peer."""
        for wait in list(self._waits.get(peer.id, ())):
            self._end_wait(peer, wait)

    def _add(self, call: RedisCall) -> bytes | None:
        key, *rest = at_least(call.args, 4, "xadd")
        can_create = True
        while rest and (option := rest[0].lower()) in _TRIMMING | {b"nomkstream"}:
            if option != b"nomkstream":
                raise InputError(
                    f"ERR {option.decode().upper()} is not served here: entries of a durable topic expire by their age"
                )
            can_create = False
            rest = rest[1:]
        id_, *fields = rest or [b""]
        if id_ != b"*":
            read_id(id_.removesuffix(b"-*"))
        if len(fields) < 2 or len(fields) % 2:
            raise wrong_arity("xadd")
        if not id_.endswith(b"*") and read_id(id_) == (0, 0):
            raise InputError("ERR The ID specified in XADD must be greater than 0-0")
        name = self._name(key, call.now_ms)
        if name is None:
            raise InputError("ERR a stream is a durable topic here, and its name begins with @")
        if id_ != b"*":
            raise _id_error(*read_id(id_.removesuffix(b"-*")), self._topics.head(name))
        if not can_create and not self._topics.head(name):
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
        position, remaining = first - 1, count if count > 0 else last
        while position < last and remaining > 0:
            rows = self._topics.read_after(name, position, min(remaining, VALUES_KEYS_AT_ONCE))
            rows = [row for row in rows if row.position <= last]
            if not rows:
                break
            for row in rows:
                entries.add(row)
            position, remaining = rows[-1].position, remaining - len(rows)
            yield None
        return entries.result()

    def _read(self, call: RedisCall) -> Work:
        arguments = _parse_read(call.args)
        after: list[tuple[bytes, str, int]] = []
        for key, start in arguments.starts:
            name = self._name(key, call.now_ms)
            position = None if start == b"$" else _start(start)
            if name is not None:
                after.append((key, name, self._topics.head(name) if position is None else position))
        if not call.is_queued:
            yield self._writes.last
        if arguments.block_s is None or call.is_queued:
            deadline_s = 0.0
        else:
            deadline_s = self._now_s() + min(arguments.block_s or VALUES_BLOCK_S_MAX, VALUES_BLOCK_S_MAX)
        return (yield from self.read(BlockedRead(call, after, arguments.count, deadline_s)))

    def read(self, blocked: BlockedRead) -> Work:
        """Return the new entries, or the read itself if it has to wait."""
        found = yield from self._read_each(blocked.call, blocked.after, blocked.count)
        if found or self._now_s() >= blocked.deadline_s:
            return found or None
        return blocked

    def wait(self, blocked: BlockedRead, resume: Callable[[], object]) -> None:
        """Call `resume` when there may be something to read, or on timeout, unless the peer is closed before."""
        peer, names, wake = blocked.call.peer, tuple({name for _, name, _ in blocked.after}), Commit()
        waits = self._waits.setdefault(peer.id, {})
        if len(waits) >= VALUES_STREAMS_MAX:
            raise InputError(f"ERR {len(waits)} requests of this connection wait already")
        wait = _Wait(names, wake, self._later(max(blocked.deadline_s - self._now_s(), 0.0), partial(_resolve, wake)))
        waits[wait] = None
        for name in names:
            self._broker.durable.readers.setdefault(name, {})[wake] = None
        wake.add_done_callback(lambda _: self._resume(peer, wait, resume))

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
                found.append([key, entries.result()])
        return found

    def _name(self, key: bytes, now_ms: int) -> str | None:
        """Return the durable topic of this key, or None. Raise WrongTypeError if the key has a value."""
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
                readers[name].pop(wait.wake, None)
                if not readers[name]:
                    del readers[name]
        wait.timer.cancel()
        _resolve(wait.wake)


class _Entries:
    """Collect entries for a response. Those for a redis client are encoded on the way; others get lists."""

    def __init__(self, *, is_redis: bool) -> None:
        self.count = 0
        self._is_redis = is_redis
        self._encoded: list[bytes] = []
        self._plain: list[list[Any]] = []
        self._size = 0

    def add(self, row: StoredNotification) -> None:
        fields = fields_of_content(row.content)
        self._size = add_size(self._size, row.content)
        self.count += 1
        if not self._is_redis:
            self._plain.append([id_of(row.position), fields])
            return
        shown = id_of(row.position)
        self._encoded.append(b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(shown), shown, len(fields)))
        self._encoded += [b"$%d\r\n%b\r\n" % (len(each), each) for each in fields]

    def result(self) -> Any:
        if not self._is_redis:
            return self._plain
        return EncodedArray(b"".join([b"*%d\r\n" % self.count, *self._encoded]))


def keys_of_read(args: Args) -> Args:
    """Return the streams of an XREAD. Raise InputError as the command itself does."""
    return [key for key, _ in _parse_read(args).starts]


def _parse_read(args: Args) -> _StreamRead:
    at_least(args, 3, "xread")
    read = _StreamRead()
    index = 0
    while index < len(args):
        option, rest = args[index].lower(), args[index + 1 :]
        if option == b"block" and rest:
            block_ms = number(rest[0], "ERR timeout is not an integer or out of range")
            if block_ms < 0:
                raise InputError("ERR timeout is negative")
            read.block_s = block_ms / 1000
        elif option == b"count" and rest:
            read.count = max(number(rest[0]), 0)
        elif option == b"streams" and rest:
            read.starts = _parse_starts(rest)
            return read
        elif option == b"group" and len(rest) >= 2:
            raise InputError("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.")
        elif option == b"noack":
            raise InputError("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.")
        else:
            raise InputError(SYNTAX)
        index += 2
    raise InputError(SYNTAX)


def _parse_starts(args: Args) -> list[tuple[bytes, bytes]]:
    """Parse the keys and, after them, an id for each."""
    if len(args) % 2:
        raise InputError("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.")
    keys, ids = args[: len(args) // 2], args[len(args) // 2 :]
    if len(keys) > VALUES_STREAMS_MAX:
        raise InputError(f"ERR {len(keys)} streams at once: at most {VALUES_STREAMS_MAX}")
    return list(zip(keys, ids, strict=True))


def _start(text: bytes) -> int:
    """Return the position after which to read."""
    if text == b">":
        raise InputError(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
        )
    return read_id(text)[0]


def _id_error(position: int, seq: int, head: int) -> InputError:
    if (position, seq) <= (head, 0):
        return InputError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    return InputError("ERR the ids of a durable topic are given by the gateway: use *")


def _resolve(commit: Commit) -> None:
    if not commit.is_done:
        commit.resolve()


class _NoFieldsError(ValueError):
    """Raised for JSON that is not an object of texts."""


def content_of_fields(fields: Args) -> bytes:
    """Return the content to publish for names and values in turn."""
    if len(fields) == 2 and fields[0] == CONTENT and _fields_in(fields[1]) is None:
        return fields[1]
    texts = [json.dumps(field.decode(errors="surrogateescape"), ensure_ascii=False) for field in fields]
    members = [f"{name}:{value}" for name, value in zip(texts[::2], texts[1::2], strict=True)]
    text = "{" + ",".join(members) + "}"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a lone surrogate: bytes that are not UTF-8
        content = b"".join([c.encode() if not 0xD800 <= ord(c) <= 0xDFFF else b"\\u%04x" % ord(c) for c in text])
    if len(content) > VALUES_ENTRY_BYTES_MAX:
        raise InputError(f"ERR an entry has at most {VALUES_ENTRY_BYTES_MAX} bytes, as JSON")
    return content


def fields_of_content(content: bytes) -> list[bytes]:
    """Return the names and values of an entry in turn."""
    found = _fields_in(content)
    return [CONTENT, content] if found is None else found


def _fields_in(content: bytes) -> list[bytes] | None:
    if not content.startswith(b"{") or not content.endswith(b"}") or len(content) > VALUES_ENTRY_BYTES_MAX:
        return None
    try:
        found = json.loads(content, object_pairs_hook=_texts)
        return [text.encode(errors="surrogateescape") for text in found] or None
    except (ValueError, RecursionError):
        return None


def _texts(members: list[tuple[str, Any]]) -> list[str]:
    texts = [text for member in members for text in member]
    if not all(isinstance(text, str) for text in texts):
        raise _NoFieldsError
    return texts


def id_of(position: int) -> bytes:
    return b"%d-0" % position


def read_id(text: bytes, missing_seq: int = 0) -> tuple[int, int]:
    """Return both numbers of an id. The second is optional."""
    if not text or len(text) > _ID_BYTES_MAX:
        raise InputError(BAD_ID)
    first, dash, second = text.partition(b"-")
    if dash and not second:
        raise InputError(BAD_ID)
    return _parse_u64(first), _parse_u64(second) if dash else missing_seq


def first_position(text: bytes) -> int:
    """Return the first position of a range that starts at this id."""
    if text == b"-":
        return 1
    if text == b"+":
        return _U64_MAX
    exclusive = text.startswith(b"(")
    position, seq = read_id(text.removeprefix(b"(") if exclusive else text)
    if exclusive and (position, seq) == (_U64_MAX, _U64_MAX):
        raise InputError("ERR invalid start ID for the interval")
    return position + 1 if exclusive or seq else position


def last_position(text: bytes) -> int:
    """Return the last position of a range that ends at this id."""
    if text == b"+":
        return _U64_MAX
    if text == b"-":
        return 0
    exclusive = text.startswith(b"(")
    position, seq = read_id(text.removeprefix(b"(") if exclusive else text, _U64_MAX)
    if exclusive and (position, seq) == (0, 0):
        raise InputError("ERR invalid end ID for the interval")
    return position - 1 if exclusive and not seq else position


def _parse_u64(digits: bytes) -> int:
    if not digits.isdigit() or int(digits) > _U64_MAX:
        raise InputError(BAD_ID)
    return int(digits)
