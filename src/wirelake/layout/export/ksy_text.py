"""Parts of a Kaitai Struct specification: a type while it is written, and attributes of its fields."""

import json
import re
from collections.abc import Sequence
from typing import Final

from wirelake.layout.export.naming import UniqueNames, identifier, is_custom
from wirelake.layout.fields import Custom, FieldSpec

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ /.-]*")
EXPRESSION_WORDS: Final = ("true", "false", "and", "or", "not")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class KsyType:
    """A type of the specification, while it is written."""

    def __init__(self) -> None:
        self.doc = ""
        self.meta: list[str] = []
        self.params: list[str] = []
        self.seq: list[str] = []
        self.instances: list[str] = []
        self.ids = UniqueNames(*EXPRESSION_WORDS)
        self.id_of: dict[str, str] = {}  # by the name of a field
        self.enums: set[str] = set()  # ids of the numbers with names

    def number(self, field: str) -> str:
        """Return the expression of a number. One that is not here is in the frame around the body."""
        if field not in self.id_of:
            return f"_parent.{identifier(field)}"
        id_ = self.id_of[field]
        return f"{id_}.to_i" if id_ in self.enums else id_

    def lines(self) -> list[str]:
        lines = [f"doc: {quote(self.doc)}"] if self.doc else []
        for title, part in (
            ("meta", self.meta),
            ("params", self.params),
            ("seq", self.seq),
            ("instances", self.instances),
        ):
            if part:
                lines += [f"{title}:", *indent(part)]
        return lines or ["seq: []"]


SENDER: Final = ["- id: sender", "  type: u1", "  enum: sender"]
SHORT_LENGTH: Final = [
    "doc: A length of one byte up to 127; above, of two.",
    "seq:",
    "  - id: low",
    "    type: u1",
    "  - id: high",
    "    type: u1",
    "    if: low > 0x7f",
    "instances:",
    "  value:",
    '    value: "low > 0x7f ? (low & 0x7f) | (high << 7) : low"',
]


def signed_type(size: int, suffix: str) -> list[str]:
    top = 1 << 8 * size - 1
    return [
        "seq:",
        "  - id: bits",
        f"    type: b{8 * size}{suffix}",
        "instances:",
        "  value:",
        f'    value: "bits >= {top:#x} ? bits - {2 * top:#x} : bits"',
    ]


def varint_type(is_signed: bool) -> list[str]:
    groups = [f"(groups.size > {index} ? (groups[{index}] & 0x7f) << {7 * index} : 0)" for index in range(1, 10)]
    lines = [
        "seq:",
        "  - id: groups",
        "    type: u1",
        "    repeat: until",
        "    repeat-until: (_ & 0x80) == 0",
        "instances:",
        f"  {'folded' if is_signed else 'value'}:",
        f'    value: "(groups[0] & 0x7f) + {" + ".join(groups)}"',
    ]
    if is_signed:
        lines += ["  value:", '    value: "(folded & 1) == 0 ? folded >> 1 : -(folded >> 1) - 1"']
    return lines


def sized(size: str, is_text: bool) -> list[str]:
    lines = [f"size: {size}"] if size else []
    return [*lines, "type: str", "encoding: UTF-8"] if is_text else lines


def unparsed(after: int | None) -> list[str]:
    """Return the attributes of bytes that take all but those of the fields after them."""
    return [f"size: {expression(f'_io.size - _io.pos - {after}')}"] if after else ["size-eos: true"]


def valid(condition: str) -> list[str]:
    return ["valid:", f"  expr: {expression(condition)}"]


def byte_list(value: bytes) -> str:
    return f"[{', '.join(f'{byte:#04x}' for byte in value)}]"


def field_doc(field: FieldSpec) -> str:
    """Return what is known about a field that its type does not say."""
    parts: list[str] = []
    if field.is_secret:
        parts.append("Secret.")
    if field.scale is not None:
        parts.append(f"Times {field.scale.factor:g} {field.scale.unit}.")
    if field.checksum is not None:
        over = f" over {field.checksum.over}" if field.checksum.over else ""
        parts.append(f"{field.checksum.title}{over}. It is not verified here.")
    if is_custom(field):
        title = field.kind.title if isinstance(field.kind, Custom) else "bytes after their size"
        parts.append(f"{title}: read by the decoder's own code, here as bytes.")
    return " ".join(parts)


def expression(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else quote(text)


def quote(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS else json.dumps(text, ensure_ascii=False)


def indent(lines: Sequence[str], times: int = 1) -> list[str]:
    return [f"{'  ' * times}{line}" for line in lines]
