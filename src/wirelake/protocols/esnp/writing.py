"""Common messages as esnp messages: which lines say what, head lines first."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.message import GATEWAY_SERVICE, Failure, Kind, Op, Operation, Topic, control_op
from wirelake.message import Message as Common
from wirelake.protocols.esnp import lines as making
from wirelake.protocols.esnp.contents import (
    GROUP,
    HOST,
    OBJECT,
    OP,
    PASSED,
    SERVICE,
    TIMEOUT_HEADER,
    TIMEOUT_MS,
)
from wirelake.protocols.esnp.frames import END, HEAD_BYTES, EsnpMessage
from wirelake.protocols.esnp.limits import ESNP_FRAME_BYTES_MAX, ESNP_ITEMS_MAX, ESNP_LINES_MAX
from wirelake.protocols.esnp.lines import Line
from wirelake.protocols.esnp.opcodes import (
    ADDRESS_NAMES,
    FIXED_SIZES,
    LINE_NAMES,
    Flag,
    LineType,
    Part,
    line_name,
    part_of,
)
from wirelake.protocols.esnp.values import VarReader, var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.registry import is_private_header

_KEPT_TYPES = frozenset({LineType.HEADER, LineType.ADDRESS, LineType.XDATA, LineType.VERSION})
_PASSED_TYPES = frozenset({LineType.SESSION_INFO, LineType.HEADER, LineType.DATA, LineType.PAYLOAD})
_TRACE_INFO, _RESP, _REQUEST, _INFO, _EVENT = range(Flag.TRACE_INFO, Flag.EVENT + 1)
_NOTIFICATION_DATA = ("id", "type", "ts")
_PUBLISH_DATA = ("topic", "content", "type", "ts")


def from_message(message: Common, sender: Sender, *, plain_counts: bool = False) -> EsnpMessage:
    """The message with which `sender` says this. Raises TranslationError where esnp has none.

    `plain_counts`: as the peer writes the counts of Maps and Lists.
    """
    if message.parts:
        raise TranslationError("an esnp message holds no list of notifications")
    try:
        flag, addresses, data = _WRITE[message.kind](message, sender)
        head = [making.flag_line(flag)]
        if flag == _RESP:
            head.append(making.flag_line(_REQUEST))
        head += [making.address_line(kind, text) for kind, text in addresses if text]
        if flag != _INFO or message.kind is not Kind.EVENT:  # with a number, an info would be answered
            head += _numbers(message, answers=flag in (_RESP, _TRACE_INFO))
        body: list[Line] = []
        if message.headers:
            _write_own(message, head, body)
        if message.more and "esnp.seq_no" not in message.headers:
            head.append(making.seq_no_line(1, 1 + message.more))
        head += error_lines(message.failure)
        body += body_lines(message, data, plain_counts=plain_counts)
        return assemble(head, body, kept_lines(message))
    except EncodeError as error:
        raise TranslationError(str(error)) from error


def _write_own(message: Common, head: list[Line], body: list[Line]) -> None:
    """What only esnp has, from where `to_message` kept it."""
    flags = _own(message, "esnp.flags", int)
    if any(_TRACE_INFO <= flag <= _EVENT for flag in flags):
        raise TranslationError("esnp.flags may not hold a flag that the kind says")
    head += [making.flag_line(flag) for flag in flags]
    head += [making.source_address_line(kind, text) for kind, text in _own_pairs(message, "esnp.source", int, str)]
    seq_no = _own(message, "esnp.seq_no", int)
    if len(seq_no) == 2:
        head.append(making.seq_no_line(*seq_no))
    session = {} if PASSED in message.headers else message.headers.get("esnp.session", {})
    if not isinstance(session, Mapping):
        raise TranslationError("esnp.session is not a map")
    body += [making.session_info_line(name, var_of(value)) for name, value in session.items()]


def assemble(head: list[Line], body: list[Line], kept: Iterable[Line]) -> EsnpMessage:
    """Head lines, then those of unknown kind (they may be either), then body lines; within esnp's bounds."""
    between: list[Line] = []
    for line in kept:
        part = part_of(line.type)
        (head if part is Part.HEAD else body if part is Part.BODY else between).append(line)
    lines = (*head, *between, *body)
    size = sum(HEAD_BYTES + len(line.data) for line in lines) + len(END)
    if size > ESNP_FRAME_BYTES_MAX or len(lines) > ESNP_LINES_MAX:
        raise TranslationError(f"a message of {size} bytes in {len(lines)} lines is more than esnp takes")
    return EsnpMessage(lines)


def body_lines(message: Common, data: Collection[tuple[str, Any]], *, plain_counts: bool = False) -> list[Line]:
    """HEADER, DATA and PAYLOAD; as they came, where they came from an esnp peer."""
    if PASSED in message.headers:
        return _passed_lines(message)
    headers = _plain_headers(message) if message.headers else []
    if sum([_items(value) for _, value in (*headers, *data)]) > ESNP_ITEMS_MAX:
        raise TranslationError(f"more than {ESNP_ITEMS_MAX} values in lists and maps")
    made = [making.header_line(name, var_of(value), plain_counts=plain_counts) for name, value in headers]
    made += [making.data_line(name, var_of(value), plain_counts=plain_counts) for name, value in data]
    if message.payload:
        made.append(making.payload_line(message.payload))
    return made


def _passed_lines(message: Common) -> list[Line]:
    passed = [Line(kind, data) for kind, data in _own_pairs(message, PASSED, int, bytes)]
    if any(line.type not in _PASSED_TYPES for line in passed):
        raise TranslationError(f"{PASSED} holds a line of another type than those of a body")
    return passed


def _plain_headers(message: Common) -> list[tuple[str, Any]]:
    """Those that become HEADER lines, under the names that they have there."""
    return [
        (TIMEOUT_HEADER if name == TIMEOUT_MS else name, value)
        for name, value in message.headers.items()
        if not is_private_header(name)
    ]


def kept_lines(message: Common) -> list[Line]:
    """Lines that came from an esnp peer and go on untouched. Nothing gets in here that means something to us."""
    if "esnp.lines" not in message.headers:
        return []
    kept = [Line(kind, data) for kind, data in _own_pairs(message, "esnp.lines", int, bytes)]
    for line in kept:
        if not 0 < line.type <= 0xFF or (line.type in LINE_NAMES and line.type not in _KEPT_TYPES):
            raise TranslationError(f"esnp.lines may not hold a line of type {line.type}")
        if FIXED_SIZES.get(line.type, len(line.data)) != len(line.data):
            raise TranslationError(f"esnp.lines holds a {line_name(line.type)} of {len(line.data)} bytes")
        if line.type == LineType.ADDRESS and _kind_is_known(line):
            raise TranslationError("esnp.lines may not hold an address that the target says")
    return kept


def _kind_is_known(line: Line) -> bool:
    try:
        return making.read_address(line.data, VarReader())[0] in ADDRESS_NAMES
    except ProtocolError:
        return False


def error_lines(failure: Failure | None) -> list[Line]:
    return [] if failure is None else [making.error_line(failure.text)]


# What is particular to a kind: the first flag, the addresses, the DATA lines.
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
    """A correlation that is no number of 64 bits is our side's own and stays here."""
    text = message.correlation
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > making.U64_MAX:
        return []
    return [making.source_message_id_line(int(text)) if answers else making.message_id_line(int(text))]


def _own(message: Common, name: str, kind: type) -> list[Any]:
    kept = message.headers.get(name, [])
    if not isinstance(kept, list | tuple) or not all(type(each) is kind for each in kept):
        raise TranslationError(f"{name} is not a list of {kind.__name__}")
    return list(kept)


def _own_pairs(message: Common, name: str, first: type, second: type) -> list[Any]:
    kept = message.headers.get(name, [])
    if not isinstance(kept, list | tuple) or not all(
        isinstance(pair, list | tuple) and [type(each) for each in pair] == [first, second] for pair in kept
    ):
        raise TranslationError(f"{name} is not a list of [{first.__name__}, {second.__name__}]")
    return list(kept)


def _items(value: Any) -> int:
    """How many values a Map or List holds, all the way down; as far as it takes to know that they are too many."""
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
