"""Translate common messages to esnp messages. `translation.py` has the opposite direction."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.message import GATEWAY_SERVICE, Failure, Kind, Op, Operation, Topic, control_op
from wirelake.message import Message as Common
from wirelake.protocols.esnp import lines as making
from wirelake.protocols.esnp.constants import (
    ADDRESS_NAMES,
    ESNP_FRAME_BYTES_MAX,
    ESNP_ITEMS_MAX,
    ESNP_LINES_MAX,
    FIXED_SIZES,
    LINE_NAMES,
    Flag,
    LineType,
    Part,
    line_name,
    part_of,
)
from wirelake.protocols.esnp.contents import (
    BODY_HEADER,
    GROUP,
    HOST,
    OBJECT,
    OP,
    SERVICE,
    TIMEOUT_HEADER,
    TIMEOUT_MS,
)
from wirelake.protocols.esnp.frames import END, HEAD_BYTES, EsnpMessage
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.values import VarReader, var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.registry import is_private_header

_UNTOUCHED_TYPES = frozenset({LineType.HEADER, LineType.ADDRESS, LineType.XDATA, LineType.VERSION})
_BODY_TYPES = frozenset({LineType.SESSION_INFO, LineType.HEADER, LineType.DATA, LineType.PAYLOAD})
_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT = range(Flag.TRACE_INFO, Flag.EVENT + 1)
_NOTIFICATION_DATA = ("id", "type", "ts")
_PUBLISH_DATA = ("topic", "content", "type", "ts")


def from_message(message: Common, sender: Sender, *, plain_counts: bool = False) -> EsnpMessage:
    """Return the message with which `sender` sends this. Raise TranslationError if esnp has none.

    `plain_counts` is for peers that write the counts of Maps and Lists as plain varints.
    """
    if message.parts:
        raise TranslationError("an esnp message holds no list of notifications")
    try:
        flag, addresses, data = _WRITE[message.kind](message, sender)
        head = [making.flag_line(flag)]
        if flag == _RESP:
            head.append(making.flag_line(_REQUEST))
        head += [making.address_line(kind, text) for kind, text in addresses if text]
        if flag != _INFO or message.kind is not Kind.EVENT:  # an info with a number would be answered
            head += _numbers(message, answers=flag in (_RESP, _TRACE_INFO))
        body: list[Line] = []
        if message.headers:
            _write_own(message, head, body)
        if message.more and "esnp.seq_no" not in message.headers:
            head.append(making.seq_no_line(1, 1 + message.more))
        head += error_lines(message.failure)
        body += body_lines(message, data, plain_counts=plain_counts)
        return assemble(head, body, untouched_lines(message))
    except EncodeError as error:
        raise TranslationError(str(error)) from error


def _write_own(message: Common, head: list[Line], body: list[Line]) -> None:
    """Add the lines that only esnp has, from the headers that `to_message` sets."""
    flags = _own_list(message, "esnp.flags", int)
    if any(_TRACE_INFO <= flag <= _EVENT for flag in flags):
        raise TranslationError("esnp.flags may not hold a flag that the kind says")
    head += [making.flag_line(flag) for flag in flags]
    head += [making.source_address_line(kind, text) for kind, text in _own_pairs(message, "esnp.source", int, str)]
    seq_no = _own_list(message, "esnp.seq_no", int)
    if len(seq_no) == 2:
        head.append(making.seq_no_line(*seq_no))
    session = {} if BODY_HEADER in message.headers else message.headers.get("esnp.session", {})
    if not isinstance(session, Mapping):
        raise TranslationError("esnp.session is not a map")
    body += [making.session_info_line(name, var_of(value)) for name, value in session.items()]


def assemble(head: list[Line], body: list[Line], untouched: Iterable[Line]) -> EsnpMessage:
    """Return a message of head lines, unknown lines and body lines. Raise TranslationError if it is too large."""
    between: list[Line] = []
    for line in untouched:
        part = part_of(line.type)
        (head if part is Part.HEAD else body if part is Part.BODY else between).append(line)
    lines = (*head, *between, *body)
    size = sum(HEAD_BYTES + len(line.data) for line in lines) + len(END)
    if size > ESNP_FRAME_BYTES_MAX or len(lines) > ESNP_LINES_MAX:
        raise TranslationError(f"a message of {size} bytes in {len(lines)} lines is more than esnp takes")
    return EsnpMessage(lines)


def body_lines(message: Common, data: Collection[tuple[str, Any]], *, plain_counts: bool = False) -> list[Line]:
    """Return the HEADER, DATA and PAYLOAD lines; unchanged, if they are from an esnp peer."""
    if BODY_HEADER in message.headers:
        return _raw_body_lines(message)
    headers = _plain_headers(message) if message.headers else []
    if sum([_items(value) for _, value in (*headers, *data)]) > ESNP_ITEMS_MAX:
        raise TranslationError(f"more than {ESNP_ITEMS_MAX} values in lists and maps")
    made = [making.header_line(name, var_of(value), plain_counts=plain_counts) for name, value in headers]
    made += [making.data_line(name, var_of(value), plain_counts=plain_counts) for name, value in data]
    if message.payload:
        made.append(making.payload_line(message.payload))
    return made


def _raw_body_lines(message: Common) -> list[Line]:
    raw_body = [Line(kind, data) for kind, data in _own_pairs(message, BODY_HEADER, int, bytes)]
    if any(line.type not in _BODY_TYPES for line in raw_body):
        raise TranslationError(f"{BODY_HEADER} holds a line of another type than those of a body")
    return raw_body


def _plain_headers(message: Common) -> list[tuple[str, Any]]:
    """Return the headers that become HEADER lines, with the names that they have there."""
    return [
        (TIMEOUT_HEADER if name == TIMEOUT_MS else name, value)
        for name, value in message.headers.items()
        if not is_private_header(name)
    ]


def untouched_lines(message: Common) -> list[Line]:
    """Return the lines that are forwarded unchanged. Raise TranslationError for those that we interpret."""
    if "esnp.lines" not in message.headers:
        return []
    untouched = [Line(kind, data) for kind, data in _own_pairs(message, "esnp.lines", int, bytes)]
    for line in untouched:
        if not 0 < line.type <= 0xFF or (line.type in LINE_NAMES and line.type not in _UNTOUCHED_TYPES):
            raise TranslationError(f"esnp.lines may not hold a line of type {line.type}")
        if FIXED_SIZES.get(line.type, len(line.data)) != len(line.data):
            raise TranslationError(f"esnp.lines holds a {line_name(line.type)} of {len(line.data)} bytes")
        if line.type == LineType.ADDRESS and _kind_is_known(line):
            raise TranslationError("esnp.lines may not hold an address that the target says")
    return untouched


def _kind_is_known(line: Line) -> bool:
    try:
        return making.read_address(line.data, VarReader())[0] in ADDRESS_NAMES
    except ProtocolError:
        return False


def error_lines(failure: Failure | None) -> list[Line]:
    return [] if failure is None else [making.error_line(failure.text)]


# What depends on the kind: the first flag, the addresses, the DATA lines.
Particulars = tuple[int, list[tuple[int, str]], list[tuple[str, Any]]]


def _request(message: Common, _sender: Sender) -> Particulars:
    return _INFO if message.name == "info" else _REQUEST, _addresses(message), list(message.fields.items())


def _response(message: Common, _sender: Sender) -> Particulars:
    return _RESP, _addresses(message), list(message.fields.items())


def _event(message: Common, _sender: Sender) -> Particulars:
    flag = {"trace": _TRACE_INFO, "info": _INFO}.get(message.name, _EVENT)
    return flag, _addresses(message), list(message.fields.items())


def _notification(message: Common, sender: Sender) -> Particulars:
    if not isinstance(message.target, Topic):
        raise TranslationError("a notification without a topic")
    topic = message.target.name
    taken = _PUBLISH_DATA if sender is Sender.CLIENT else _NOTIFICATION_DATA
    for name in taken:
        if name in message.fields:
            raise TranslationError(f"a notification with a field '{name}', which has its own place in esnp")
    fields = list(message.fields.items())
    if sender is Sender.SERVER:
        own = [("id", message.id), ("type", message.type), ("ts", message.at_ms)]
        return _EVENT, [(OBJECT, topic)], own + fields
    optional = [(name, value) for name, value in (("type", message.type), ("ts", message.at_ms)) if value]
    return _REQUEST, _gateway(Op.PUBLISH), [("topic", topic), *optional, *fields]


def _control(message: Common, sender: Sender) -> Particulars:
    op = control_op(message)
    data = _CONTROL_DATA.get(op) if op is not None else None
    if op is None or data is None or sender is Sender.SERVER:
        raise TranslationError(f"an esnp {sender} has no message for {op or message.name or 'this'}")
    return _REQUEST, _gateway(op), data(message)


def _telemetry(_message: Common, _sender: Sender) -> Particulars:
    raise TranslationError("esnp has no message for telemetry")


def _login_data(message: Common) -> list[tuple[str, Any]]:
    if message.credentials is None:
        raise TranslationError("a login without credentials")
    return [("user", message.credentials.user), ("token", message.credentials.token)]


def _topic_data(message: Common) -> list[tuple[str, Any]]:
    return [("topic", topic) for topic in message.fields.get("topics", ())]


def _service_data(message: Common) -> list[tuple[str, Any]]:
    group = message.fields.get("group", "")
    return [("service", message.fields.get("service", "")), *([("group", group)] if group else [])]


def _addresses(message: Common) -> list[tuple[int, str]]:
    target = message.target
    if target is None:
        return []
    if not isinstance(target, Operation):
        raise TranslationError(f"a {message.kind} to a {type(target).__name__.lower()}")
    return [
        (OBJECT, target.object),
        (OP, target.op),
        (SERVICE, target.service),
        (HOST, target.host),
        (GROUP, target.group),
    ]


def _gateway(op: Op) -> list[tuple[int, str]]:
    return [(OP, op.value), (SERVICE, GATEWAY_SERVICE)]


def _numbers(message: Common, *, answers: bool) -> list[Line]:
    """Return the number line of a message. A correlation that is not a 64-bit number is not sent."""
    text = message.correlation
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > making.U64_MAX:
        return []
    return [making.source_message_id_line(int(text)) if answers else making.message_id_line(int(text))]


def _own_list(message: Common, name: str, kind: type) -> list[Any]:
    untouched = message.headers.get(name, [])
    if not isinstance(untouched, list | tuple) or not all(type(each) is kind for each in untouched):
        raise TranslationError(f"{name} is not a list of {kind.__name__}")
    return list(untouched)


def _own_pairs(message: Common, name: str, first: type, second: type) -> list[Any]:
    untouched = message.headers.get(name, [])
    if not isinstance(untouched, list | tuple) or not all(
        isinstance(pair, list | tuple) and [type(each) for each in pair] == [first, second] for pair in untouched
    ):
        raise TranslationError(f"{name} is not a list of [{first.__name__}, {second.__name__}]")
    return list(untouched)


def _items(value: Any) -> int:
    """Return how many values a Map or List contains, recursively. Stop counting beyond the limit."""
    if isinstance(value, str | bytes | int | float):
        return 0
    waiting, items = [value], 0
    while waiting and items <= ESNP_ITEMS_MAX:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        else:
            continue
        items += len(each)
    return items


_WRITE: Mapping[Kind, Callable[[Common, Sender], Particulars]] = {
    Kind.REQUEST: _request,
    Kind.RESPONSE: _response,
    Kind.EVENT: _event,
    Kind.NOTIFICATION: _notification,
    Kind.CONTROL: _control,
    Kind.TELEMETRY: _telemetry,
}
_CONTROL_DATA: Mapping[Op, Callable[[Common], list[tuple[str, Any]]]] = {
    Op.LOGIN: _login_data,
    Op.PING: lambda _message: [],
    Op.SUBSCRIBE: _topic_data,
    Op.UNSUBSCRIBE: _topic_data,
    Op.REGISTER: _service_data,
    Op.UNREGISTER: _service_data,
}
