"""Random sisnet messages of every form."""

from hypothesis import strategies as st

from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest, Extension
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis

words = st.text(st.characters(exclude_characters="{}():", exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
known_keys = st.sampled_from(
    ["ask", "command", "cmd", "argv", "key", "sdb", "service", "fmt", "ans", "msg", "fuc", "lnk", "login", "logout"]
)
gateway_requests = st.fixed_dictionaries(
    {
        "service": st.sampled_from(["wirelake", "sisdb", ""]),
        "command": st.sampled_from(
            ["login", "subscribe", "publish", "register", "ping", "dict", "get", "sub", "unsub"]
        ),
        "ask": st.dictionaries(
            st.sampled_from(["topic", "type", "content", "encoding", "name", "password", "payload", "key", "sdb"]),
            json_values | st.just("base64"),
        )
        | json_values,
    }
)
objects = st.one_of(
    st.dictionaries(known_keys | st.text(max_size=6), json_values, max_size=5),
    st.fixed_dictionaries({"ans": st.integers(-101, 8), "msg": json_values}, optional={"fuc": json_values}),
    gateway_requests,
)
small = st.none() | st.binary(max_size=20) | st.just(b'{"a":1}') | st.just(b"x" * 300)
numbers = st.none() | st.integers(-101, 10).map(lambda number: str(number).encode())
extensions = st.none() | st.lists(
    st.builds(Extension, st.binary(max_size=6) | st.just(b"command"), st.binary(max_size=6)), max_size=3
).map(tuple)


def _filled(
    kind: type[BinaryRequest | BinaryAnswer], **fields: st.SearchStrategy[bytes | None]
) -> st.SearchStrategy[SisnetFrame]:
    """With fields, with bare data, or with nothing."""
    some = st.builds(kind, message_name=words, extensions=extensions, ver=st.just(b"1.0"), **fields)
    bare = st.builds(kind, message_name=words, extensions=extensions, data=st.binary(max_size=300))
    return st.one_of(some, bare, st.builds(kind, message_name=words, extensions=st.none() | st.just(())))


jsons = st.builds(Json.of, words, objects | st.lists(json_values, max_size=4))
data_lines = st.builds(
    DataLine,
    words,
    words.map(lambda word: "s" + word),
    words.map(lambda word: "k" + word),
    words.filter(lambda word: not word.startswith("[")),  # else it could not be told from JSON under a relayed name
    st.binary(max_size=60),
)
binary_frames: st.SearchStrategy[SisnetFrame] = st.one_of(
    _filled(BinaryRequest, command=small, service=small, ask=small, fmt=small, lnk=small),
    _filled(BinaryAnswer, ans=numbers, msg=small, fuc=numbers, lnk=small),
)
any_frames: st.SearchStrategy[SisnetFrame] = st.one_of(
    jsons,
    binary_frames,
    data_lines,
    st.builds(Http, words, st.binary(max_size=60) | objects.map(lambda each: Json.of("", each).text)),
    st.builds(Redis, words, st.binary(max_size=60)),
)
