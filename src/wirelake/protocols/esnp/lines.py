"""The lines of a message, described: `LINES`. A message holds them as types and raw bytes, which are read on access.

    type (u8) | size (u24) | data

Values that name their type nest and share limits across the lines of a message, so `values` reads and writes them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct as Layout
from typing import Annotated, Any

from msgspec import Struct

from wirelake.errors import EncodeError
from wirelake.layout import (
    Body,
    BodyCodec,
    Envelope,
    FrameSet,
    LayoutFrame,
    custom,
    label,
    length_of_body,
    names,
    opcode,
    rest_bytes,
    rest_text,
    shown,
    text_zigzag,
    u8,
    u24,
    u64,
    zigzag32,
)
from wirelake.protocols.esnp.constants import (
    ADDRESS_NAMES,
    ESNP_ADDRESS_KEPT_BYTES_MAX,
    ESNP_ADDRESSES_KEPT_MAX,
    ESNP_FRAME_BYTES_MAX,
    FLAG_NAMES,
    Flag,
    LineType,
)
from wirelake.protocols.esnp.value_tree import dissect_var
from wirelake.protocols.esnp.values import Var, VarReader, write_text

_U64 = Layout(">Q")
U64_MAX = (1 << 64) - 1
_VERSION_BYTES = 4


class Line(Struct, frozen=True, gc=False):
    """A type and raw bytes."""

    type: int
    data: bytes = b""


class LineHead(Envelope, frame_bytes_max=ESNP_FRAME_BYTES_MAX, limit_name="esnp_frame_bytes_max"):
    type: Annotated[u8, opcode()]
    size: Annotated[u24, length_of_body()]
    body: Body


class DescribedLine(LayoutFrame, frozen=True, envelope=LineHead):
    """A line whose data is read."""


def _read_var(frame: bytes, start: int, end: int) -> tuple[Var, int]:
    return VarReader().to_the_end(frame[:end], start), end


def _var_strategy() -> Any:
    """Return a strategy for values of every kind that a plain value becomes."""
    from hypothesis import strategies as st  # noqa: PLC0415 (only tests have Hypothesis)

    from wirelake.protocols.esnp.values import var_of  # noqa: PLC0415

    plain = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=8)
    nested = st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=4), plain, max_size=3)
    return (plain | st.binary(max_size=8) | nested).map(var_of)


class NamedLine(DescribedLine, frozen=True):
    """A name and a value."""

    key: Annotated[text_zigzag, label("name")]
    value: Annotated[Var, custom(_read_var, Var.encode, strategy=_var_strategy, title="Var", dissect=dissect_var)]


class SessionInfo(NamedLine, frozen=True, opcode=LineType.SESSION_INFO):
    name = "SESSION_INFO"


class MessageId(DescribedLine, frozen=True, opcode=LineType.MESSAGE_ID):
    """The sender's number of the message."""

    name = "MESSAGE_ID"
    number: Annotated[u64, label("data")]


class SourceMessageId(MessageId, frozen=True, opcode=LineType.SOURCE_MESSAGE_ID):
    """The number of the message that this one answers."""

    name = "SOURCE_MESSAGE_ID"


class Header(NamedLine, frozen=True, opcode=LineType.HEADER):
    name = "HEADER"


class Data(NamedLine, frozen=True, opcode=LineType.DATA):
    name = "DATA"


class Payload(DescribedLine, frozen=True, opcode=LineType.PAYLOAD):
    name = "PAYLOAD"
    data: rest_bytes


class Address(DescribedLine, frozen=True, opcode=LineType.ADDRESS):
    """A part of where the message goes."""

    name = "ADDRESS"
    kind: Annotated[zigzag32, names(ADDRESS_NAMES, "")]
    address: text_zigzag


class SourceAddress(Address, frozen=True, opcode=LineType.SOURCE_ADDRESS):
    """A part of where the message comes from."""

    name = "SOURCE_ADDRESS"


class SeqNo(DescribedLine, frozen=True, opcode=LineType.SEQ_NO):
    """The number of a message among several, from 1. `last` is 0 as long as it is unknown."""

    name = "SEQ_NO"
    current: zigzag32
    last: zigzag32

    @property
    def more(self) -> int:
        """Return how many messages follow; 1 if that is unknown."""
        return max(self.last - self.current, 0) if self.last else 1


class Xdata(DescribedLine, frozen=True, opcode=LineType.XDATA):
    name = "XDATA"
    id: zigzag32
    data: rest_bytes


class Error(DescribedLine, frozen=True, opcode=LineType.ERROR):
    """What failed."""

    name = "ERROR"
    text: Annotated[rest_text, label("data")]


class FlagLine(DescribedLine, frozen=True, opcode=LineType.FLAG):
    """What the message is."""

    name = "FLAG"
    flag: Annotated[zigzag32, names(FLAG_NAMES, "")]


def _write_version(version: tuple[int, ...]) -> bytes:
    if len(version) != _VERSION_BYTES or not all(0 <= part <= 0xFF for part in version):
        raise EncodeError(f"{version} is not a version: four numbers of one byte")
    return bytes(version)


class Version(DescribedLine, frozen=True, opcode=LineType.VERSION):
    """Four numbers: main, minor, branch, variant."""

    name = "VERSION"
    version: Annotated[
        tuple[int, ...],
        custom(
            lambda frame, start, _end: (tuple(frame[start : start + _VERSION_BYTES]), start + _VERSION_BYTES),
            _write_version,
            strategy=lambda: _version_strategy(),
            title="u8, four times",
        ),
        shown(lambda version: ".".join(map(str, version))),
    ]


def _version_strategy() -> Any:
    from hypothesis import strategies as st  # noqa: PLC0415 (only tests have Hypothesis)

    return st.tuples(*[st.integers(0, 255)] * _VERSION_BYTES)


class End(DescribedLine, frozen=True, opcode=LineType.END):
    """The end of a message."""

    name = "END"


LINES = FrameSet(
    "esnp",
    LineHead,
    [
        *(FlagLine, Address, SourceAddress, MessageId, SourceMessageId, SeqNo, Error, Version),
        *(SessionInfo, Header, Data, Payload, Xdata, End),
    ],
)
_ADDRESS, _FLAG, _SEQ_NO, _XDATA, _ERROR, _VERSION = (
    *(BodyCodec(Address), BodyCodec(FlagLine), BodyCodec(SeqNo)),
    *(BodyCodec(Xdata), BodyCodec(Error), BodyCodec(Version)),
)
# By type. The data of any other type is plain bytes.
CODECS: Mapping[int, BodyCodec[Any]] = {
    kind.opcode: BodyCodec(kind) for kind in LINES.frames if kind.opcode is not None and kind not in (Payload, End)
}


# ── reading: a function takes the data of a line, whose first byte has offset 0, and the reader of the message's values


def read_number(data: bytes, _values: VarReader) -> int:
    """Read a MESSAGE_ID or SOURCE_MESSAGE_ID. `decode` has checked the size."""
    return int.from_bytes(data, "big")  # 0.6 of the time of the described one, in every request


def read_flag(data: bytes, _values: VarReader) -> int:
    flag = _FLAGS.get(data)  # nearly all are known ones
    return _FLAG.decode(data).flag if flag is None else flag


def read_address(data: bytes, _values: VarReader) -> tuple[int, str]:
    return _read_short_address(data) if len(data) <= ESNP_ADDRESS_KEPT_BYTES_MAX else _read_address(data)


def _read_address(data: bytes) -> tuple[int, str]:
    found = _ADDRESS.decode(data)
    return found.kind, found.address


_read_short_address = lru_cache(ESNP_ADDRESSES_KEPT_MAX)(_read_address)  # services and operations are few


def read_named(data: bytes, values: VarReader) -> tuple[str, Var]:
    """Read a SESSION_INFO, HEADER or DATA: by hand, since all values of a message share a limit."""
    return values.named(data)


def read_seq_no(data: bytes, _values: VarReader) -> SeqNo:
    return _SEQ_NO.decode(data)


def read_xdata(data: bytes, _values: VarReader) -> tuple[int, bytes]:
    found = _XDATA.decode(data)
    return found.id, found.data


def read_error(data: bytes, _values: VarReader) -> str:
    return _ERROR.decode(data).text


def read_version(data: bytes, _values: VarReader) -> tuple[int, ...]:
    return _VERSION.decode(data).version


# Types whose data can be malformed.
READ_LINE: Mapping[int, Callable[[bytes, VarReader], Any]] = {
    **dict.fromkeys((LineType.SESSION_INFO.value, LineType.HEADER.value, LineType.DATA.value), read_named),
    **dict.fromkeys((LineType.MESSAGE_ID.value, LineType.SOURCE_MESSAGE_ID.value), read_number),
    **dict.fromkeys((LineType.ADDRESS.value, LineType.SOURCE_ADDRESS.value), read_address),
    LineType.SEQ_NO.value: read_seq_no,
    LineType.XDATA.value: read_xdata,
    LineType.ERROR.value: read_error,
    LineType.FLAG.value: read_flag,
    LineType.VERSION.value: read_version,
}


# ── building

# Plain integers: the lookup of an enum member takes longer than building a line.
_SESSION_INFO_TYPE, _MESSAGE_ID_TYPE, _SOURCE_MESSAGE_ID_TYPE = 0x10, 0x11, 0x12
_HEADER_TYPE, _DATA_TYPE, _PAYLOAD_TYPE, _ADDRESS_TYPE, _SOURCE_ADDRESS_TYPE = 0x14, 0x15, 0x16, 0x17, 0x18
_SEQ_NO_TYPE, _XDATA_TYPE, _ERROR_TYPE, _FLAG_TYPE, _VERSION_TYPE = 0x1B, 0x1C, 0x1D, 0x1E, 0x1F


def flag_line(flag: int) -> Line:
    return _FLAG_LINES.get(flag) or Line(_FLAG_TYPE, _FLAG.encode(FlagLine(flag)))


def message_id_line(number: int) -> Line:
    return Line(_MESSAGE_ID_TYPE, _number(number))


def source_message_id_line(number: int) -> Line:
    return Line(_SOURCE_MESSAGE_ID_TYPE, _number(number))


def address_line(kind: int, text: str) -> Line:
    return Line(_ADDRESS_TYPE, _ADDRESS.encode(Address(kind, text)))


def source_address_line(kind: int, text: str) -> Line:
    return Line(_SOURCE_ADDRESS_TYPE, _ADDRESS.encode(Address(kind, text)))


def seq_no_line(current: int, last: int) -> Line:
    return Line(_SEQ_NO_TYPE, _SEQ_NO.encode(SeqNo(current, last)))


def error_line(text: str) -> Line:
    return Line(_ERROR_TYPE, _ERROR.encode(Error(text)))


def version_line(main: int, minor: int, branch: int, variant: int) -> Line:
    return Line(_VERSION_TYPE, _VERSION.encode(Version((main, minor, branch, variant))))


def session_info_line(name: str, var: Var) -> Line:
    return Line(_SESSION_INFO_TYPE, write_text(name) + var.encode())


def header_line(name: str, var: Var, *, plain_counts: bool = False) -> Line:
    return Line(_HEADER_TYPE, write_text(name) + var.encode(plain_counts=plain_counts))


def data_line(name: str, var: Var, *, plain_counts: bool = False) -> Line:
    return Line(_DATA_TYPE, write_text(name) + var.encode(plain_counts=plain_counts))


def payload_line(payload: bytes) -> Line:
    return Line(_PAYLOAD_TYPE, payload)


def xdata_line(number: int, data: bytes) -> Line:
    return Line(_XDATA_TYPE, _XDATA.encode(Xdata(number, data)))


_FLAG_LINES = {flag.value: Line(_FLAG_TYPE, _FLAG.encode(FlagLine(flag))) for flag in Flag}
_FLAGS = {line.data: flag for flag, line in _FLAG_LINES.items()}


def _number(number: int) -> bytes:
    if not 0 <= number <= U64_MAX:
        raise EncodeError(f"{number} does not fit a FixUInt64")
    return _U64.pack(number)
