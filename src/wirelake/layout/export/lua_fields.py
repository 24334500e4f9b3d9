"""Write the parts of a Wireshark dissector that declare and read fields."""

import inspect
from collections.abc import Sequence
from math import log10
from typing import Any, Final

from msgspec.structs import replace

from wirelake.layout.envelope import constant_of
from wirelake.layout.export.naming import (
    VARINT_SIZES,
    UniqueNames,
    bit_names,
    content_classes,
    forms_of,
    has_bytes,
    is_custom,
    needed_values,
    public_name,
    size_after,
    value_names,
    within,
)
from wirelake.layout.fields import (
    Bool8,
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
    SizedBytes,
    SizeEncoding,
    Varint,
)
from wirelake.layout.forms import ChosenBy, Content
from wirelake.layout.frame_set import FrameSet
from wirelake.layout.sized import SizedNumber, SizeOf

_MARKED_SIZE_MAX: Final = 4  # bytes of numbers whose bits and closed sets are checked: larger ones are not in Lua 5.2
_LUA_WORDS: Final = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil"}
    | {"not", "or", "repeat", "return", "then", "true", "until", "while"}
)


class FieldWriter:
    """Collect tables of names, declarations of fields, and functions that read the fields of a class."""

    def __init__(self, frames: FrameSet) -> None:
        self.tables: list[str] = []
        self.fields: list[str] = []
        self.functions: list[str] = []
        self._frames = frames
        self._table_names = UniqueNames()
        self._part_keys = UniqueNames("frame_name", "unknown", *_LUA_WORDS)
        self._keys: dict[type, str] = {}  # of the classes whose fields are declared
        self._parts: set[str] = set()  # functions that are there

    def numbers_of(self, field: FieldSpec) -> list[int]:
        """Return the numbers that a field of the envelope has, which are the same in all frames of a class."""
        found = [constant_of(field, kind) for kind in self._frames.frames]
        return sorted({number for number in found if isinstance(number, int)})

    # ── declarations

    def declare(self, key: str, field: FieldSpec) -> None:  # noqa: C901, PLR0912 (one for each kind)
        """Add what Wireshark must know about a field before it reads any."""
        label, kind = field.label or field.name, field.kind
        match kind:
            case Number(size=size):
                self._declare_number(key, field, kind, size)
            case Bool8():
                table = self._table("bool8", {0: "no", 1: "yes"})
                self.add_field(key, "uint8", label, f"base.DEC, {table}")
            case Fixed(is_text=is_text) | Rest(is_text=is_text) | SizedBy(is_text=is_text):
                self.add_field(key, "string" if is_text else "bytes", label)
            case Prefixed(prefix=prefix, is_text=is_text):
                self.add_field(f"{key}.size", f"uint{8 * prefix}", f"{label} size")
                self.add_field(key, "string" if is_text else "bytes", label)
            case Counted(prefix=prefix, item=item):
                self.add_field(f"{key}.count", f"uint{8 * prefix}", "count" if field.item_name else f"{label} count")
                if item is not None:
                    inner = replace(item, name=field.item_name or label, label="")
                    self.declare(key if not isinstance(item.kind, Counted) else f"{key}.item", inner)
            case Nested():
                self.add_field(key, "none", label)
            case ShortLength():
                self.add_field(key, "uint16", label)
            case Varint(is_signed=is_signed):
                named = value_names(field)
                more = f"base.DEC, {self._table(key, named)}" if named else ""
                self.add_field(key, "int64" if is_signed else "uint64", label, more)
            case SizedBytes(encoding=encoding, is_text=is_text):
                if encoding.title in VARINT_SIZES:
                    kind_ = "int64" if VARINT_SIZES[encoding.title] else "uint64"
                    self.add_field(f"{key}.size", kind_, f"{label} size")
                self.add_field(key, "string" if is_text and encoding.title in VARINT_SIZES else "bytes", label)
            case SizedNumber(size_name=size_name, is_signed=is_signed):
                self.add_field(f"{key}.size", "uint8", size_name or f"{label} size")
                self.add_field(key, "int64" if is_signed else "uint64", label)
                self.add_field(f"{key}.f32", "float", label)
                self.add_field(f"{key}.f64", "double", label)
                self.add_field(f"{key}.bytes", "bytes", label)
            case ChosenBy():
                for _, form in forms_of(kind):
                    self._declare_form(key, form)
            case Custom():
                self.add_field(key, "bytes", label)
            case SizeOf():
                pass

    def _declare_form(self, key: str, form: FieldSpec) -> None:
        if not isinstance(form.kind, Nested):  # its fields stand for themselves
            self.declare(_form_key(key, form), form)

    def _declare_number(self, key: str, field: FieldSpec, kind: Number, size: int) -> None:
        if kind.is_float:
            self.add_field(key, "float" if size == 4 else "double", field.name)
            return
        bits = 8 * size if size <= _MARKED_SIZE_MAX else 64
        is_hex = field.const is not None or field.flags is not None or field.checksum is not None
        more = f"base.{'HEX' if is_hex and not kind.is_signed else 'DEC'}"
        named = value_names(field)
        if named:
            more += f", {self._table(key, named)}"
        self.add_field(key, f"{'int' if kind.is_signed else 'uint'}{bits}", field.name, more)
        for mask, name, bit in self._bits(field):
            self.add_field(f"{key}.{bit}", "bool", name, f"{bits}, nil, {mask:#x}")
        if field.checksum is not None:
            table = self._table("checksum", {0: "bad", 1: "good", 2: "not verified"})
            self.add_field(f"{key}.status", "uint8", f"{field.name} status", f"base.DEC, {table}")

    @staticmethod
    def _bits(field: FieldSpec) -> list[tuple[int, str, str]]:
        return list(bit_names(field)) if (field.size or 0) <= _MARKED_SIZE_MAX else []

    def add_field(self, key: str, kind: str, label: str, more: str = "") -> None:
        extra = f", {more}" if more else ""
        line = f"f[{quote(key)}] = ProtoField.{kind}(PREFIX .. {quote(f'.{key}')}, {quote(label)}{extra})"
        if line not in self.fields:  # forms of a choice may have a field in common
            self.fields.append(line)

    def _table(self, key: str, named: dict[int, str]) -> str:
        """Return the name of a table of values, which is made if it is not there."""
        items = ", ".join(f"[{number}] = {quote(name)}" for number, name in named.items())
        for line in self.tables:
            if line.endswith(f" = {{ {items} }}"):
                return line.split()[1]
        name = self._table_names.add(key).upper()
        self.tables.append(f"local {name} = {{ {items} }}")
        return name

    # ── functions

    def part(self, kind: Any, is_secret: bool = False) -> str:
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
                self.declare(f"{key}.{public_name(field)}", field)
        lines = [f"-- {line}".rstrip() for line in _own_docs(kind)]
        needed = needed_values(fields)
        arguments = "r, v" if needed else "r" if fields else ""
        lines.append(f"function read.{name}({arguments})")
        for index, field in enumerate(fields):
            if not has_bytes(field):
                continue
            marked = within(FieldSpec("", Rest(is_text=False), is_secret=is_secret), field)
            after = size_after(fields[index + 1 :])
            body = self.read(f"{key}.{public_name(field)}", marked, after)
            if field.name in needed:
                body[0] = f"{value_of(field.name)} = {body[0]}"
            lines += indent(self._guarded(field, body))
            if is_custom(field) and after is None:
                lines.append("    -- The fields after it are not shown: where they begin, only the decoder knows.")
                break
        lines += ["end", ""]
        self.functions += lines
        return name

    @staticmethod
    def _guarded(field: FieldSpec, body: list[str]) -> list[str]:
        """Return the lines that read a field if it is there."""
        if field.present_if is not None:
            condition = f"any_bit({value_of(field.present_if.field)}, {field.present_if.bits:#x})"
        elif field.is_optional:
            condition = "r:left() > 0"
        else:
            return body
        return [f"if {condition} then", *indent(body), "end"]

    def order(self, field: FieldSpec) -> str:
        """Return the expression of a field's byte order."""
        if self._frames.envelope.order_shown_by and not field.has_own_order:
            return "r.little"
        return "LITTLE" if field.order == "little" else "BIG"

    def read(  # noqa: C901, PLR0911, PLR0912 (one for each kind)
        self, key: str, field: FieldSpec, after: int | None = 0
    ) -> list[str]:
        """Return the lines that read a field. `after`: bytes of the fields after it in the body."""
        order, quoted = self.order(field), quote(key)
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
            case Rest() if (contents := content_classes(field)) is not None:
                return self._read_content(key, contents)
            case Rest(is_text=is_text):
                return [f"r:{'text' if is_text else 'bytes'}({quoted}, r:left(){more})"]
            case SizedBy(field=size_field, is_text=is_text):
                return [f"r:{'text' if is_text else 'bytes'}({quoted}, {value_of(size_field)}{more})"]
            case Counted():
                return self._read_list(key, field, field.kind, order)
            case Nested(kind=kind):
                return [f"r:group({quoted}, {quote(field.name)}, read.{self.part(kind, field.is_secret)})"]
            case ShortLength():
                return [f"r:short_length({quoted}{more})"]
            case Varint(bits=bits, is_signed=is_signed):
                return [f"r:varint({quoted}, {bits}, {str(is_signed).lower()}{more})"]
            case SizedBytes(encoding=encoding, is_text=is_text) if encoding.title in VARINT_SIZES:
                reader, zigzag = '"text"' if is_text else '"bytes"', str(VARINT_SIZES[encoding.title]).lower()
                return [f"r:sized_by_varint({reader}, {quoted}, {zigzag}{more})"]
            case SizedNumber(integers=integers, floats=floats):
                sizes = [", ".join(f"[{size}] = true" for size in each) for each in (integers, floats)]
                return [f"r:sized_number({quoted}, {order}, {{ {sizes[0]} }}, {{ {sizes[1]} }}{more})"]
            case ChosenBy():
                return self._read_choice(key, field, field.kind, after)
            case SizeOf():
                return []
            case Custom(title=title) | SizedBytes(encoding=SizeEncoding(title=title)):
                comment = f"-- {title}: read by the decoder's own code, shown as bytes"
                taken = f"r:left() - {after}" if after else "r:left()"
                return [f"r:bytes({quoted}, {taken}{more}) {comment}"]

    def _read_list(self, key: str, field: FieldSpec, kind: Counted, order: str) -> list[str]:
        if kind.item is None:
            return []
        item = within(field, kind.item)
        if isinstance(item.kind, Nested):
            part = self.part(item.kind.kind, item.is_secret)
            title = quote(f"{field.item_name or field.name} ")
            inner = [f"r:group({quote(key)}, {title} .. index, read.{part})"]
        else:
            inner = self.read(key if not isinstance(item.kind, Counted) else f"{key}.item", item)
        argument = "index" if isinstance(item.kind, Nested) else ""
        return [f"r:list({quote(key)}, {kind.prefix}, {order}, function({argument})", *indent(inner), "end)"]

    def _read_choice(self, key: str, field: FieldSpec, kind: ChosenBy, after: int | None) -> list[str]:
        lines: list[str] = []
        for number, form in forms_of(kind):
            inner = within(field, form)
            if isinstance(inner.kind, Nested):
                body = [f"read.{self.part(inner.kind.kind, inner.is_secret)}(r, {{}})"]
            elif has_bytes(inner):
                body = self.read(_form_key(key, inner), inner, after)
            else:
                body = ["-- nothing"]
            word = "elseif" if lines else "if"
            lines += ["else" if number is None else f"{word} {value_of(kind.field)} == {number} then", *indent(body)]
        if kind.other is None:
            text = quote(f"{kind.field} has no meaning")
            lines += ["else", f"    r:refuse({text})"]
        return [*lines, "end"]

    def _read_content(self, key: str, contents: list[tuple[Content, Any]]) -> list[str]:
        self.add_field(f"{key}.content", "none", "content")
        lines: list[str] = []
        for content, kind in contents:
            conditions = [
                f"bit.band({value_of(each.field)}, {each.mask:#x}) == {each.value:#x}" for each in content.conditions
            ]
            lines += [f"{'elseif' if lines else 'if'} {' and '.join(conditions) or 'true'} then"]
            lines += [f"    r:content({quote(key)}, {quote(content.label)}, read.{self.part(kind)})"]
        return [*lines, "else", f"    r:bytes({quote(key)}, r:left())", "end"]

    def _marks(self, key: str, field: FieldSpec) -> str:
        marks: list[str] = []
        size, is_small = field.size or 0, (field.size or 0) <= _MARKED_SIZE_MAX
        if field.const is not None:
            value = field.const.value
            marks.append(f"const = {self._const(field, value, size)}")
            if field.const.text:
                marks.append(f"text = {quote(field.const.text)}")
        if field.enum is not None and is_small:
            marks.append(f"known = {self._table(key, value_names(field))}")
        if field.per_frame is not None:
            marks.append(f"known = {self._table(key, dict.fromkeys(self.numbers_of(field), 'known'))}")
        if isinstance(field.kind, Bool8):
            marks.append("most = 1")
        if field.between is not None:
            least, most, text = field.between.least, field.between.most, quote(field.between.text)
            marks.append(f"least = {least}, most = {most}, text = {text}")
        if field.length is not None and field.length.at_least:
            marks.append(f"least = {field.length.at_least}")
        if field.flags is not None and field.flags.reserved:
            marks.append(f"reserved = {field.flags.reserved:#x}")
        bits = self._bits(field)
        if bits:
            marks.append(f"bits = {{ {', '.join(quote(f'{key}.{bit}') for _, _, bit in bits)} }}")
        if field.scale is not None and is_small and isinstance(field.kind, Number) and not field.kind.is_float:
            digits = max(0, -round(log10(field.scale.factor)))
            signed = ", is_signed = true" if field.kind.is_signed else ""
            marks.append(f"scale = {{ {field.scale.factor!r}, {digits}, {quote(field.scale.unit)} }}{signed}")
        if field.is_secret:
            marks.append("is_secret = true")
        return f"{{ {', '.join(marks)} }}" if marks else ""

    def _const(self, field: FieldSpec, value: int | bytes, size: int) -> str:
        """Return the bytes of a constant in hex."""
        if isinstance(value, bytes):
            return quote(value.hex())
        if self.order(field) == "r.little" and size > 1:
            little, big = (value.to_bytes(size, order).hex() for order in ("little", "big"))
            return f'r.little and "{little}" or "{big}"'
        return quote(value.to_bytes(size, field.order).hex())


def _form_key(key: str, form: FieldSpec) -> str:
    """Return the key of one form of a choice: different types need different ones."""
    match form.kind:
        case Counted():
            return f"{key}.list"
        case Number() | Bool8() | Varint():
            return f"{key}.number"
        case Fixed(is_text=True) | Prefixed(is_text=True) | SizedBy(is_text=True) | Rest(is_text=True):
            return f"{key}.text"
    return key


def _own_docs(kind: Any) -> list[str]:
    own = kind.__dict__.get("__doc__")
    return inspect.cleandoc(own).splitlines() if own else []


def value_of(name: str) -> str:
    """Return the expression of a number that was read before."""
    return f'v["{name}"]' if name in _LUA_WORDS else f"v.{name}"


def indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
