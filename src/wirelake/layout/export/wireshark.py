"""Write a Wireshark dissector, in Lua, from the description of a protocol's frames.

The dissector is a text for people, too: one function for each frame, which reads the fields in the order of the wire
with the functions of `runtime.lua`. It accepts and refuses the same frames as `decode`.
"""

import inspect
from collections.abc import Sequence
from importlib.resources import files
from math import log10
from typing import Any, Final

from msgspec.structs import replace

from wirelake.errors import InputError
from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.export.naming import (
    UniqueNames,
    bit_names,
    described_in,
    identifier,
    size_after,
    value_names,
    within,
)
from wirelake.layout.fields import (
    Bool8,
    Checksum,
    Counted,
    Custom,
    FieldSpec,
    Fixed,
    Nested,
    Number,
    Prefixed,
    Rest,
    ShortLength,
    SizedBy,
)
from wirelake.layout.frame_set import FrameSet
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Transport

_PORT_TABLES: Final = {Carrier.TCP: "tcp.port", Carrier.UDP: "udp.port", Carrier.WEBSOCKET: "ws.port"}
_MARKED_SIZE_MAX: Final = (
    4  # Lua of Wireshark 4.0 has no larger integers: bits and closed sets of these are not checked
)
_HEAD = """\
-- Dissector of {name} for Wireshark and tshark 4 or later.
-- Generated from the description in {modules} by
--     wirelake protocol export {name} --format wireshark
-- Do not edit it: change the description, and export it again.
"""


def wireshark_dissector(frames: FrameSet, title: str, transports: Sequence[Transport]) -> str:
    """Return the text of a dissector that is registered on the ports of the transports."""
    return _DissectorText(frames, title, transports).text()


class _DissectorText:
    """Collect the parts of the text: tables of names, declarations of fields, functions that read them."""

    def __init__(self, frames: FrameSet, title: str, transports: Sequence[Transport]) -> None:
        self._frames = frames
        self._title = title
        self._transports = transports
        self._prefix = identifier(frames.name)
        self._tables: list[str] = []
        self._table_names = UniqueNames()
        self._fields: list[str] = []
        self._functions: list[str] = []
        self._part_keys = UniqueNames("frame_name")
        self._keys: dict[type, str] = {}  # of the classes whose fields are declared
        self._parts: set[str] = set()  # functions that are there

    def text(self) -> str:
        envelope = self._frames.envelope
        self._add_field("frame_name", "string", "frame")
        frame_lines = self._read_frame(envelope)
        bodies = self._bodies()
        sections = [
            _HEAD.format(name=self._frames.name, modules=described_in(self._frames.frames)),
            self._declare_protocol(),
            "\n".join(["-- ── names of values", "", *self._tables]) if self._tables else "",
            "\n".join(["-- ── fields", "", "local f = {}", *self._fields, "proto.fields = f"]),
            _lua("runtime.lua"),
            "\n".join(["-- ── frames", "", "local read = {}", "", *self._functions]).rstrip(),
            bodies,
            frame_lines,
            self._frame_size(envelope),
            _lua("transport.lua"),
            self._registration(),
        ]
        return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"

    def _declare_protocol(self) -> str:
        experts = {
            "malformed": '"malformed frame", expert.group.MALFORMED',
            "bad_checksum": '"wrong checksum", expert.group.CHECKSUM',
        }
        lines = [
            f"local NAME = {_quote(self._frames.name)}",
            f"local HEAD_BYTES = {self._min_head()} -- needed to tell how long a frame is",
            "",
            f"local proto = Proto({_quote(self._prefix)}, {_quote(self._title)})",
        ]
        for name, arguments in experts.items():
            abbreviation = _quote(f"{self._prefix}.{name}")
            lines.append(f"local {name} = ProtoExpert.new({abbreviation}, {arguments}, expert.severity.ERROR)")
        return "\n".join([*lines, f"proto.experts = {{ {', '.join(experts)} }}"])

    # ── declarations

    def _declare(self, key: str, field: FieldSpec) -> None:
        """Add what Wireshark must know about a field before it reads any."""
        label, kind = field.name, field.kind
        match kind:
            case Number(size=size):
                self._declare_number(key, field, kind, size)
            case Bool8():
                table = self._table("bool8", {0: "no", 1: "yes"})
                self._add_field(key, "uint8", label, f"base.DEC, {table}")
            case Fixed(is_text=is_text) | Rest(is_text=is_text):
                self._add_field(key, "string" if is_text else "bytes", label)
            case Prefixed(prefix=prefix, is_text=is_text):
                self._add_field(f"{key}.size", f"uint{8 * prefix}", f"{label} size")
                self._add_field(key, "string" if is_text else "bytes", label)
            case Counted(prefix=prefix, item=item):
                self._add_field(f"{key}.count", f"uint{8 * prefix}", "count" if field.item_name else f"{label} count")
                if item is not None:
                    named = replace(item, name=field.item_name or label)
                    self._declare(key if not isinstance(item.kind, Counted) else f"{key}.item", named)
            case Nested():
                self._add_field(key, "none", label)
            case ShortLength():
                self._add_field(key, "uint16", label)
            case Custom():
                self._add_field(key, "bytes", label)

    def _declare_number(self, key: str, field: FieldSpec, kind: Number, size: int) -> None:
        if kind.is_float:
            self._add_field(key, "float" if size == 4 else "double", field.name)
            return
        bits = 8 * size if size <= _MARKED_SIZE_MAX else 64
        is_hex = field.const is not None or field.flags is not None or field.checksum is not None
        more = f"base.{'HEX' if is_hex and not kind.is_signed else 'DEC'}"
        named = value_names(field)
        if named:
            more += f", {self._table(key, named)}"
        self._add_field(key, f"{'int' if kind.is_signed else 'uint'}{bits}", field.name, more)
        for mask, name, bit in self._bits(field):
            self._add_field(f"{key}.{bit}", "bool", name, f"{bits}, nil, {mask:#x}")
        if field.checksum is not None:
            table = self._table("checksum", {0: "bad", 1: "good", 2: "not verified"})
            self._add_field(f"{key}.status", "uint8", f"{field.name} status", f"base.DEC, {table}")

    @staticmethod
    def _bits(field: FieldSpec) -> list[tuple[int, str, str]]:
        return list(bit_names(field)) if (field.size or 0) <= _MARKED_SIZE_MAX else []

    def _add_field(self, key: str, kind: str, label: str, more: str = "") -> None:
        extra = f", {more}" if more else ""
        self._fields.append(
            f"f[{_quote(key)}] = ProtoField.{kind}({_quote(f'{self._prefix}.{key}')}, {_quote(label)}{extra})"
        )

    def _table(self, key: str, named: dict[int, str]) -> str:
        """Return the name of a table of values, which is made if it is not there."""
        items = ", ".join(f"[{number}] = {_quote(name)}" for number, name in named.items())
        for line in self._tables:
            if line.endswith(f" = {{ {items} }}"):
                return line.split()[1]
        name = self._table_names.add(key).upper()
        self._tables.append(f"local {name} = {{ {items} }}")
        return name

    # ── functions

    def _part(self, kind: Any, is_secret: bool = False) -> str:
        """Return the name of the function that reads the fields of a class."""
        is_new = kind not in self._keys
        if is_new:
            self._keys[kind] = self._part_keys.add(getattr(kind, "name", kind.__name__))
        key = self._keys[kind]
        name = f"{key}_secret" if is_secret else key
        if name in self._parts:
            return name
        self._parts.add(name)
        fields: tuple[FieldSpec, ...] = kind.__layout_fields__
        if is_new:
            for field in fields:
                self._declare(f"{key}.{field.name}", field)
        lines = [f"-- {line}".rstrip() for line in _own_docs(kind)]
        lines.append(f"function read.{name}(r)" if fields else f"function read.{name}()")
        if any(field.present_if is not None for field in fields):
            lines.append("    local v = {}")
        needed = {field.present_if.field for field in fields if field.present_if is not None}
        for index, field in enumerate(fields):
            marked = within(FieldSpec("", Rest(is_text=False), is_secret=is_secret), field)
            after = size_after(fields[index + 1 :])
            body = self._read(f"{key}.{field.name}", marked, after)
            if field.name in needed:
                body[0] = f"v.{field.name} = {body[0]}"
            lines += _indent(self._guarded(field, body))
            if isinstance(field.kind, Custom) and after is None:
                lines.append("    -- The fields after it are not shown: where they begin, only the decoder knows.")
                break
        lines += ["end", ""]
        self._functions += lines
        return name

    @staticmethod
    def _guarded(field: FieldSpec, body: list[str]) -> list[str]:
        """Return the lines that read a field if it is there."""
        if field.present_if is not None:
            condition = f"any_bit(v.{field.present_if.field}, {field.present_if.bits:#x})"
        elif field.is_optional:
            condition = "r:left() > 0"
        else:
            return body
        return [f"if {condition} then", *_indent(body), "end"]

    def _read(self, key: str, field: FieldSpec, after: int | None = 0) -> list[str]:  # noqa: PLR0911 (one for each kind)
        """Return the lines that read a field. `after`: bytes of the fields after it in the body."""
        order, quoted = "LITTLE" if field.order == "little" else "BIG", _quote(key)
        marks = self._marks(key, field)
        more = f", {marks}" if marks else ""
        match field.kind:
            case Number(size=size):
                return [f"r:number({quoted}, {size}, {order}{more})"]
            case Bool8():
                return [f"r:number({quoted}, 1, BIG{more})"]
            case Fixed(size=size, is_text=is_text):
                return [f"r:{'text' if is_text else 'bytes'}({quoted}, {size}{more})"]
            case Prefixed(prefix=prefix, is_text=is_text):
                reader = '"text"' if is_text else '"bytes"'
                return [f"r:prefixed({reader}, {quoted}, {prefix}, {order}{more})"]
            case Rest(is_text=is_text):
                return [f"r:{'text' if is_text else 'bytes'}({quoted}, r:left(){more})"]
            case SizedBy():
                raise InputError(f"{field.name}: a field that another one sizes cannot be exported yet")
            case Counted():
                return self._read_list(key, field, field.kind, order)
            case Nested(kind=kind):
                return [f"r:group({quoted}, {_quote(field.name)}, read.{self._part(kind, field.is_secret)})"]
            case ShortLength():
                return [f"r:short_length({quoted}{more})"]
            case Custom(title=title):
                comment = f"-- {title}: read by the decoder's own code, shown as bytes"
                taken = f"r:left() - {after}" if after else "r:left()"
                return [f"r:bytes({quoted}, {taken}{more}) {comment}"]

    def _read_list(self, key: str, field: FieldSpec, kind: Counted, order: str) -> list[str]:
        if kind.item is None:
            return []
        item = within(field, kind.item)
        if isinstance(item.kind, Nested):
            part = self._part(item.kind.kind, item.is_secret)
            title = _quote(f"{field.item_name or field.name} ")
            inner = [f"r:group({_quote(key)}, {title} .. index, read.{part})"]
        else:
            inner = self._read(key if not isinstance(item.kind, Counted) else f"{key}.item", item)
        argument = "index" if isinstance(item.kind, Nested) else ""
        return [f"r:list({_quote(key)}, {kind.prefix}, {order}, function({argument})", *_indent(inner), "end)"]

    def _marks(self, key: str, field: FieldSpec) -> str:
        marks: list[str] = []
        size, is_small = field.size or 0, (field.size or 0) <= _MARKED_SIZE_MAX
        if field.const is not None:
            value = field.const.value
            raw = value if isinstance(value, bytes) else value.to_bytes(size, field.order)
            marks.append(f'const = "{raw.hex()}"')
            if field.const.text:
                marks.append(f"text = {_quote(field.const.text)}")
        if field.enum is not None and is_small:
            marks.append(f"known = {self._table(key, value_names(field))}")
        if isinstance(field.kind, Bool8):
            marks.append("most = 1")
        if field.length is not None and field.length.at_least:
            marks.append(f"least = {field.length.at_least}")
        if field.flags is not None and field.flags.reserved:
            marks.append(f"reserved = {field.flags.reserved:#x}")
        bits = self._bits(field)
        if bits:
            marks.append(f"bits = {{ {', '.join(_quote(f'{key}.{bit}') for _, _, bit in bits)} }}")
        if field.scale is not None and is_small and isinstance(field.kind, Number) and not field.kind.is_float:
            digits = max(0, -round(log10(field.scale.factor)))
            signed = ", is_signed = true" if field.kind.is_signed else ""
            marks.append(f"scale = {{ {field.scale.factor!r}, {digits}, {_quote(field.scale.unit)} }}{signed}")
        if field.is_secret:
            marks.append("is_secret = true")
        return f"{{ {', '.join(marks)} }}" if marks else ""

    # ── the frame around the body

    def _bodies(self) -> str:
        """Return the tables of the frames that each end sends, by opcode."""
        lines = ["local bodies = { client = {}, server = {} }"]
        for kind in self._frames.frames:
            name = self._part(kind)
            key = kind.opcode if kind.opcode is not None else 0
            body = f"{{ name = {_quote(kind.name)}, read = read.{name} }}"
            senders = list(Sender) if kind.sender is None else [kind.sender]
            lines += [f"bodies.{sender}[{key}] = {body}" for sender in senders]
        return "\n".join(lines)

    def _read_frame(self, envelope: EnvelopeSpec) -> str:
        lines = ["local function read_frame(r)"]
        body = [*self._head_lines(envelope), f"r:body({envelope.tail_size})"]
        for field in envelope.tail:
            self._declare(field.name, field)
            order = "LITTLE" if field.order == "little" else "BIG"
            if field.checksum is not None:
                body.append(f"r:checksum({_quote(field.name)}, {field.size}, {order})")
            else:
                body += self._read(field.name, field)
        return "\n".join([*lines, *_indent(body), "end"])

    def _head_lines(self, envelope: EnvelopeSpec) -> list[str]:
        lines: list[str] = []
        verify = self._verify(envelope)
        if envelope.length is None:
            lines += verify
        if envelope.opcode is None:
            lines.append('r:choose(bodies[r.sender], "frame", 0)')
        for field in envelope.head:
            self._declare(field.name, field)
            (line,) = self._read(field.name, field)
            if field.length is not None:
                whole = self._whole(envelope, field)
                lines += [f"local length = {line}", f"r:check_size({_quote(field.name)}, {whole})", *verify]
            elif field.opcode is not None:
                mask = field.opcode.mask
                number = f"bit.band(opcode, {mask:#x})" if mask else "opcode"
                choose = f"r:choose(bodies[r.sender], {_quote(field.name)}, {number}, opcode_item)"
                lines += [f"local opcode, opcode_item = {line}", choose]
            else:
                lines.append(line)
        return lines

    @staticmethod
    def _whole(envelope: EnvelopeSpec, field: FieldSpec) -> str:
        """Return the expression of the size of the frame, from its length."""
        role = field.length
        if isinstance(field.kind, ShortLength):
            return _sum("r.place + length", -role.plus if role is not None else 0)
        return _sum("length", envelope.added_to_length())

    @staticmethod
    def _verify(envelope: EnvelopeSpec) -> list[str]:
        """Return the lines that compare the checksum, if there is one that Lua can compute."""
        field = envelope.checksum
        if field is None or field.checksum is None:
            return []
        if field.checksum.crc is None:
            return [f"-- {field.name} ({field.checksum.title}) is not verified: only the decoder can compute it."]
        first, after = envelope.covered(field)
        left = envelope.tail_size
        for each in envelope.tail:
            if each is field:
                break
            left -= each.size or 0
        order = "LITTLE" if field.order == "little" else "BIG"
        stored = f"r.tvb(r.tvb:len() - {left}, {field.size})"
        return [
            f"if r:left() >= {envelope.tail_size} then",
            f"    r:verify({_quote(field.name)}, {stored}, {order}, function(data)",
            f"        return crc(data, {_crc_arguments(field.checksum)})",
            f"    end, {first}, {after})",
            "end",
        ]

    def _frame_size(self, envelope: EnvelopeSpec) -> str:
        """Return the function that tells where a frame ends."""
        lines = ["-- How many bytes the frame at `place` has; 0 if more bytes are needed to tell."]
        lines.append("local function frame_size(tvb, _, place)")
        length = envelope.length
        body: list[str] = []
        if length is None:
            body = self._size_by_fields(envelope)
        elif isinstance(length.kind, ShortLength):
            role = length.length
            less = -role.plus if role is not None else 0
            body = [
                "local first = tvb(place, 1):uint()",
                "if first < 0x80 then",
                f"    return {_sum('first', 1 + less)}",
                "elseif tvb:len() < place + 2 then",
                "    return 0",
                "end",
                f"return {_sum('first % 0x80 + tvb(place + 1, 1):uint() * 0x80', 2 + less)}",
            ]
        else:
            before, read = envelope.before(length.name) or 0, _uint(length.order)
            value = f"tvb({_sum('place', before)}, {length.size}):{read}()"
            body = [f"return {_sum(value, envelope.added_to_length())}"]
        return "\n".join([*lines, *_indent(body), "end"])

    def _size_by_fields(self, envelope: EnvelopeSpec) -> list[str]:
        """Return the lines for frames without a length: they go from one size to the next."""
        (kind,) = self._frames.frames
        lines, known = ["local size = 0"], 0
        for field in (*envelope.head, *kind.__layout_fields__, *envelope.tail):
            if field.size is not None:
                known += field.size
                continue
            prefix = field.kind.prefix if isinstance(field.kind, Prefixed | Counted) else 0
            item = field.kind.item.size if isinstance(field.kind, Counted) and field.kind.item is not None else 1
            place = _sum("place + size", known)
            lines += [f"if tvb:len() < {place} + {prefix} then", "    return 0", "end"]
            times = f" * {item}" if item != 1 else ""
            lines.append(
                f"size = {_sum('size', known + prefix)} + tvb({place}, {prefix}):{_uint(field.order)}(){times}"
            )
            known = 0
        return [*lines, f"return {_sum('size', known)}"]

    def _min_head(self) -> int:
        """Return how many bytes `frame_size` needs at least."""
        envelope = self._frames.envelope
        length = envelope.length
        if length is None or isinstance(length.kind, ShortLength):
            return 1
        return (envelope.before(length.name) or 0) + (length.size or 0)

    def _registration(self) -> str:
        tables = [(_PORT_TABLES[transport.carrier], transport.port) for transport in self._transports]
        return "\n".join(f'DissectorTable.get("{table}"):add({port}, proto)' for table, port in tables)


def _crc_arguments(checksum: Checksum) -> str:
    crc = checksum.crc
    if crc is None:
        raise TypeError(f"{checksum.title} is not a CRC")
    polynomial = crc.polynomial
    if crc.is_reflected:
        polynomial = int(f"{polynomial:0{crc.width}b}"[::-1], 2)
    return f"{crc.width}, {polynomial:#x}, {crc.initial:#x}, {str(crc.is_reflected).lower()}, {crc.final:#x}"


def _lua(name: str) -> str:
    """Return a part of the dissector that is the same for every protocol."""
    return files("wirelake.layout.export").joinpath(name).read_text(encoding="utf-8")


def _own_docs(kind: Any) -> list[str]:
    own = kind.__dict__.get("__doc__")
    return inspect.cleandoc(own).splitlines() if own else []


def _uint(order: str) -> str:
    return "le_uint" if order == "little" else "uint"


def _sum(term: str, number: int) -> str:
    return f"{term} + {number}" if number > 0 else f"{term} - {-number}" if number else term


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
