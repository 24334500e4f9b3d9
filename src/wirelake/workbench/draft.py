"""Draft a description of frames from what was found: source text to start from, which decodes the samples."""

from collections.abc import Sequence
from typing import Any, Final

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.workbench.checksums import algorithms
from wirelake.workbench.evidence import Proposal

_KINDS: Final = {"length", "constant", "opcode", "counter", "timestamp", "enumeration"}
_TYPES: Final = {1: "u8", 2: "u16", 3: "u24", 4: "u32", 6: "u48", 8: "u64"}
_NAME: Final = "draft"


def draft_layout(frames: Sequence[bytes], findings: Sequence[Proposal]) -> tuple[str, int]:
    """Return the source, and how many of the frames it decodes. A frame without a length must have a fixed size."""
    draft = _Draft(frames, findings)
    if not draft.can_be_cut:
        return "", 0
    text = draft.source()
    return text, decodes(text, frames)


def decodes(source: str, frames: Sequence[bytes]) -> int:
    """Return how many frames a draft decodes. The source is this module's own: it has numbers from frames, no text."""
    names: dict[str, Any] = {"__name__": _NAME}
    exec(compile(source, _NAME, "exec"), names)  # noqa: S102 (see above)
    decoded = 0
    for frame in frames:
        try:
            names["FRAMES"].decode(frame, Sender.CLIENT)
        except ProtocolError:
            continue
        decoded += 1
    return decoded


class _Draft:
    def __init__(self, frames: Sequence[bytes], findings: Sequence[Proposal]) -> None:
        self._findings = findings
        self._sizes = {len(frame) for frame in frames}
        self._least = min(map(len, frames))
        self._length = self._first("length")
        self._opcode = self._first("opcode")
        self._checksum = next((each for each in findings if each.kind == "checksum" and each.offset < 0), None)
        self._tail_bytes = 0 if self._checksum is None else self._checksum.size
        self._order = next((each.order for each in (self._length, self._checksum) if each and each.size > 1), "big")
        self._imports = {"Body", "Envelope", "FrameSet", "LayoutFrame"}
        self._imports.add("fixed" if self._length is None else "rest_bytes")
        self._body_bytes = 0  # of frames of a fixed size
        self._carried: list[tuple[str, str]] = []  # name and type of the head's fields that belong to every frame
        self._starts: dict[int, str] = {}  # of the fields of the head

    @property
    def can_be_cut(self) -> bool:
        return self._length is not None or len(self._sizes) == 1

    def _first(self, kind: str) -> Proposal | None:
        return next((each for each in self._findings if each.kind == kind and self._is_in_head(each)), None)

    def _is_in_head(self, finding: Proposal) -> bool:
        tail = next((each.size for each in self._findings if each.kind == "checksum" and each.offset < 0), 0)
        return finding.offset >= 0 and finding.offset + finding.size <= self._least - tail

    def source(self) -> str:
        head = self._head()
        tail = self._tail()
        classes = self._classes()
        uses_annotated = any("Annotated" in line for line in (*head, *tail, *classes))
        lines = ['"""A first description, drafted from samples: name the fields, and describe the bodies."""', ""]
        if uses_annotated:
            lines += ["from typing import Annotated", ""]
        lines += self._algorithm_imports()
        lines += ["from wirelake.layout import (", *(f"    {name}," for name in sorted(self._imports)), ")", "", ""]
        lines += [f'class DraftEnvelope(Envelope, byte_order="{self._order}"):']
        lines += [f"    {line}" for line in (*head, "body: Body", *tail)]
        lines += ["", "", "class DraftFrame(LayoutFrame, frozen=True, envelope=DraftEnvelope):"]
        lines += [f"    {name}: {kind}" for name, kind in self._carried] or ["    pass"]
        lines += classes
        return "\n".join(lines) + "\n"

    def _head(self) -> list[str]:
        """Return the fields up to the last one that the envelope needs, unknown bytes included."""
        needed = [each for each in (self._length, self._opcode) if each is not None]
        fields = {each.offset: each for each in self._findings if each.kind in _KINDS and self._is_in_head(each)}
        if not needed and 0 in fields:
            needed = [fields[0]]
        end = max((each.offset + each.size for each in needed), default=0)
        breaks = {end, *(offset for offset in fields if offset < end)}
        if self._checksum is not None and self._checksum.covers[0] < end:
            breaks.add(self._checksum.covers[0])
        lines, offset = [], 0
        while offset < end:
            found = fields.get(offset)
            if found is not None and found.offset + found.size <= end:
                lines.append(self._field(found))
                offset += found.size
            else:
                size = min(place for place in breaks if place > offset) - offset
                lines.append(self._unknown(offset, size))
                offset += size
        self._starts[offset] = "body"
        self._body_bytes = self._least - offset - self._tail_bytes
        return lines

    def _field(self, found: Proposal) -> str:
        kind = _TYPES.get(found.size, "")
        marks = []
        name = f"{found.kind}_{found.offset}"
        if found is self._length:
            name = "length"
            marks.append(f"length_of_{found.counts}({f'plus={found.plus}' if found.plus else ''})")
            self._imports.add(f"length_of_{found.counts}")
        elif found is self._opcode:
            name = "opcode"
            marks.append("opcode()")
            self._imports.add("opcode")
        elif found.kind == "constant":
            self._imports.add("const")
            if found.size == 1:
                marks.append(f"const({found.values[0]:#04x})")
            else:
                kind = "bytes"
                self._imports.add("fixed")
                marks += [f"fixed({found.size})", f'const(bytes.fromhex("{bytes(found.values).hex()}"))']
        else:
            self._carried.append((name, "int"))
        if kind != "bytes":
            self._imports.add(kind)
        if found.size > 1 and kind != "bytes" and found.order != self._order:
            self._imports.add(found.order)
            marks.append(found.order)
        self._starts[found.offset] = name
        return f"{name}: Annotated[{', '.join((kind, *marks))}]" if marks else f"{name}: {kind}"

    def _unknown(self, offset: int, size: int) -> str:
        name = f"unknown_{offset}"
        self._starts[offset] = name
        if size == 1:
            self._carried.append((name, "int"))
            self._imports.add("u8")
            return f"{name}: u8"
        self._carried.append((name, "bytes"))
        self._imports.add("fixed")
        return f"{name}: Annotated[bytes, fixed({size})]"

    def _tail(self) -> list[str]:
        found = self._checksum
        if found is None:
            return []
        start = found.covers[0]
        if start not in self._starts:
            return []  # it covers a part of the body, which a description cannot say
        self._imports |= {"Checksum", _TYPES[found.size]}
        algorithm = next(each for each in algorithms() if each.name == found.algorithm)
        over = "" if start == 0 else f', over="{self._starts[start]}..body"'
        marks = [f'Checksum("{algorithm.name}", {algorithm.expression}{over})']
        if found.size > 1 and found.order != self._order:
            self._imports.add(found.order)
            marks.append(found.order)
        return [f"checksum: Annotated[{', '.join((_TYPES[found.size], *marks))}]"]

    def _algorithm_imports(self) -> list[str]:
        found = self._checksum
        if found is None or found.covers[0] not in self._starts:
            return []
        expression = next(each.expression for each in algorithms() if each.name == found.algorithm)
        if expression.startswith("crc"):
            return [f"from fastcrc import {expression.partition('.')[0]}", ""]
        if "reduce" in expression:
            return ["from functools import reduce", "from operator import xor", ""]
        return ["from zlib import adler32", ""] if expression == "adler32" else []

    def _classes(self) -> list[str]:
        lines: list[str] = []
        names = []
        data = "rest_bytes" if self._length is not None else f"Annotated[bytes, fixed({self._body_bytes})]"
        values: Sequence[int | None] = (None,) if self._opcode is None else self._opcode.values
        for value in values:
            name, opcode = ("Data", "") if value is None else (f"Frame{value:02X}", f", opcode={value:#04x}")
            names.append(name)
            lines += ["", "", f"class {name}(DraftFrame, frozen=True{opcode}):", f"    data: {data}"]
        return [*lines, "", "", f'FRAMES = FrameSet("{_NAME}", DraftEnvelope, [{", ".join(names)}])']
