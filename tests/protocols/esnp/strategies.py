"""Random esnp values, lines and messages, well-formed and not."""

from hypothesis import strategies as st

from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import AddressKind, Flag, Tag
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.values import Var

texts = st.text(max_size=12)
binaries = st.binary(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
u64 = st.integers(0, 2**64 - 1)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


SCALARS: dict[Tag, st.SearchStrategy[object]] = {
    Tag.NULL: st.none(),
    Tag.BOOL: st.booleans(),
    Tag.INT: int32,
    Tag.INT8: _signed(8),
    Tag.INT16: _signed(16),
    Tag.INT32: int32,
    Tag.INT64: _signed(64),
    Tag.UINT: st.integers(0, 2**32 - 1),
    Tag.UINT8: st.integers(0, 2**8 - 1),
    Tag.UINT16: st.integers(0, 2**16 - 1),
    Tag.UINT32: st.integers(0, 2**32 - 1),
    Tag.UINT64: u64,
    Tag.FLOAT32: st.floats(width=32, allow_nan=False),
    Tag.FLOAT64: st.floats(allow_nan=False),
    Tag.BYTES: binaries,
    Tag.STRING: texts,
}
scalars = st.one_of([st.builds(Var, st.just(tag.value), values) for tag, values in SCALARS.items()])
variables = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(Var, st.just(Tag.MAP.value), st.dictionaries(texts, inner, max_size=4)),
        st.builds(Var, st.just(Tag.LIST.value), st.lists(inner, max_size=4).map(tuple)),
    ),
    max_leaves=8,
)
kinds = st.sampled_from([kind.value for kind in AddressKind]) | int32

flag_lines = st.builds(lines.flag_line, st.sampled_from([flag.value for flag in Flag]) | int32)
head_lines = st.one_of(
    flag_lines,
    st.builds(lines.message_id_line, u64),
    st.builds(lines.source_message_id_line, u64),
    st.builds(lines.address_line, kinds, texts | st.just("wirelake") | st.sampled_from([op.value for op in Op])),
    st.builds(lines.source_address_line, kinds, texts),
    st.builds(lines.seq_no_line, int32, int32),
    st.builds(lines.error_line, texts),
    st.builds(lines.version_line, *[st.integers(0, 255)] * 4),
)
names = texts | st.sampled_from(["to", "timeout_ms", "esnp.lines", "id", "type", "ts", "topic", "content", "service"])
body_lines = st.one_of(
    st.builds(lines.session_info_line, names, variables),
    st.builds(lines.header_line, names, variables),
    st.builds(lines.data_line, names, variables),
    st.builds(lines.payload_line, binaries),
    st.builds(lines.xdata_line, int32, binaries),
)
withdrawn_lines = st.builds(Line, st.sampled_from([0x13, 0x19, 0x1A]), binaries)
unknown_lines = st.builds(Line, st.integers(1, 15) | st.integers(0x20, 0x7F), binaries)
application_lines = st.builds(Line, st.integers(0x80, 0xFF), binaries)
# Known types with any bytes inside; those of a fixed size keep it.
raw_lines = st.one_of(
    st.builds(Line, st.sampled_from([0x10, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1B, 0x1C, 0x1D, 0x1E]), binaries),
    st.builds(Line, st.sampled_from([0x11, 0x12]), st.binary(min_size=8, max_size=8)),
    st.builds(Line, st.just(0x1F), st.binary(min_size=4, max_size=4)),
)


def _message(*parts: list[Line]) -> EsnpMessage:
    return EsnpMessage(tuple(line for part in parts for line in part))


good_messages = st.builds(
    _message,
    st.lists(head_lines | withdrawn_lines | unknown_lines, max_size=5),
    st.lists(body_lines | application_lines | unknown_lines, max_size=4),
)
any_messages = st.one_of(
    good_messages,
    st.lists(head_lines | body_lines | withdrawn_lines | unknown_lines | application_lines | raw_lines, max_size=6).map(
        _message
    ),
)

# Common messages that esnp carries without loss, by who says them.
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts | binaries,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
field_names = texts.filter(lambda name: name not in {"id", "type", "ts", "topic", "content"})
fields = st.dictionaries(field_names, plain_values, max_size=3)
headers = st.fixed_dictionaries(
    {},
    optional={
        "lang": plain_values,
        "timeout_ms": st.integers(0, 2**40),
        "esnp.flags": st.lists(st.sampled_from([1, 7, 0, 128, -5]), min_size=1, max_size=2),
        "esnp.session": st.dictionaries(texts, plain_values, min_size=1, max_size=2),
        "esnp.source": st.lists(st.tuples(int32, texts).map(list), min_size=1, max_size=2),
        "esnp.lines": st.lists(st.tuples(st.integers(0x80, 255), binaries).map(list), min_size=1, max_size=2),
    },
)
numbers = st.just("") | u64.map(str)
services = st.builds(Operation, texts.filter(lambda name: name not in ("", "wirelake")), texts, texts, texts, texts)
failures = st.none() | st.builds(Failure, texts)
common: dict[str, object] = {"protocol": st.just("esnp"), "headers": headers}
carried = {"correlation": numbers, "fields": fields, "payload": binaries, "failure": failures, **common}


def _built(**parts: object) -> st.SearchStrategy[Message]:
    return st.builds(Message, **parts)  # type: ignore[arg-type]


either_says = st.one_of(
    _built(kind=st.just(Kind.REQUEST), name=st.just("request"), target=services, **carried),
    _built(kind=st.just(Kind.RESPONSE), name=st.just("response"), target=st.none() | services, **carried),
    _built(kind=st.just(Kind.EVENT), name=st.just("event"), target=services, **carried),
    _built(kind=st.just(Kind.EVENT), name=st.just("info"), target=services, **carried | {"correlation": st.just("")}),
    _built(kind=st.just(Kind.EVENT), name=st.just("trace"), target=st.none() | services, **carried),
)
server_says = either_says | _built(
    kind=st.just(Kind.NOTIFICATION),
    name=st.just("notification"),
    target=st.builds(Topic, texts.filter(bool)),
    id=texts,
    type=int32,
    at_ms=st.integers(0, 2**50),
    fields=fields,
    payload=binaries,
    **common,
)


def _control(op: Op, **parts: object) -> st.SearchStrategy[Message]:
    return st.builds(control, st.just(op), name=st.just(op.value), correlation=numbers, **common, **parts)  # type: ignore[arg-type]


def _topics(topics: list[str]) -> dict[str, object]:
    return {"topics": topics}


client_says = st.one_of(
    either_says,
    _control(Op.LOGIN, credentials=st.builds(Credentials, texts, texts)),
    _control(Op.PING),
    _control(Op.SUBSCRIBE, fields=st.lists(texts, max_size=3).map(_topics)),
    _control(Op.UNSUBSCRIBE, fields=st.lists(texts, max_size=3).map(_topics)),
    _control(Op.REGISTER, fields=st.fixed_dictionaries({"service": texts})),
    _control(Op.UNREGISTER, fields=st.fixed_dictionaries({"service": texts})),
    _built(
        kind=st.just(Kind.NOTIFICATION),
        name=st.just("publish"),
        correlation=numbers,
        target=st.builds(Topic, texts.filter(bool)),
        type=int32,
        at_ms=st.integers(0, 2**50),
        fields=fields,
        payload=binaries,
        **common,
    ),
)
