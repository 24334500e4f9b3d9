"""What a reading of a telemetry message is."""

from typing import Annotated, Any

import pytest
from gateway.devices.station_protocol import PROTOCOL, Report
from msgspec.structs import replace

from wirelake.layout import LayoutFrame, measured, scaled, u8, u16
from wirelake.limits import DEVICE_READINGS_MAX
from wirelake.message import UNITS, Kind, Message
from wirelake.protocols.protocol import DeviceCodes, ReadingName
from wirelake.protocols.readings import TelemetryReading, readings_of


def readings(fields: dict[str, Any], units: Any = None, **changes: Any) -> list[TelemetryReading]:
    headers = {} if units is None else {UNITS: units}
    message = Message(kind=Kind.TELEMETRY, fields=fields, headers=headers)
    return readings_of(replace(PROTOCOL, **changes), message)


def test_numeric_fields_are_readings_by_their_names() -> None:
    fields = {"a": 1, "b": -0.5, "c": True, "text": "1", "none": None, "list": [1], "nested": {"d": 2}, "raw": b"1"}
    assert readings(fields) == [TelemetryReading("a", 1.0), TelemetryReading("b", -0.5), TelemetryReading("c", 1.0)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400)])
def test_what_no_float_can_hold_is_no_reading(value: float) -> None:
    assert readings({"a": value, "b": 2}) == [TelemetryReading("b", 2.0)]


def test_a_unit_is_that_of_the_message_or_of_the_layout() -> None:
    (temperature, humidity) = readings({"temperature": 21.5, "humidity": 40}, {"humidity": "%"})
    assert (temperature.unit, humidity.unit) == ("°C", "%")
    assert readings({"temperature": 70.7}, {"temperature": "°F"})[0].unit == "°F"
    assert readings({"temperature": 1}, layout=None)[0].unit == ""


@pytest.mark.parametrize("units", ["°C", ["°C"], {"temperature": 5}])
def test_a_header_that_is_no_mapping_of_texts_gives_no_unit(units: object) -> None:
    assert readings({"temperature": 1}, units, layout=None) == [TelemetryReading("temperature", 1.0)]


def test_numbered_readings_have_the_names_of_their_protocol() -> None:
    codes, names = DeviceCodes({}, {}), {1: ReadingName("voltage", "V")}
    fields = {"command_type": 4, "readings": [{"type": 1, "value": 230}, {"type": 9, "value": 7}, {"type": 2}, 3]}
    assert readings(fields, device_codes=codes, readings=names) == [
        TelemetryReading("voltage", 230.0, "V", 1),
        TelemetryReading("reading 9", 7.0, "", 9),
    ]
    assert readings({"command_type": 1, "status": {"state": 1}}, device_codes=codes) == []


def test_one_message_has_a_limited_number_of_readings() -> None:
    assert len(readings({f"r{number}": number for number in range(2 * DEVICE_READINGS_MAX)})) == DEVICE_READINGS_MAX


def test_measured_values_of_a_frame_are_scaled_without_rounding_errors() -> None:
    assert measured(Report("a", 3, 40, door=True)) == {"temperature": 0.3, "humidity": 40, "door": True}

    class Sample(LayoutFrame, frozen=True):
        quarters: Annotated[u8, scaled(0.25, "h")]
        dozens: Annotated[u16, scaled(12, "pcs")]

    assert measured(Sample(3, 2)) == {"quarters": 0.75, "dozens": 24}
