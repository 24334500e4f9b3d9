"""Dissect sisnet messages into a tree with offsets. All errors about malformed messages come from here."""

from typing import Any

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.binary import ANSWER_BODY, FIELD_BITS, NUMBER, REQUEST_BODY, find_relayed_binary
from wirelake.protocols.sisnet.constants import (
    ANS_NAMES,
    ANSWER,
    ANSWER_FIELDS,
    EXTENDED,
    FORMS,
    NUMBER_FIELDS,
    SISNET_NAME_BYTES_MAX,
    Form,
)
from wirelake.protocols.sisnet.envelope import FORBIDDEN, RELAYED_NAME, read_size
from wirelake.protocols.text import read_json
from wirelake.protocols.tree import Dissector, Tree

_NOTE_CHARS_MAX = 80


def dissect(frame: bytes, _sender: Sender) -> Tree:
    """Return the fields of a message, up to the first error."""
    dissector = Dissector(frame, "sisnet", big_endian=False)
    try:
        _walk(dissector)
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def _walk(d: Dissector) -> None:
    _section(d, "name", SISNET_NAME_BYTES_MAX)
    d.need(1, "the message after its name")
    form = FORMS.get(d.data[d.position])
    names_end = _relayed_names_end(d) if form is None else d.position
    if d.position < names_end:
        while d.position < names_end:
            _section(d, "relayed name", SISNET_NAME_BYTES_MAX)
        form = FORMS.get(d.data[d.position])
    d.root.name = f"sisnet {_FORM_NAMES[form]}"
    match form:
        case Form.OBJECT | Form.ARRAY:
            _json(d)
        case Form.BINARY:
            d.add("form", 1, "B", "binary")
            _binary(d)
        case Form.HTTP:
            d.add("form", 1, "H", "HTTP")
            _rest(d, "content")
        case Form.REDIS:
            d.add("form", 1, "R", "RESP")
            _rest(d, "content")
        case None:
            for section in ("command", "key", "sdb"):
                _section(d, section, d.left)
            _rest(d, "data")


def _relayed_names_end(d: Dissector) -> int:
    """Return where the form of the message begins after further names; the present position if there are none."""
    binary = find_relayed_binary(d.data, d.position)
    if binary is not None:
        return binary[1]
    names = RELAYED_NAME.match(d.data, d.position)
    return d.position if names is None else names.end()


_FORM_NAMES = {
    Form.OBJECT: "json",
    Form.ARRAY: "json",
    Form.BINARY: "binary",
    Form.HTTP: "http",
    Form.REDIS: "redis",
    None: "data_line",
}


def _section(d: Dissector, name: str, bytes_max: int) -> None:
    """Add the text up to a colon, and the colon."""
    start = d.position
    colon = d.data.find(b":", start)
    end = len(d.data) if colon < 0 else colon
    forbidden = FORBIDDEN.search(d.data, start, min(end, start + bytes_max + 1))
    if forbidden is not None:
        raise ProtocolError("name_byte", f"{name} may not hold {forbidden[0].decode()}", forbidden.start())
    if end - start > bytes_max:
        raise LimitError("sisnet_name_bytes_max", f"{name} has more than {bytes_max} bytes", start + bytes_max)
    if colon < 0:
        raise ProtocolError("short", f"{name} has no colon after it", len(d.data))
    d.text(name, end - start)
    d.add("colon", 1, ":")


def _rest(d: Dissector, name: str) -> None:
    d.raw(name, d.left)


def _json(d: Dissector) -> None:
    start = d.position
    values = read_json(d.data[start:], start)
    d.add("json", d.left, values, _says(values))


def _says(values: Any) -> str:
    """Return a note about the content of a JSON message."""
    if isinstance(values, list):
        return "answer: an array"
    ans = values.get("ans")
    if isinstance(ans, int):
        return f"answer: {_ans(ans)}"
    command = values.get("command", values.get("cmd"))
    if isinstance(command, str):
        return f"request: {command}"[:_NOTE_CHARS_MAX]
    return ""


def _ans(number: int) -> str:
    return ANS_NAMES.get(number, "failed" if number < 0 else "not a known type")


def _binary(d: Dissector) -> None:
    d.need(1, "flags")
    flags = d.data[d.position]
    is_answer = bool(flags & ANSWER)
    (ANSWER_BODY if is_answer else REQUEST_BODY).add_fields(d, before="rest")
    if not flags & FIELD_BITS and d.left:
        with d.group("data"):
            _sized(d, "data")
    count = d.root.find("count").value if flags & EXTENDED else 0
    for index in range(count):
        with d.group(f"extension {index}"):
            _sized(d, "name")
            _sized(d, "data")
    d.finish()
    if is_answer:
        _numbers(d, [(bit, name) for bit, name in ANSWER_FIELDS if flags & bit])


def _sized(d: Dissector, name: str) -> None:
    start = d.position
    size, end = read_size(d.data, start)
    d.add("size", end - start, size)
    d.raw(name, size)


def _numbers(d: Dissector, fields: list[tuple[int, str]]) -> None:
    for _, name in fields:
        if name in NUMBER_FIELDS:
            leaf = d.root.find(name)
            if NUMBER.fullmatch(leaf.value) is None:
                raise ProtocolError("bad_number", f"{name} is not a number in decimal text", leaf.offset)
            if name == "ans":
                leaf.note = _ans(int(leaf.value))
