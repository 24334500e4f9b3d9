"""Find the newest status and readings of each device, from what it reported and from what was known before.

A device may send what it measured earlier: by its own clock, if it has one, that is not newer.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import DecodeError, Raw, Struct, json

from wirelake.lake.tables import DEVICE_LATEST, INT, REAL, TEXT, TIME
from wirelake.message import BROADCAST_DEVICE_TYPE
from wirelake.pipeline.time_ranges import AT

STATUS: Final = 0x01

REPORTS: Final = pa.schema(
    [("serial", TEXT), ("protocol", TEXT), ("device_type", INT), ("at", TIME), ("measured_at", TIME)]
)
STATUSES: Final = pa.schema([("serial", TEXT), ("status", TEXT), ("status_at", TIME), ("seq", INT)])
READINGS: Final = pa.schema(
    [
        ("serial", TEXT),
        ("type", INT),
        ("name", TEXT),
        ("value", REAL),
        ("unit", TEXT),
        ("measured_at", TIME),
        ("seq", INT),
    ]
)


def reports_of(rows: Any) -> Any:
    """Return when which device reported, from rows of silver.device_commands or silver.readings."""
    rows = _only_reports(rows)
    types = rows["device_type"] if "device_type" in rows.schema.names else pa.nulls(rows.num_rows, INT)
    columns = {"serial": rows["serial"], "protocol": rows["protocol"], "device_type": types}
    return join_reports([_table(columns | {"at": rows[AT], "measured_at": _measured_at(rows)}, REPORTS)])


def statuses_of(commands: Any) -> Any:
    """Return the newest status of each device."""
    rows = _only_reports(commands)
    is_status = pc.and_(pc.equal(rows["command_type"], STATUS), pc.equal(rows["error"], 0))
    rows = rows.filter(pc.fill_null(is_status, fill_value=False))
    columns = {"serial": rows["serial"], "status": rows["fields"], "status_at": _measured_at(rows), "seq": rows["seq"]}
    newest = join_statuses([_table(columns, STATUSES)])
    texts = pa.array([_status_text(text) for text in newest["status"].to_pylist()], TEXT)
    found = newest.set_column(newest.schema.get_field_index("status"), "status", texts)
    return found.filter(pc.is_valid(found["status"]))


def readings_of(readings: Any) -> Any:
    """Return the newest reading of each type and name of each device."""
    columns = {each.name: readings[each.name] for each in READINGS if each.name != "measured_at"}
    return join_readings([_table(columns | {"measured_at": _measured_at(readings)}, READINGS)])


def join_reports(parts: Iterable[Any]) -> Any:
    rows = pa.concat_tables([REPORTS.empty_table(), *parts])
    found = rows.group_by(["serial", "protocol", "device_type"], use_threads=False).aggregate(
        [("at", "max"), ("measured_at", "max")]
    )
    return found.rename_columns([name.removesuffix("_max") for name in found.schema.names]).cast(REPORTS)


def join_statuses(parts: Iterable[Any]) -> Any:
    return _newest(pa.concat_tables([STATUSES.empty_table(), *parts]), ["serial"], "status_at")


def join_readings(parts: Iterable[Any]) -> Any:
    return _newest(pa.concat_tables([READINGS.empty_table(), *parts]), ["serial", "type", "name"], "measured_at")


def _newest(rows: Any, keys: list[str], time: str) -> Any:
    """Return the last row of each key by time and seq."""
    ordered = rows.sort_by([(time, "ascending"), ("seq", "ascending")])
    places = ordered.select(keys).append_column("place", pa.array(range(len(ordered)), INT))
    last = places.group_by(keys, use_threads=False).aggregate([("place", "max")])
    return ordered.take(last["place_max"])


def _only_reports(rows: Any) -> Any:
    if "state" not in rows.schema.names:
        return rows
    is_report = pc.and_(pc.equal(rows["state"], "complete"), pc.equal(rows["direction"], "in"))
    return rows.filter(pc.fill_null(pc.and_(is_report, pc.invert(rows["answer"])), fill_value=False))


def _measured_at(rows: Any) -> Any:
    return pc.coalesce(rows["device_time"], rows[AT])


def _table(columns: dict[str, Any], schema: Any) -> Any:
    return pa.table([columns[each.name].cast(each.type) for each in schema], schema=schema)


class _Fields(Struct):
    status: Raw = Raw(b"null")


_fields: Final = json.Decoder(_Fields).decode


def _status_text(fields: str | None) -> str | None:
    """Return the status in the fields of a command as JSON."""
    try:
        raw = bytes(_fields(fields or "{}").status)
    except DecodeError:
        return None
    return None if raw == b"null" else raw.decode()


class _Newest(Struct):
    """Hold the newest reading of a name: an entry of the column `newest`."""

    value: float | None
    unit: str | None
    at_us: int


_known_readings: Final = json.Decoder(dict[str, float | None]).decode
_known_newest: Final = json.Decoder(dict[str, _Newest]).decode


class _Device:
    """Hold what is known of a device. Times are microseconds; what comes at the same time as the known is newer."""

    __slots__ = (
        "at",
        "device_type",
        "measured_at",
        "newest",
        "protocol",
        "protocol_at",
        "readings",
        "readings_at",
        "status",
        "status_at",
        "type_order",
    )

    def __init__(self) -> None:
        self.protocol: str | None = None
        self.protocol_at = _NEVER
        self.device_type: int | None = None
        self.type_order = (False, _NEVER)
        self.at = _NEVER
        self.measured_at = _NEVER
        self.status: str | None = None
        self.status_at: int | None = None
        self.readings: dict[str, float | None] = {}
        self.readings_at: int | None = None
        self.newest: dict[str, _Newest] = {}

    def load(self, row: dict[str, Any]) -> None:
        """Take over what the table says."""
        if row[AT] is not None:
            self.report(row["protocol"], row["device_type"], row[AT], row["device_time"])
        if row["status"] is not None:
            self.status, self.status_at = row["status"], row["status_at"]
        if row["readings"] is not None:
            self.readings, self.readings_at = _known_readings(row["readings"]), row["readings_at"]
        if row["newest"] is not None:
            self.newest = _known_newest(row["newest"])

    def report(self, protocol: str | None, device_type: int | None, at: int, measured_at: int | None) -> None:
        if protocol is not None and at >= self.protocol_at:
            self.protocol, self.protocol_at = protocol, at
        if device_type is not None:  # a broadcast does not have the device's own type
            order = (device_type != BROADCAST_DEVICE_TYPE, at)
            if order >= self.type_order:
                self.device_type, self.type_order = device_type, order
        self.at = max(at, self.at)
        if measured_at is not None:
            self.measured_at = max(measured_at, self.measured_at)

    def read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take over readings, in order of time."""
        known_at = self.readings_at if self.readings_at is not None else _NEVER
        for kind, name, value, unit, at in rows:
            if kind is not None or name is not None:
                key = name if kind is None else str(kind)
                if at >= known_at or key not in self.readings:
                    self.readings[key] = value
                    self.readings_at = at if self.readings_at is None else max(at, self.readings_at)
            if name is not None:
                newest = self.newest.get(name)
                if newest is None or at >= newest.at_us:
                    self.newest[name] = _Newest(value, unit, at)

    def row(self) -> tuple[Any, ...]:
        """Return the columns of the table after the serial."""
        return (
            self.device_type,
            self.at if self.at != _NEVER else None,
            self.measured_at if self.measured_at != _NEVER else None,
            self.status,
            self.status_at,
            _json(self.readings),
            self.readings_at,
            self.protocol,
            _json(self.newest),
        )


_NEVER: Final = -(2**63)  # before every time
_encode: Final = json.Encoder(order="deterministic").encode


def _json(values: dict[str, Any]) -> str | None:
    return _encode(values).decode() if values else None


def merge_devices(before: Any, reports: Any, statuses: Any = None, readings: Any = None) -> Any:
    """Return the rows of the devices that reported. `before` are the rows of some devices as they were."""
    devices = {serial: _Device() for serial in pc.unique(reports["serial"]).to_pylist()}
    serials = list(devices)
    for row in _times_as_us(before.filter(pc.is_in(before["serial"], pa.array(serials, TEXT)))).to_pylist():
        devices[row["serial"]].load(row)
    for serial, *report in _columns(reports.sort_by("at")):
        devices[serial].report(*report)
    for serial, status, status_at, _seq in _columns(statuses) if statuses is not None else ():
        device = devices[serial]
        if device.status_at is None or status_at >= device.status_at:
            device.status, device.status_at = status, status_at
    if readings is not None:
        by_serial: dict[str, list[tuple[Any, ...]]] = {}
        ordered = readings.sort_by([("measured_at", "ascending"), ("seq", "ascending")]).drop_columns(["seq"])
        for serial, *reading in _columns(ordered):
            by_serial.setdefault(serial, []).append(tuple(reading))
        for serial, of_device in by_serial.items():
            devices[serial].read(of_device)
    columns = [serials, *zip(*(device.row() for device in devices.values()), strict=True)]
    arrays = [_array(column, each.type) for column, each in zip(columns, DEVICE_LATEST.schema, strict=True)]
    return pa.table(arrays, schema=DEVICE_LATEST.schema)


def _array(values: Iterable[Any], type_: Any) -> Any:
    return pa.array(values, INT).cast(type_) if pa.types.is_timestamp(type_) else pa.array(values, type_)


def _columns(rows: Any) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in _times_as_us(rows).columns), strict=True)


def _times_as_us(rows: Any) -> Any:
    fields = [pa.field(each.name, INT) if pa.types.is_timestamp(each.type) else each for each in rows.schema]
    return rows.cast(pa.schema(fields))
