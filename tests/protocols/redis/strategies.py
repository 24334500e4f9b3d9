"""Random RESP commands and values of every type, and inline lines with every kind of quoting."""

from hypothesis import strategies as st

from wirelake.protocols.redis import frames
from wirelake.protocols.redis.frames import ClientFrame, Pair, Value
from wirelake.protocols.redis.syntax import split_words

datas = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"a\r\n$1\r\n", b"*1\r\n$4\r\nPING\r\n"])
line_texts = datas.map(lambda data: data.replace(b"\r", b"").replace(b"\n", b""))
i64 = st.integers(frames.I64_MIN, frames.I64_MAX)
double_texts = st.one_of(
    st.floats().map(lambda value: repr(value).encode()),
    st.sampled_from([b"inf", b"-inf", b"nan", b"+1.50", b".5", b"3.", b"1E+05"]),
)
big_texts = st.integers(-(10**40), 10**40).map(lambda value: b"%d" % value) | st.sampled_from([b"+7", b"007"])

scalars: st.SearchStrategy[Value] = st.one_of(
    st.builds(frames.SimpleString, line_texts),
    st.builds(frames.SimpleError, line_texts),
    st.builds(frames.Integer, i64),
    st.builds(frames.BulkString, datas),
    st.builds(frames.NullBulkString),
    st.builds(frames.NullArray),
    st.builds(frames.Null),
    st.builds(frames.Boolean, st.booleans()),
    st.builds(frames.Double, double_texts),
    st.builds(frames.BigNumber, big_texts),
    st.builds(frames.BulkError, datas),
    st.builds(frames.VerbatimString, st.binary(min_size=3, max_size=3), datas),
)


def aggregates(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    items = st.lists(values, max_size=4).map(tuple)
    pairs = st.lists(st.builds(Pair, values, values), max_size=3).map(tuple)
    return st.one_of(
        st.builds(frames.Array, items),
        st.builds(frames.Set, items),
        st.builds(frames.Push, items),
        st.builds(frames.Map, pairs),
        st.builds(frames.Attribute, pairs, values),
    )


values: st.SearchStrategy[Value] = st.recursive(scalars, aggregates, max_leaves=12)
pushed = st.builds(
    lambda name, rest: frames.Push((frames.BulkString(name), *rest)),
    st.sampled_from([b"message", b"pmessage", b"subscribe", b"pong"]),
    st.lists(scalars, max_size=3),
)
server_frames = st.one_of(values, pushed)

verbs = st.sampled_from([b"GET", b"set", b"AUTH", b"HELLO", b"Ping", b"ECHO", b"SUBSCRIBE", b"PUBLISH", b"QUIT", b"?"])
commands: st.SearchStrategy[ClientFrame] = st.builds(
    frames.Command,
    st.one_of(
        st.lists(datas, max_size=6).map(tuple),
        st.builds(lambda verb, args: (verb, *args), verbs, st.lists(datas, max_size=5)),
    ),
)


def quoted(word: bytes) -> bytes:
    """The word in double quotes, as an inline command may hold it."""
    return b'"' + b"".join([b"\\x%02x" % byte for byte in word]) + b'"'


def inline(line: bytes) -> frames.Inline:
    return frames.Inline(split_words(line), line)


plain_words = st.text("abcXYZ019:.-$+", min_size=1, max_size=8).map(str.encode).filter(lambda word: word[:1] != b"*")
spaces = st.sampled_from([b" ", b"  ", b"\t", b" \x0b"])
inlines: st.SearchStrategy[ClientFrame] = st.builds(
    lambda lead, words, space, end: inline(lead + space.join(words) + end),
    st.sampled_from([b"", b" "]),
    st.lists(st.one_of(plain_words, datas.map(quoted), st.just(b"'it\\'s'")), max_size=4),
    spaces,
    st.sampled_from([b"\n", b"\r\n", b" \r\n"]),
)
client_frames = st.one_of(commands, inlines)
