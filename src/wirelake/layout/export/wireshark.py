"""Write a Wireshark dissector, in Lua, from the description of a protocol's frames.

The dissector is a text for people, too: one function for each frame, which reads the fields in the order of the wire
with the functions of `runtime.lua`. It accepts and refuses the same frames as `decode`.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.export.lua_fields import FieldWriter, indent, quote, value_of
from wirelake.layout.export.naming import described_in, identifier, needed_values
from wirelake.layout.fields import Checksum, Counted, FieldSpec, Number, Prefixed, ShortLength
from wirelake.layout.frame_set import FrameSet
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Transport

_PORT_TABLES: Final = {Carrier.TCP: "tcp.port", Carrier.UDP: "udp.port", Carrier.WEBSOCKET: "ws.port"}
_HEAD = """\
-- Dissector of {name} for Wireshark and tshark 4 or later.
-- Generated from the description in {modules} by
--     wirelake protocol export {name} --format wireshark
-- Do not edit it: change the description, and export it again.
"""


def wireshark_dissector(
    frames: FrameSet, title: str, transports: Sequence[Transport], *, accepts_unknown: bool = False
) -> str:
    """Return the text of a dissector that is registered on the ports of the transports.

    With `accepts_unknown`, the body of a frame with an unknown opcode is shown as bytes, instead of refused.
    """
    return _DissectorText(frames, title, transports, accepts_unknown).text()


class _DissectorText:
    """Write the frame around the fields, how it is cut out of a stream, and on which ports it is."""

    def __init__(self, frames: FrameSet, title: str, transports: Sequence[Transport], accepts_unknown: bool) -> None:
        self._frames = frames
        self._accepts_unknown = accepts_unknown
        self._title = title
        self._transports = transports
        self._writer = FieldWriter(frames)

    def text(self) -> str:
        envelope, writer = self._frames.envelope, self._writer
        writer.add_field("frame_name", "string", "frame")
        frame_lines = self._read_frame(envelope)
        bodies = self._bodies()
        sections = [
            _HEAD.format(name=self._frames.name, modules=described_in(self._frames.frames)),
            self._declare_protocol(),
            "\n".join(["-- ── names of values", "", *writer.tables]) if writer.tables else "",
            "\n".join(["-- ── fields", "", "local f = {}", *writer.fields, "proto.fields = f"]),
            _lua("runtime.lua"),
            "\n".join(["-- ── frames", "", "local read = {}", "", *writer.functions]).rstrip(),
            bodies,
            self._shows_little(envelope),
            frame_lines,
            self._frame_size(envelope),
            _lua("transport.lua"),
            self._registration(),
        ]
        return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"

    def _declare_protocol(self) -> str:
        prefix = identifier(self._frames.name)
        experts = {
            "malformed": '"malformed frame", expert.group.MALFORMED',
            "bad_checksum": '"wrong checksum", expert.group.CHECKSUM',
        }
        lines = [
            f"local NAME = {quote(self._frames.name)}",
            f"local HEAD_BYTES = {self._min_head()} -- needed to tell how long a frame is",
            "",
            f"local TITLE = {quote(self._title)}",
            f"local PREFIX = {quote(prefix)} -- of the names in display filters",
            "local is_free, proto = pcall(Proto, PREFIX, TITLE)",
            "if not is_free then -- Wireshark has a protocol of this name",
            f"    PREFIX = {quote(f'{prefix}_frames')}",
            "    proto = Proto(PREFIX, TITLE)",
            "end",
        ]
        for name, arguments in experts.items():
            lines.append(f'local {name} = ProtoExpert.new(PREFIX .. ".{name}", {arguments}, expert.severity.ERROR)')
        return "\n".join([*lines, f"proto.experts = {{ {', '.join(experts)} }}"])

    # ── the frame around the body

    def _bodies(self) -> str:
        """Return the tables of the frames that each end sends, by opcode."""
        lines = ["local bodies = { client = {}, server = {} }"]
        if self._accepts_unknown:
            self._writer.add_field("unknown.data", "bytes", "data")
            body = '{ name = "unknown", read = function(r) r:bytes("unknown.data", r:left()) end }'
            lines += [f"local unknown = {body}", "local others = { __index = function() return unknown end }"]
            lines += [f"setmetatable(bodies.{sender}, others)" for sender in Sender]
        for kind in self._frames.frames:
            name = self._writer.part(kind)
            key = kind.opcode if kind.opcode is not None else 0
            expected = [f"[{quote(field.name)}] = {constant_of(field, kind)!r}" for field in self._per_frame()]
            values = f", expected = {{ {', '.join(expected)} }}" if expected else ""
            body = f"{{ name = {quote(kind.name)}, read = read.{name}{values} }}"
            senders = list(Sender) if kind.sender is None else [kind.sender]
            lines += [f"bodies.{sender}[{key}] = {body}" for sender in senders]
        return "\n".join(lines)

    def _per_frame(self) -> list[FieldSpec]:
        head = self._frames.envelope.head
        return [field for field in head if field.per_frame is not None and isinstance(field.kind, Number)]

    def _shows_little(self, envelope: EnvelopeSpec) -> str:
        """Return the function that finds the byte order of a frame, if that differs from frame to frame."""
        field = next((field for field in envelope.head if field.name == envelope.order_shown_by), None)
        if field is None:
            return ""
        known = ", ".join(f"[{number}] = true" for number in self._writer.numbers_of(field))
        place = _sum("place", envelope.before(field.name) or 0)
        lines = [
            f"-- {field.name} is one of these numbers in the byte order of the frame.",
            f"local shown_numbers = {{ {known} }}",
            "",
            "local function shows_little(tvb, place)",
            f"    if tvb:len() < {place} + {field.size} then",
            "        return false",
            "    end",
            f"    local range = tvb({place}, {field.size})",
            "    return shown_numbers[range:le_uint()] ~= nil and shown_numbers[range:uint()] == nil",
            "end",
        ]
        return "\n".join(lines)

    def _read_frame(self, envelope: EnvelopeSpec) -> str:
        lines = [*self._head_lines(envelope), f"r:body({envelope.tail_size})"]
        for field in envelope.tail:
            self._writer.declare(field.name, field)
            if field.checksum is not None:
                lines.append(f"r:checksum({quote(field.name)}, {field.size}, {self._writer.order(field)})")
            else:
                lines += self._writer.read(field.name, field)
        return "\n".join(["local function read_frame(r)", *indent(lines), "end"])

    def _head_lines(self, envelope: EnvelopeSpec) -> list[str]:
        lines: list[str] = []
        verify = self._verify(envelope)
        needed = self._needed(envelope)
        if needed:
            lines.append("local v = r.values")
        if envelope.order_shown_by:
            lines.append("r.little = shows_little(r.tvb, 0)")
        if envelope.length is None:
            lines += verify
        if envelope.opcode is None:
            lines.append('r:choose(bodies[r.sender], "frame", 0)')
        for field in envelope.head:
            self._writer.declare(field.name, field)
            (line,) = self._writer.read(field.name, field)
            if field.length is not None:
                whole = self._whole(envelope, field)
                lines += [f"local length = {line}", f"r:check_size({quote(field.name)}, {whole})", *verify]
            elif field.opcode is not None:
                mask = field.opcode.mask
                number = f"bit.band(opcode, {mask:#x})" if mask else "opcode"
                choose = f"r:choose(bodies[r.sender], {quote(field.name)}, {number}, opcode_item)"
                lines += [f"local opcode, opcode_item = {line}", choose]
                lines += [f"{value_of(field.name)} = opcode"] if field.name in needed else []
            else:
                lines.append(f"{value_of(field.name)} = {line}" if field.name in needed else line)
        return [*lines, *(f"r:expect({quote(field.name)}, {value_of(field.name)})" for field in self._per_frame())]

    def _needed(self, envelope: EnvelopeSpec) -> set[str]:
        """Return the fields of the head whose values are needed later."""
        names = {field.name for field in envelope.head}
        needed = needed_values(envelope.head) | set(envelope.added_sizes) | {each.name for each in self._per_frame()}
        for kind in self._frames.frames:
            needed |= needed_values(kind.__layout_fields__) & names
        return needed

    @staticmethod
    def _whole(envelope: EnvelopeSpec, field: FieldSpec) -> str:
        """Return the expression of the size of the frame, from its length."""
        role = field.length
        if isinstance(field.kind, ShortLength):
            return _sum("r.place + length", -role.plus if role is not None else 0)
        sizes = "".join(f" + {value_of(name)}" for name in envelope.added_sizes)
        return _sum("length", envelope.added_to_length()) + sizes

    def _verify(self, envelope: EnvelopeSpec) -> list[str]:
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
        stored = f"r.tvb(r.tvb:len() - {left}, {field.size})"
        return [
            f"if r:left() >= {envelope.tail_size} then",
            f"    r:verify({quote(field.name)}, {stored}, {self._writer.order(field)}, function(data)",
            f"        return crc(data, {_crc_arguments(field.checksum)})",
            f"    end, {first}, {after})",
            "end",
        ]

    def _frame_size(self, envelope: EnvelopeSpec) -> str:
        """Return the function that tells where a frame ends."""
        lines = ["-- How many bytes the frame at `place` has; 0 if more bytes are needed to tell."]
        lines.append("local function frame_size(tvb, _, place)")
        length = envelope.length
        if envelope.is_datagram:
            body = ["return tvb:len() - place"]
        elif length is None:
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
            body = ["local little = shows_little(tvb, place)"] if envelope.order_shown_by else []
            added = [field for field in envelope.head if field.name in envelope.added_sizes]
            numbers = [self._number_at(field, _sum("place", envelope.before(field.name) or 0)) for field in added]
            numbers.insert(0, self._number_at(length, _sum("place", envelope.before(length.name) or 0)))
            body.append(f"return {_sum(' + '.join(numbers), envelope.added_to_length())}")
        return "\n".join([*lines, *indent(body), "end"])

    def _number_at(self, field: FieldSpec, place: str, size: int | None = None) -> str:
        """Return the expression of a number outside of a frame that is being read."""
        order = "little" if self._writer.order(field) == "r.little" else self._writer.order(field)
        return f"uint_at(tvb, {place}, {size or field.size}, {order})"

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
            lines.append(f"size = {_sum('size', known + prefix)} + {self._number_at(field, place, prefix)}{times}")
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


def _sum(term: str, number: int) -> str:
    return f"{term} + {number}" if number > 0 else f"{term} - {-number}" if number else term
