"""The lines of a message: read and build the data of each type of line."""

from collections.abc import Callable, Mapping
from struct import Struct as Layout
from typing import Any

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.esnp.constants import Flag
from wirelake.protocols.esnp.values import Var, VarReader, raw_text, read_signed, read_text, write_signed, write_text
from wirelake.protocols.tree import utf8

_U64 = Layout(">Q")
U64_MAX = (1 << 64) - 1
# Plain integers: the lookup of an enum member takes longer than building a line.
_SESSION_INFO, _MESSAGE_ID, _SOURCE_MESSAGE_ID = 0x10, 0x11, 0x12
_HEADER, _DATA, _PAYLOAD, _ADDRESS, _SOURCE_ADDRESS = 0x14, 0x15, 0x16, 0x17, 0x18
_SEQ_NO, _XDATA, _ERROR, _FLAG, _VERSION = 0x1B, 0x1C, 0x1D, 0x1E, 0x1F


class Line(Struct, frozen=True, gc=False):
    """A type and raw bytes."""

    type: int
    data: bytes = b""


class SeqNo(Struct, frozen=True):
    """The number of a message among several, from 1. `last` is 0 as long as it is unknown."""

    current: int
    last: int

    @property
    def more(self) -> int:
        """Return how many messages follow; 1 if that is unknown."""
        return max(self.last - self.current, 0) if self.last else 1


def read_number(data: bytes, _values: VarReader) -> int:
    """Read a MESSAGE_ID or SOURCE_MESSAGE_ID: FixUInt64. `decode` has checked the size."""
    return int.from_bytes(data, "big")


def read_flag(data: bytes, _values: VarReader) -> int:
    value, end = read_signed(data, 0)
    _finish(data, end)
    return value


def read_address(data: bytes, _values: VarReader) -> tuple[int, str]:
    kind, place = read_signed(data, 0)
    text, end = read_text(data, place)
    _finish(data, end)
    return kind, text


def read_named(data: bytes, values: VarReader) -> tuple[str, Var]:
    """Read a SESSION_INFO, HEADER or DATA."""
    return values.named(data)


def read_seq_no(data: bytes, _values: VarReader) -> SeqNo:
    current, place = read_signed(data, 0)
    last, end = read_signed(data, place)
    _finish(data, end)
    return SeqNo(current, last)


def read_xdata(data: bytes, _values: VarReader) -> tuple[int, bytes]:
    number, place = read_signed(data, 0)
    return number, data[place:]


def read_error(data: bytes, _values: VarReader) -> str:
    return utf8(data, 0)


def read_version(data: bytes, _values: VarReader) -> tuple[int, ...]:
    return tuple(data)


def _finish(data: bytes, end: int) -> None:
    if end != len(data):
        raise ProtocolError("trailing", f"{len(data) - end} bytes too many", end)


# Types whose data can be malformed; the data of any other type is plain bytes. Offsets count from its first byte.
READ_LINE: Mapping[int, Callable[[bytes, VarReader], Any]] = {
    _SESSION_INFO: read_named,
    _MESSAGE_ID: read_number,
    _SOURCE_MESSAGE_ID: read_number,
    _HEADER: read_named,
    _DATA: read_named,
    _ADDRESS: read_address,
    _SOURCE_ADDRESS: read_address,
    _SEQ_NO: read_seq_no,
    _XDATA: read_xdata,
    _ERROR: read_error,
    _FLAG: read_flag,
    _VERSION: read_version,
}


def flag_line(flag: int) -> Line:
    return _FLAG_LINES.get(flag) or Line(_FLAG, write_signed(flag))


def message_id_line(number: int) -> Line:
    return Line(_MESSAGE_ID, _number(number))


def source_message_id_line(number: int) -> Line:
    return Line(_SOURCE_MESSAGE_ID, _number(number))


def address_line(kind: int, text: str) -> Line:
    return Line(_ADDRESS, write_signed(kind) + write_text(text))


def source_address_line(kind: int, text: str) -> Line:
    return Line(_SOURCE_ADDRESS, write_signed(kind) + write_text(text))


def seq_no_line(current: int, last: int) -> Line:
    return Line(_SEQ_NO, write_signed(current) + write_signed(last))


def error_line(text: str) -> Line:
    return Line(_ERROR, raw_text(text))


def version_line(main: int, minor: int, branch: int, variant: int) -> Line:
    try:
        return Line(_VERSION, bytes((main, minor, branch, variant)))
    except ValueError as error:
        raise EncodeError("a part of a version does not fit one byte") from error


def session_info_line(name: str, var: Var) -> Line:
    return Line(_SESSION_INFO, write_text(name) + var.encode())


def header_line(name: str, var: Var, *, plain_counts: bool = False) -> Line:
    return Line(_HEADER, write_text(name) + var.encode(plain_counts=plain_counts))


def data_line(name: str, var: Var, *, plain_counts: bool = False) -> Line:
    return Line(_DATA, write_text(name) + var.encode(plain_counts=plain_counts))


def payload_line(payload: bytes) -> Line:
    return Line(_PAYLOAD, payload)


def xdata_line(number: int, data: bytes) -> Line:
    return Line(_XDATA, write_signed(number) + data)


_FLAG_LINES = {flag.value: Line(_FLAG, write_signed(flag)) for flag in Flag}


def _number(number: int) -> bytes:
    if not 0 <= number <= U64_MAX:
        raise EncodeError(f"{number} does not fit a FixUInt64")
    return _U64.pack(number)
