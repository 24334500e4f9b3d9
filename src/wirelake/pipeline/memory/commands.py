"""apostol packets → commands → readings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import ProtocolError, SealError
from wirelake.lake.tables import DEVICE_COMMANDS, READINGS
from wirelake.limits import PIPELINE_CLOCK_STEP_S, PIPELINE_COMMANDS_OPEN_BYTES_MAX, PIPELINE_COMMANDS_OPEN_MAX
from wirelake.pipeline.memory.assembly import (
    COMPLETE,
    EXPIRED,
    REFUSED,
    RULES,
    Assembly,
    Done,
    Partial,
    Rules,
    Seal,
    counted,
    pack,
    unpack,
)
from wirelake.pipeline.memory.carry import kept, split, states_of
from wirelake.pipeline.memory.item import FRAGMENT, items_table, to_json
from wirelake.pipeline.memory.outcome import MINUTE_US, Outcome, table_columns, table_rows
from wirelake.protocols.apostol.commands import DeviceCommand, Status, parse_command
from wirelake.protocols.apostol.envelope import open_command
from wirelake.protocols.apostol.opcodes import ANSWER, FIRST, LAST, SEALED, TIME_ERROR, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.protocol import PROTOCOL

Keys = Callable[[str], bytes | None] | Mapping[str, bytes]  # by serial

OPEN: Final = "open"
NO_ROOM: Final = "commands_open_max"
DECODER: Final = f"{PROTOCOL.name}/{PROTOCOL.decoder_version}"
_STEP_US: Final = int(PIPELINE_CLOCK_STEP_S * 1_000_000)
_BITS: Final = (
    ("first", FIRST),
    ("last", LAST),
    ("to_device", TO_DEVICE),
    ("answer", ANSWER),
    ("zlib", ZIPPED),
    ("sealed", SEALED),
)
_DEVICE: Final = "="  # in a key, before a serial
_BROADCAST: Final = "*"  # before the identity of the device that it was sent to, or came from
_DEVICE_HEAD_BYTES: Final = 6  # of a device's command, before its data
_Row = tuple[Any, ...]
_Said = tuple[int | None, int | None, int | None, bytes | None, str | None]  # type, error, time, data, fields
_NOTHING_SAID: Final[_Said] = (None, None, None, None, None)


def fragment_items(packets: pa.RecordBatch) -> pa.Table:
    """Every packet that is a piece of a command; receipts are none."""
    packets = packets.filter(pc.invert(packets["receipt"]))
    flags = None
    for name, bit in _BITS:
        bits = pc.multiply(packets[name].cast(pa.int32()), bit)
        flags = bits if flags is None else pc.add(flags, bits)
    # A broadcast names no device: each that it was sent to, or came from, has its own.
    serial, identity = packets["serial"], packets["identity"]
    whose = pc.if_else(
        pc.equal(serial, ""),
        pc.binary_join_element_wise(_BROADCAST, identity, ""),
        pc.binary_join_element_wise(_DEVICE, serial, ""),
    )
    key = pc.binary_join_element_wise(packets["direction"], packets["device_type"].cast(pa.string()), whose, "/")
    number = pc.add(pc.multiply(packets["command_no"].cast(pa.int64()), 256), packets["packet_no"].cast(pa.int64()))
    return items_table(
        FRAGMENT,
        {
            "key": key,
            "seq": packets["seq"],
            "at": packets["at"],
            "node": packets["node"],
            "flags": flags,
            "number": number,
            "data": packets["data"],
        },
    )


def settle_commands(items: pa.Table, carried: pa.Table, clock_us: int, keys: Keys, rules: Rules = RULES) -> Outcome:
    key_of = keys.get if isinstance(keys, Mapping) else keys
    spoken_of = items["key"].combine_chunks().dictionary_encode()
    touched, rest = split(carried, spoken_of.dictionary, clock_us)
    states = states_of(touched, unpack)
    out = _Settling(key_of, rules)
    _take(items, spoken_of, states, out)
    carry = kept()
    for key, assembly in states.items():
        place = _Place(key)
        out.add(place, assembly, assembly.overdue(clock_us - _STEP_US, rules))
        out.count(assembly)
        if assembly.forget(clock_us - _STEP_US, rules):
            out.show(place, assembly, clock_us)
            carry.put(key, assembly.due_us(rules) + _STEP_US, len(assembly.open), pack(assembly))
    still = _Settling(key_of, rules)
    showing = rest.filter(pc.greater(rest["shows"], 0))
    for key, assembly in states_of(showing, unpack).items():
        still.show(_Place(key), assembly, clock_us)
    if len(out.open) + len(still.open) > PIPELINE_COMMANDS_OPEN_MAX or (
        out.open_bytes + still.open_bytes > PIPELINE_COMMANDS_OPEN_BYTES_MAX
    ):
        return _made_room(pa.concat_tables([carry.table(FRAGMENT), rest]), out, clock_us)
    return out.outcome([carry.table(FRAGMENT), rest], still)


def _take(items: pa.Table, keys: pa.DictionaryArray, states: dict[str, Assembly], out: "_Settling") -> None:
    """The items, device after device."""
    names = keys.dictionary.to_pylist()
    seqs, nodes, flags, numbers, pieces = (
        items[column].to_pylist() for column in ("seq", "node", "flags", "number", "data")
    )
    ats = items["at"].cast(pa.int64()).to_pylist()
    current, add, rules = -1, None, out.rules
    place: _Place | None = None
    assembly: Assembly | None = None
    seal: Seal | None = None
    done: list[Done] = []
    for index, seq, at, node, params, number, data in zip(
        keys.indices.to_pylist(), seqs, ats, nodes, flags, numbers, pieces, strict=True
    ):
        if index != current:
            if place is not None and assembly is not None:
                out.add(place, assembly, done)
            current, done = index, []
            place = _Place(names[index])
            seal = Seal(out.key_of, place.serial, (place.device_type, place.serial_sent))
            assembly = states.get(names[index])
            if assembly is None:
                assembly = states[names[index]] = Assembly()
            add = assembly.add
        add(seq, at, node, params, number, data, done, rules, seal)  # type: ignore[misc]
    if place is not None and assembly is not None:
        out.add(place, assembly, done)


def _made_room(carried: pa.Table, out: "_Settling", clock_us: int) -> Outcome:
    """Too many are open: the oldest go, until there is room for a quarter more."""
    states = states_of(carried, unpack)
    waiting = sorted(
        (partial.first_seq, key, slot, partial.held_bytes)
        for key, assembly in states.items()
        for slot, partial in assembly.open.items()
    )
    count, size = len(waiting), sum(each[3] for each in waiting)
    for _seq, key, slot, held in waiting:
        fits = count <= PIPELINE_COMMANDS_OPEN_MAX * 3 // 4
        if fits and size <= PIPELINE_COMMANDS_OPEN_BYTES_MAX * 3 // 4:
            break
        out.add(_Place(key), states[key], states[key].give_up(slot, NO_ROOM))
        out.counts["commands_given_up"] += 1
        count, size = count - 1, size - held
    out.open, out.open_bytes = [], 0
    carry = kept()
    for key, assembly in states.items():
        out.show(_Place(key), assembly, clock_us)
        carry.put(key, assembly.due_us(out.rules) + _STEP_US, len(assembly.open), pack(assembly))
    return out.outcome([carry.table(FRAGMENT)], _Settling(out.key_of, out.rules))


class _Place:
    """Whose packets: what a key of items says."""

    __slots__ = ("device_type", "direction", "serial", "serial_sent")

    def __init__(self, key: str) -> None:
        self.direction, device_type, whose = key.split("/", 2)
        self.device_type = int(device_type)
        self.serial = whose[1:]
        self.serial_sent = self.serial if whose[0] == _DEVICE else ""  # as the packets have it: a broadcast has none


class _Settling:
    """Gathers rows, column by column: there may be very many."""

    def __init__(self, key_of: Callable[[str], bytes | None], rules: Rules) -> None:
        self.key_of = key_of
        self.rules = rules
        self.open: list[_Row] = []
        self.open_bytes = 0
        self.counts = Outcome([]).counts
        self._places: list[_Place] = []
        self._done: list[Done] = []
        self._said: list[_Said] = []
        self._read_by: list[int] = []  # which of them a reading is of
        self._read_types: list[int] = []
        self._read_values: list[float | None] = []

    def count(self, assembly: Assembly) -> None:
        self.counts.update({name: count for name, count in counted(assembly).items() if count})

    def add(self, place: _Place, assembly: Assembly, done: list[Done]) -> None:
        for each in done:
            said = _NOTHING_SAID
            if each.state == COMPLETE:
                try:
                    said = self._opened(place, assembly, each)
                except ProtocolError as fault:
                    each.state, each.reason = REFUSED, fault.code
            self._places.append(place)
            self._done.append(each)
            self._said.append(said)

    def _opened(self, place: _Place, assembly: Assembly, done: Done) -> _Said:
        """What a complete command says. Raises ProtocolError, whose code is the reason why it is refused."""
        data, params = done.data, done.params
        if self.rules.require_seal and not params & (SEALED | TO_DEVICE) and self.key_of(place.serial) is not None:
            raise SealError("unsealed", "this device has a key, and its commands have to be sealed", 0)
        if params & (SEALED | ZIPPED):
            key = self.key_of(place.serial) if params & SEALED else None
            inflated_max = self.rules.inflated_bytes_max
            data = open_command(data, params, place.device_type, place.serial_sent, done.command_no, key, inflated_max)
        command = parse_command(data, to_device=params & TO_DEVICE != 0)
        if not isinstance(command, DeviceCommand):
            return command.command_type, None, None, command.data, None
        if params & SEALED and self.rules.require_seal and not assembly.take(command.time, done, self.rules):
            raise SealError("replayed", "this sealed command came before, or is too old to tell", 0)
        device_time = command.time * 1_000_000 if command.time > TIME_ERROR else None
        said, fields = command.data, None
        if isinstance(said, Status):
            fields = to_json({"status": said}).decode()
        elif isinstance(said, tuple):
            fields = to_json({"readings": said}).decode()
            self._read_by += [len(self._done)] * len(said)
            self._read_types += [reading.type for reading in said]
            self._read_values += [None if isinstance(each.value, bytes) else each.value for each in said]
        return command.command_type, command.error, device_time, data[_DEVICE_HEAD_BYTES:], fields

    def _final(self) -> pa.Table:
        done, places = self._done, self._places
        kinds, errors, times, data, fields = zip(*self._said, strict=True) if done else ((),) * 5
        columns: dict[str, Sequence[Any]] = {
            "seq": [each.seq for each in done],
            "at": [each.at for each in done],
            "node": [each.node for each in done],
            "serial": [place.serial for place in places],
            "device_type": [place.device_type for place in places],
            "command_no": [each.command_no for each in done],
            "direction": [place.direction for place in places],
            "answer": [each.params & ANSWER != 0 for each in done],
            "packets": [each.packets for each in done],
            "repeats": [each.repeats for each in done],
            "first_at": [each.first_at for each in done],
            "done_at": [each.done_at for each in done],
            "state": [each.state for each in done],
            "command_type": kinds,
            "error": errors,
            "device_time": times,
            "data": data,
            "fields": fields,
            "reason": [each.reason or None for each in done],
        }
        return table_columns(DEVICE_COMMANDS, columns, protocol=PROTOCOL.name, decoder=DECODER)

    def _read(self, commands: pa.Table) -> pa.Table:
        """One row for each reading, with what its command's row says."""
        rows = commands.select([name for name in READINGS.schema.names if name in commands.column_names])
        rows = rows.take(pa.array(self._read_by, pa.int64()))
        rows = rows.append_column("type", pa.array(self._read_types, pa.int64()))
        return rows.append_column("value", pa.array(self._read_values, pa.float64())).select(READINGS.schema.names)

    def show(self, place: _Place, assembly: Assembly, clock_us: int) -> None:
        """Those that are open. One whose time is over is shown so, and final when no clock can undo it."""
        for slot, partial, is_over in assembly.waiting(clock_us, self.rules):
            self.open.append(_open_row(place, slot, partial, self.rules.timeout_us if is_over else None))
            self.open_bytes += partial.held_bytes

    def outcome(self, carry: list[pa.Table], still: "_Settling") -> Outcome:
        final = self._final()
        begun = {each.first_at // MINUTE_US * MINUTE_US for each in self._done}  # where they were open
        return Outcome(
            carry,
            final={DEVICE_COMMANDS.name: final, READINGS.name: self._read(final)},
            open={DEVICE_COMMANDS.name: table_rows(DEVICE_COMMANDS, self.open, settled=False)},
            still={DEVICE_COMMANDS.name: table_rows(DEVICE_COMMANDS, still.open, settled=False)},
            dirty_us={DEVICE_COMMANDS.name: begun},
            counts=self.counts,
        )


def _open_row(place: _Place, slot: int, partial: Partial, over_us: int | None) -> _Row:
    """`over_us`: how long it had, where its time is over."""
    return (
        partial.first_seq,
        partial.first_at,
        partial.node,
        PROTOCOL.name,
        place.serial,
        place.device_type,
        slot & 0xFF,
        place.direction,
        partial.params & ANSWER != 0,
        partial.packets,
        partial.repeated,
        partial.first_at,
        None if over_us is None else partial.first_at + over_us,
        OPEN if over_us is None else EXPIRED,
        None,
        None,
        None,
        None,
        None,
        None,
        DECODER,
    )
