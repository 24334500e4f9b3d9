"""Assemble device commands from packets, and take their readings: the protocol's own code, run over buckets."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import ProtocolError
from wirelake.lake.tables import DEVICE_COMMANDS, READINGS
from wirelake.limits import PIPELINE_COMMANDS_OPEN_BYTES_MAX, PIPELINE_COMMANDS_OPEN_MAX
from wirelake.log.imported import import_of, imported_at_us
from wirelake.pipeline.stateful.bucket_state import (
    KindState,
    PackedStates,
    Reduction,
    table_columns,
    table_rows,
    unpack_states,
)
from wirelake.pipeline.stateful.events import event_table
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reassembly import (
    COMPLETE,
    EXPIRED,
    REFUSED,
    CommandAssembly,
    CommandContent,
    DeviceAddress,
    FinishedCommand,
    KeyOf,
    OpenCommand,
    Reassembly,
)

Keys = KeyOf | Mapping[str, bytes]  # by serial

OPEN: Final = "open"
OVER_LIMIT: Final = "commands_open_max"
_DEVICE: Final = "="  # in a key, before a serial
_BROADCAST: Final = "*"  # before the identity of the device that received or sent a broadcast
_NO_CONTENT: Final = CommandContent()
_Row = tuple[Any, ...]


def fragment_events(reassembly: Reassembly, packets: pa.RecordBatch) -> pa.Table:
    """Return one event for each packet that is part of a command; a receipt is not."""
    packets = packets.filter(pc.invert(packets["receipt"]))
    # A broadcast names no device: each device that received or sent it has its own.
    serial, identity = packets["serial"], packets["identity"]
    target = pc.if_else(
        pc.equal(serial, ""),
        pc.binary_join_element_wise(_BROADCAST, identity, ""),
        pc.binary_join_element_wise(_DEVICE, serial, ""),
    )
    imports = _imports(packets["session"])
    if imports is not None:  # a device of a capture may be one of ours, at another time
        target = pc.binary_join_element_wise(imports, target, "")
    key = pc.binary_join_element_wise(packets["direction"], packets["device_type"].cast(pa.string()), target, "/")
    number = pc.add(pc.multiply(packets["command_no"].cast(pa.int64()), 256), packets["packet_no"].cast(pa.int64()))
    return event_table(
        reassembly.KIND,
        {
            "key": key,
            "seq": packets["seq"],
            "at": packets["at"],
            "node": packets["node"],
            "flags": reassembly.packet_params(packets),
            "number": number,
            "data": packets["data"],
        },
    )


def _imports(sessions: Any) -> Any:
    """Return the import of each session, or "" if it was not imported; None if none was."""
    found = {session: import_of(session) for session in pc.unique(sessions).to_pylist()}
    if not any(found.values()):
        return None
    return pa.array([found[session] for session in sessions.to_pylist()], pa.string())


def _split_key(key: str) -> tuple[str, str, str, str]:
    """Return direction, device type, import and target, which begins with `_DEVICE` or `_BROADCAST`."""
    direction, device_type, target = key.split("/", 2)
    if target[0] in (_DEVICE, _BROADCAST):
        return direction, device_type, "", target
    start = min(place for place in (target.find(_DEVICE), target.find(_BROADCAST)) if place >= 0)
    return direction, device_type, target[:start], target[start:]


def _address(key: str) -> DeviceAddress:
    direction, device_type, _, target = _split_key(key)
    serial = target[1:]
    return DeviceAddress(direction, int(device_type), serial, serial if target[0] == _DEVICE else "")


def _over_us(key: str, step_us: int, rules: Any) -> int:
    """Return when the time of all imported packets is over; 0 if the key is of no import."""
    imported_us = imported_at_us(_split_key(key)[2])
    return imported_us + rules.timeout_us + step_us if imported_us else 0


def _clock_of(key: str, clock_us: int, step_us: int, rules: Any) -> int:
    """Return the clock that decides what has expired. That of an import stands still until the import is over."""
    return clock_us if clock_us >= _over_us(key, step_us, rules) else 0


def _due_us(key: str, assembly: CommandAssembly, now_us: int, step_us: int, rules: Any) -> int:
    """Return when the first open row will look different: when its time is over, and when that is final."""
    ends_us = [command.first_at + rules.timeout_us for command in assembly.open.values()]
    due_us = min((end_us if end_us > now_us else end_us + step_us for end_us in ends_us), default=None)
    return max(assembly.due_us(rules) + step_us if due_us is None else due_us, _over_us(key, step_us, rules))


def open_commands(
    protocol: Protocol, reassembly: Reassembly, state: pa.Table, clock_us: int, step_us: int, rules: Any
) -> pa.Table:
    """Return the open rows of a state, as they look at this time."""
    assemblies = unpack_states(state.filter(pc.greater(state["shows"], 0)), reassembly.unpack)
    return _CommandReducer(protocol, reassembly, lambda _: None, rules).open_rows(assemblies, clock_us, step_us)


def reduce_commands(
    protocol: Protocol,
    reassembly: Reassembly,
    events: pa.Table,
    state: KindState,
    clock_us: int,
    before_us: int,
    step_us: int,
    keys: Keys,
    rules: Any,
) -> Reduction:
    """Reduce the packets of one protocol.

    `before_us` is the clock of the batch before; `step_us` is how far a clock may step back.
    """
    reducer = _CommandReducer(protocol, reassembly, keys.get if isinstance(keys, Mapping) else keys, rules)
    event_keys = events["key"].combine_chunks().dictionary_encode()
    touched = state.take_keys(event_keys.dictionary, clock_us)
    assemblies = unpack_states(touched, reassembly.unpack)
    replaced = reducer.empty().open_rows(assemblies, before_us, step_us)
    reducer.apply(events, event_keys, assemblies)
    states = PackedStates()
    for key, assembly in assemblies.items():
        address, now_us = _address(key), _clock_of(key, clock_us, step_us, rules)
        reducer.add(address, assembly, assembly.expire(now_us - step_us, rules))
        reducer.counts.update({name: count for name, count in reassembly.counts_of(assembly).items() if count})
        if assembly.forget(now_us - step_us, rules):
            reducer.add_open(address, assembly, now_us)
            due_us = _due_us(key, assembly, now_us, step_us, rules)
            states.put(key, due_us, len(assembly.open), reassembly.pack(assembly))
    left = states.table(reassembly.KIND)
    if _is_over_limit(reducer, reassembly, state):
        rest = state.take()
        others = open_commands(protocol, reassembly, rest, before_us, step_us, rules)
        replaced = pa.concat_tables([replaced, others])
        out = reducer.drop_oldest(pa.concat_tables([left, rest]), clock_us, step_us)
    else:
        out = reducer.reduction([left])
    out.replaced = {DEVICE_COMMANDS.name: replaced}
    return out


def _is_over_limit(reducer: "_CommandReducer", reassembly: Reassembly, state: KindState) -> bool:
    """Return whether too much is open. The other states are unpacked only if their sizes say that it may be."""
    rows = state.rows
    is_open = pc.fill_null(pc.greater(rows["shows"], 0), fill_value=False)
    sizes = pc.fill_null(pc.binary_length(rows["state"]), 0).to_numpy()
    count, size = len(reducer.open), reducer.open_bytes
    if count + state.shows <= PIPELINE_COMMANDS_OPEN_MAX and (
        size + state.sum(sizes, is_open) <= PIPELINE_COMMANDS_OPEN_BYTES_MAX
    ):
        return False
    for assembly in unpack_states(state.peek(is_open), reassembly.unpack).values():
        count += len(assembly.open)
        size += sum(command.held_bytes for command in assembly.open.values())
    return count > PIPELINE_COMMANDS_OPEN_MAX or size > PIPELINE_COMMANDS_OPEN_BYTES_MAX


class _CommandReducer:
    """Collect rows column by column, because there may be very many."""

    def __init__(self, protocol: Protocol, reassembly: Reassembly, key_of: KeyOf, rules: Any) -> None:
        self._protocol = protocol
        self._reassembly = reassembly
        self._key_of = key_of
        self._rules = rules
        self._decoder = f"{protocol.name}/{protocol.decoder_version}"
        self.open: list[_Row] = []
        self.open_bytes = 0
        self.counts = Reduction().counts
        self._addresses: list[DeviceAddress] = []
        self._done: list[FinishedCommand] = []
        self._contents: list[CommandContent] = []
        self._reading_commands: list[int] = []  # the index of the command of each reading
        self._reading_types: list[int] = []
        self._reading_values: list[float | None] = []

    def empty(self) -> "_CommandReducer":
        return _CommandReducer(self._protocol, self._reassembly, self._key_of, self._rules)

    def open_rows(self, assemblies: Mapping[str, CommandAssembly], clock_us: int, step_us: int) -> pa.Table:
        """Return the open rows of these devices, as they look at this time."""
        for key, assembly in assemblies.items():
            if assembly.open:
                self.add_open(_address(key), assembly, _clock_of(key, clock_us, step_us, self._rules))
        return table_rows(DEVICE_COMMANDS, self.open)

    def apply(self, events: pa.Table, keys: pa.DictionaryArray, assemblies: dict[str, CommandAssembly]) -> None:
        """Apply the packets, device by device."""
        names = keys.dictionary.to_pylist()
        columns = [events[column].to_pylist() for column in ("seq", "node", "flags", "number", "data")]
        seqs, nodes, params_, numbers, packets = columns
        ats = events["at"].cast(pa.int64()).to_pylist()
        current, add, rules = -1, None, self._rules
        address: DeviceAddress | None = None
        assembly: CommandAssembly | None = None
        seal: Any = None
        done: list[FinishedCommand] = []
        for index, seq, at, node, params, number, data in zip(
            keys.indices.to_pylist(), seqs, ats, nodes, params_, numbers, packets, strict=True
        ):
            if index != current:
                if address is not None and assembly is not None:
                    self.add(address, assembly, done)
                current, done = index, []
                address = _address(names[index])
                seal = self._reassembly.seal_of(self._key_of, address)
                assembly = assemblies.get(names[index])
                if assembly is None:
                    assembly = assemblies[names[index]] = self._reassembly.new_assembly()
                add = assembly.add
            add(seq, at, node, params, number, data, done, rules, seal)  # type: ignore[misc]
        if address is not None and assembly is not None:
            self.add(address, assembly, done)

    def add(self, address: DeviceAddress, assembly: CommandAssembly, done: list[FinishedCommand]) -> None:
        """Add finished commands, and the readings of the complete ones."""
        read_command = self._reassembly.read_command
        for each in done:
            content = _NO_CONTENT
            if each.state == COMPLETE:
                try:
                    content = read_command(address, assembly, each, self._key_of, self._rules)
                except ProtocolError as error:
                    each.state, each.reason = REFUSED, error.code
            if content.readings:
                self._reading_commands += [len(self._done)] * len(content.readings)
                self._reading_types += [kind for kind, _ in content.readings]
                self._reading_values += [value for _, value in content.readings]
            self._addresses.append(address)
            self._done.append(each)
            self._contents.append(content)

    def add_open(self, address: DeviceAddress, assembly: CommandAssembly, clock_us: int) -> None:
        """Add the open commands. One whose time is over is shown as expired, and final once no clock can undo that."""
        for slot, command, is_over in assembly.waiting(clock_us, self._rules):
            self.open.append(self._open_row(address, slot, command, self._rules.timeout_us if is_over else None))
            self.open_bytes += command.held_bytes

    def drop_oldest(self, state: pa.Table, clock_us: int, step_us: int) -> Reduction:
        """Give up the oldest of too many open commands, until a quarter more would fit."""
        reassembly, rules = self._reassembly, self._rules
        assemblies = unpack_states(state, reassembly.unpack)
        waiting = sorted(
            (command.first_seq, key, slot, command.held_bytes)
            for key, assembly in assemblies.items()
            for slot, command in assembly.open.items()
        )
        count, size = len(waiting), sum(each[3] for each in waiting)
        for _seq, key, slot, held_bytes in waiting:
            fits = count <= PIPELINE_COMMANDS_OPEN_MAX * 3 // 4
            if fits and size <= PIPELINE_COMMANDS_OPEN_BYTES_MAX * 3 // 4:
                break
            self.add(_address(key), assemblies[key], assemblies[key].give_up(slot, OVER_LIMIT))
            self.counts["commands_given_up"] += 1
            count, size = count - 1, size - held_bytes
        self.open, self.open_bytes = [], 0
        states = PackedStates()
        for key, assembly in assemblies.items():
            now_us = _clock_of(key, clock_us, step_us, rules)
            self.add_open(_address(key), assembly, now_us)
            due_us = _due_us(key, assembly, now_us, step_us, rules)
            states.put(key, due_us, len(assembly.open), reassembly.pack(assembly))
        return self.reduction([states.table(reassembly.KIND)])

    def reduction(self, state: list[pa.Table]) -> Reduction:
        final = self._commands()
        return Reduction(
            state,
            final={DEVICE_COMMANDS.name: final, READINGS.name: self._readings(final)},
            open={DEVICE_COMMANDS.name: table_rows(DEVICE_COMMANDS, self.open)},
            counts=self.counts,
        )

    def _commands(self) -> pa.Table:
        done, addresses, contents = self._done, self._addresses, self._contents
        is_response = self._reassembly.is_response
        columns: dict[str, Sequence[Any]] = {
            "seq": [each.seq for each in done],
            "received_at": [each.at for each in done],
            "node": [each.node for each in done],
            "serial": [address.serial for address in addresses],
            "device_type": [address.device_type for address in addresses],
            "command_no": [each.command_no for each in done],
            "direction": [address.direction for address in addresses],
            "answer": [is_response(each.params) for each in done],
            "packets": [each.packets for each in done],
            "repeats": [each.repeats for each in done],
            "first_at": [each.first_at for each in done],
            "done_at": [each.done_at for each in done],
            "state": [each.state for each in done],
            "command_type": [content.command_type for content in contents],
            "error": [content.error for content in contents],
            "device_time": [content.device_time_us for content in contents],
            "data": [content.data for content in contents],
            "fields": [content.fields for content in contents],
            "reason": [each.reason or None for each in done],
        }
        return table_columns(DEVICE_COMMANDS, columns, protocol=self._protocol.name, decoder=self._decoder)

    def _readings(self, commands: pa.Table) -> pa.Table:
        """Return one row for each reading, with the columns of its command."""
        rows = commands.select([name for name in READINGS.schema.names if name in commands.column_names])
        rows = rows.take(pa.array(self._reading_commands, pa.int64()))
        types = pa.array(self._reading_types, pa.int64())
        known = pc.unique(types)
        names = [self._protocol.reading_name(kind) for kind in known.to_pylist()]
        place = pc.index_in(types, known)
        rows = rows.append_column("type", types)
        rows = rows.append_column("name", pa.array([each.name for each in names], pa.string()).take(place))
        rows = rows.append_column("unit", pa.array([each.unit for each in names], pa.string()).take(place))
        return rows.append_column("value", pa.array(self._reading_values, pa.float64())).select(READINGS.schema.names)

    def _open_row(self, address: DeviceAddress, slot: int, command: OpenCommand, over_us: int | None) -> _Row:
        """Return the row of an open command. `over_us` is the time it had, if that is over."""
        return (
            command.first_seq,
            command.first_at,
            command.node,
            self._protocol.name,
            address.serial,
            address.device_type,
            slot & 0xFF,
            address.direction,
            self._reassembly.is_response(command.params),
            command.packets,
            command.repeated,
            command.first_at,
            None if over_us is None else command.first_at + over_us,
            OPEN if over_us is None else EXPIRED,
            None,
            None,
            None,
            None,
            None,
            None,
            self._decoder,
        )
