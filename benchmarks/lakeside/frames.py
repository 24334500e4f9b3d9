"""The frames that the parts work on: small, of the usual kinds, not all the same."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastcrc.crc16 import modbus

from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.apostol.commands import DeviceCommand, Reading, Status
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.registry import get

KINDS = 1000  # different frames of each
_APPENDED = 4096
_PARQUET_FILES = 4
_COMMIT_S = 60.0


def _pieces(number: int) -> bytes:
    place = number % 4
    params = (place == 0) | (place == 3) << 1
    return Packet(1, params, 6, f"1234567{number % 250:03}", number // 4 % 256, place, bytes(range(40))).encode()


def _whole(number: int, command: DeviceCommand) -> bytes:
    return Packet(1, 3, 6, f"1234567{number:03}", number % 256, 0, command.encode()).encode()


def _status(number: int) -> bytes:
    return _whole(number, DeviceCommand(1_577_866_150 + number, 1, 0, Status(0, 4, 0, 2, 1_577_866_140)))


def _readings(number: int) -> bytes:
    readings = (Reading(1, 230, 2), Reading(2, number, 4), Reading(3, 21.5 + number / 7, 8))
    return _whole(number, DeviceCommand(1_577_866_150, 4, 0, readings))


def _said(protocol: str, number: int) -> bytes:
    message = Message(
        kind=Kind.REQUEST,
        target=Operation("billing", "pay"),
        correlation=str(number),
        fields={"meter": number, "amount": 21.5, "currency": "EUR"},
    )
    return get(protocol).from_message(message, Sender.CLIENT).encode()


# protocol, what, how it is made, who says it
SAMPLES: Sequence[tuple[str, str, Callable[[int], bytes], Sender]] = (
    ("apostol", "piece of a command", _pieces, Sender.CLIENT),
    ("apostol", "status", _status, Sender.CLIENT),
    ("apostol", "readings", _readings, Sender.CLIENT),
    ("comet", "message", lambda n: comet.Message(3, f"3f9a2c-1-{n}", b"hello " * 5, n + 1).encode(), Sender.SERVER),
    ("comet", "message_ack", lambda n: comet.MessageAck((f"3f9a2c-1-{n}",)).encode(), Sender.CLIENT),
    ("esnp", "request", lambda n: _said("esnp", n), Sender.CLIENT),
    ("sisnet", "request", lambda n: _said("sisnet", n), Sender.CLIENT),
    ("magline", "REQ", lambda n: magline.Req(17, magline.OPENED, b"hello " * 5, seq=n + 1).encode(), Sender.CLIENT),
    ("redis", "publish", lambda n: Command((b"PUBLISH", b"news", b"hello %d" % n)).encode(), Sender.CLIENT),
)


def column(make: Callable[[int], bytes], rows: int) -> Any:
    """So many frames, one after the other."""
    return pa.array([make(number) for number in range(KINDS)] * (rows // KINDS), pa.binary())


def write_log(folder: Path, make: Callable[[int], bytes], rows: int) -> None:
    """As a gateway leaves it after a busy while."""
    log = SegmentLog(folder / "log", LogSettings(fsync=False, keep_days=None))
    frames = [make(number) for number in range(KINDS)] * (_APPENDED // KINDS + 1)
    for start in range(0, rows, _APPENDED):
        session = f"{start % 64:016x}"
        part = frames[: min(_APPENDED, rows - start)]
        commit = log.append_many(
            1_700_000_000_000_000 + start, "apostol", "frame", "in", session, "1234567", "10.0.0.1:1", part
        )
        commit.wait(_COMMIT_S)
    log.close()


def write_parquet(folder: Path, log_folder: Path, files: int = _PARQUET_FILES) -> None:
    """The same records, as Spark's own reader likes them."""
    table = pa.Table.from_batches(list(LogReader(log_folder / "log").read()))
    folder.mkdir()
    rows = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * rows, rows), folder / f"{number}.parquet", coerce_timestamps="us")


def parse_with_struct(frame: bytes) -> tuple[Any, ...]:
    """What one writes first, and the fast way to a CRC."""
    at = 1 if frame[0] < 0x80 else 2
    version, params, device_type, size = struct.unpack_from("<BBBB", frame, at)
    serial = frame[at + 4 : at + 4 + size].decode()
    command_no, packet_no = struct.unpack_from("<BB", frame, at + 4 + size)
    (crc,) = struct.unpack_from("<H", frame, len(frame) - 2)
    if version != 1 or crc != modbus(frame[:-2]):
        raise ValueError("bad packet")
    return serial, device_type, params, command_no, packet_no, frame[at + 6 + size : -2]


def parse_with_numpy(frames: Any) -> tuple[Any, ...]:
    """Frames of one length and one serial's length only: a column of bytes at a time."""
    size = len(frames[0].as_py())
    table = np.frombuffer(frames.buffers()[2], np.uint8)[: size * len(frames)].reshape(-1, size)
    crc = np.full(len(table), 0xFFFF, np.uint16)
    for place in range(size):
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ table[:, place]) & 0xFF]
    if crc.any() or (table[:, 1] != 1).any():
        raise ValueError("bad packet")
    after = 5 + int(table[0, 4])
    serials, data = np.ascontiguousarray(table[:, 5:after]), np.ascontiguousarray(table[:, after + 2 : -2])
    heads = [table[:, place].copy() for place in (2, 3, after, after + 1)]
    return (*heads, serials, data)


def _crc_table() -> Any:
    table = np.arange(256, dtype=np.uint16)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0xA001, table >> 1).astype(np.uint16)
    return table


_CRC_TABLE = _crc_table()
