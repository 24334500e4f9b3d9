"""Frames that come several times decode to what each of them would."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from gateway.devices.station_protocol import PROTOCOL as STATION
from gateway.devices.station_protocol import Report

from wirelake.message import Kind, Message, Operation, Topic
from wirelake.protocols import registry
from wirelake.protocols.columnar import DecodedFrames, decode_each
from wirelake.protocols.distinct_frames import decode_distinct
from wirelake.protocols.frame import Sender

_ESNP = registry.get("esnp")
_REQUEST = Message(kind=Kind.REQUEST, target=Operation("clock", "now"), correlation="7", fields={"a": 1})


def assert_same(found: DecodedFrames, expected: DecodedFrames) -> None:
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.messages.equals(expected.messages)
    assert found.refused == expected.refused
    assert (found.readings is None) == (expected.readings is None)
    if expected.readings is not None:
        assert found.readings.to_pylist() == expected.readings.to_pylist()


def some_frames() -> list[bytes]:
    notified = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="e-1", payload=b"hi")
    frames = [_ESNP.from_message(_REQUEST, Sender.CLIENT), _ESNP.from_message(notified, Sender.SERVER)]
    return [*(frame.encode() for frame in frames), b"\xff\xff", b""]


@pytest.mark.parametrize("seed", range(10))
def test_repeated_frames_of_both_senders(seed: int) -> None:
    chance = Random(seed)
    frames = pa.array(chance.choices(some_frames(), k=chance.randrange(5, 60)), pa.binary())
    from_server = np.array(chance.choices((True, False), k=len(frames)))
    assert_same(decode_distinct(_ESNP, frames, from_server), decode_each(_ESNP, frames, from_server))


def test_frames_that_all_differ_and_no_frames() -> None:
    for frames in (some_frames(), []):
        column, from_server = pa.array(frames, pa.binary()), np.zeros(len(frames), np.bool_)
        assert_same(decode_distinct(_ESNP, column, from_server), decode_each(_ESNP, column, from_server))


def test_each_repeated_report_has_its_readings() -> None:
    reports = [Report("meter-1", 215, 40, True).encode(), Report("", 75, 41, False).encode(), b"\xff" * 3]
    column = pa.array([reports[kind] for kind in (1, 2, 0, 1, 1, 2, 0, 1)], pa.binary())
    from_server = np.array([False, False, False, False, True, True, False, False])
    expected = decode_each(STATION, column, from_server)
    assert len(expected.readings) == 5 * 3
    assert_same(decode_distinct(STATION, column, from_server), expected)
