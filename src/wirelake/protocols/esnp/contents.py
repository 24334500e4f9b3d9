"""Read the contents of a message in one pass over its lines. Lines that cannot be read are reported, not raised."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from wirelake.errors import ProtocolError
from wirelake.message import Operation
from wirelake.protocols.esnp import lines as reading
from wirelake.protocols.esnp.address import present
from wirelake.protocols.esnp.constants import ADDRESS_NAMES, WITHDRAWN, AddressKind, LineType
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.values import VarReader

TIMEOUT_HEADER = "to"  # HEADER line: how many milliseconds the requester waits
TIMEOUT_MS = "timeout_ms"  # the same in a common message's headers
_TIMEOUT_DIGITS_MAX = 10
BODY_HEADER = "esnp.body"  # header of a common message: body lines as received
OWN_HEADERS = "esnp."  # prefix of the headers of a common message that only esnp has

# Plain integers: the lookup of an enum member takes longer than reading a line.
OBJECT, OP, SERVICE, HOST, GROUP = (kind.value for kind in AddressKind)


class Contents(Struct):
    """What the lines of a message say."""

    frame: EsnpMessage
    flags: list[int] = field(default_factory=list)
    message_id: int | None = None
    source_message_id: int | None = None
    addresses: dict[int, str] = field(default_factory=dict)
    sources: list[tuple[int, str]] = field(default_factory=list)
    seq_no: SeqNo | None = None
    error: str | None = None
    headers: dict[str, Any] = field(default_factory=dict)
    session: dict[str, Any] = field(default_factory=dict)
    data: list[tuple[str, Any]] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    untouched: list[Line] = field(default_factory=list)  # forwarded unchanged
    raw_body: list[Line] = field(default_factory=list)  # body lines that were read, as received
    plain_counts: bool = False  # a Map or List in it has a plain count
    malformed: ProtocolError | None = None  # of the first line that cannot be read

    @property
    def operation(self) -> Operation | None:
        """Return the target; None if there is no address."""
        find = self.addresses.get
        if not self.addresses:
            return None
        return Operation(
            find(SERVICE, ""),
            find(OP, ""),
            find(OBJECT, ""),
            present(find(HOST, "")),
            present(find(GROUP, "")),
        )

    @property
    def payload(self) -> bytes:
        return self.payloads[0] if len(self.payloads) == 1 else b"".join(self.payloads)


def read_contents(frame: EsnpMessage) -> Contents:
    """Read every line. Never raise: `malformed` has the first error."""
    contents = Contents(frame)
    values = VarReader()
    find = _TAKE.get
    for index, line in enumerate(frame.lines):
        take = find(line.type, _untouched)
        try:
            take(contents, line, values)
        except ProtocolError as error:
            if contents.malformed is None:
                contents.malformed = error.shift(frame.place_of(index))
    return contents


def _untouched(contents: Contents, line: Line, _values: VarReader) -> None:
    contents.untouched.append(line)


def _flag(contents: Contents, line: Line, values: VarReader) -> None:
    contents.flags.append(reading.read_flag(line.data, values))


def _message_id(contents: Contents, line: Line, values: VarReader) -> None:
    contents.message_id = reading.read_number(line.data, values)


def _source_message_id(contents: Contents, line: Line, values: VarReader) -> None:
    contents.source_message_id = reading.read_number(line.data, values)


def _address(contents: Contents, line: Line, values: VarReader) -> None:
    kind, text = reading.read_address(line.data, values)
    if kind in ADDRESS_NAMES:
        contents.addresses[kind] = text
    else:
        contents.untouched.append(line)


def _source_address(contents: Contents, line: Line, values: VarReader) -> None:
    contents.sources.append(reading.read_address(line.data, values))


def _seq_no(contents: Contents, line: Line, values: VarReader) -> None:
    contents.seq_no = reading.read_seq_no(line.data, values)


def _error(contents: Contents, line: Line, values: VarReader) -> None:
    contents.error = reading.read_error(line.data, values)


def _named(contents: Contents, line: Line, values: VarReader) -> tuple[str, Any]:
    named = values.plain_named(line.data)
    if values.plain_counts:
        contents.plain_counts = True
    return named


def _header(contents: Contents, line: Line, values: VarReader) -> None:
    name, value = _named(contents, line, values)
    timeout_ms = _milliseconds(value) if name == TIMEOUT_HEADER else None
    if timeout_ms is None and (name == TIMEOUT_MS or name.startswith(OWN_HEADERS)):
        contents.untouched.append(line)  # peers must not set the headers that only we set
        return
    contents.raw_body.append(line)
    if timeout_ms is None:
        contents.headers[name] = value
    else:
        contents.headers[TIMEOUT_MS] = timeout_ms


def _milliseconds(value: Any) -> int | None:
    """Return a timeout that is a number or, as in a URL, the digits of one; else None."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _TIMEOUT_DIGITS_MAX:
        return int(value)
    return value if type(value) is int and value >= 0 else None


def _session_info(contents: Contents, line: Line, values: VarReader) -> None:
    name, value = _named(contents, line, values)
    contents.session[name] = value
    contents.raw_body.append(line)


def _data(contents: Contents, line: Line, values: VarReader) -> None:
    contents.data.append(_named(contents, line, values))
    contents.raw_body.append(line)


def _payload(contents: Contents, line: Line, _values: VarReader) -> None:
    contents.payloads.append(line.data)
    contents.raw_body.append(line)


def _xdata(contents: Contents, line: Line, values: VarReader) -> None:
    reading.read_xdata(line.data, values)  # to check that it can be read
    contents.untouched.append(line)


def _ignore(_contents: Contents, _line: Line, _values: VarReader) -> None:
    pass


# Lines of any other type are forwarded unchanged: VERSION, those of applications, and undefined ones.
_TAKE: Mapping[int, Callable[[Contents, Line, VarReader], None]] = {
    LineType.FLAG.value: _flag,
    LineType.MESSAGE_ID.value: _message_id,
    LineType.SOURCE_MESSAGE_ID.value: _source_message_id,
    LineType.ADDRESS.value: _address,
    LineType.SOURCE_ADDRESS.value: _source_address,
    LineType.SEQ_NO.value: _seq_no,
    LineType.ERROR.value: _error,
    LineType.HEADER.value: _header,
    LineType.SESSION_INFO.value: _session_info,
    LineType.DATA.value: _data,
    LineType.PAYLOAD.value: _payload,
    LineType.XDATA.value: _xdata,
    **dict.fromkeys(WITHDRAWN, _ignore),
}
