"""Generate frames for the decoders: known ones, random ones, and both with damage."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
from fastcrc.crc16 import modbus

from wirelake.log.interface import SCHEMA
from wirelake.protocols.frame import Sender

CAPTURES = Path(__file__).parent.parent.parent / "captures"
LINE = re.compile(r"(?P<sender>client|server) (?P<name>\S+) (?P<hex>[0-9a-f ]+) (?P<fields>[{\[].*)")
AT_US = 1_700_000_000_000_000
DIRECTIONS = {Sender.CLIENT: "in", Sender.SERVER: "out"}

Sent = tuple[bytes, Sender]


def captured(protocol: str) -> list[Sent]:
    lines = map(LINE.fullmatch, (CAPTURES / f"{protocol}.hex").read_text().splitlines())
    return [(bytes.fromhex(line["hex"]), Sender(line["sender"])) for line in lines if line is not None]


def log_batch(*records: dict[str, Any]) -> Any:
    """Return records of the log. Columns that are not given are the same for all."""
    usual: dict[str, Any] = {"node": "n1", "protocol": "", "event": "frame", "direction": "in", "session": "s1"}
    usual |= {"identity": "meter", "peer": "127.0.0.1:1", "frame": b"", "note": ""}
    rows = [{"seq": 100 + place, "at": AT_US + place, **usual, **record} for place, record in enumerate(records)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def frame_records(protocol: str, sent: Sequence[Sent]) -> list[dict[str, Any]]:
    return [{"protocol": protocol, "frame": frame, "direction": DIRECTIONS[sender]} for frame, sender in sent]


def damaged(frame: bytes, random: Random, repair: Callable[[bytearray, Random], None]) -> bytes:
    """Change, remove and insert bytes, and perhaps correct the outermost lengths and checksums."""
    data = bytearray(frame)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        place = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0 if place < len(data):
                data[place] = random.randrange(256)
            case 1 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 2:
                del data[place:]
            case 3:
                data[place:place] = random.randbytes(random.randrange(1, 12))
            case _:
                del data[place : place + random.randrange(1, 4)]
    if random.random() < 0.75:
        repair(data, random)
    return bytes(data)


def repair_apostol(data: bytearray, random: Random) -> None:
    """Correct the length and the CRC, or only one of them."""
    if len(data) < 9:
        return
    start = 1 if data[0] < 0x80 else 2
    body = data[start:-2] if random.random() < 0.9 else data[start:]
    length = len(body) + 2
    data[:] = (bytes((length,)) if length < 0x80 else bytes((0x80 | length & 0x7F, length >> 7 & 0xFF))) + body
    data += modbus(bytes(data)).to_bytes(2, "little")
    if random.random() < 0.05:
        data[-1] ^= 1


def repair_comet(data: bytearray, _random: Random) -> None:
    if len(data) >= 2:
        data[:2] = (len(data) - 2 & 0xFFFF).to_bytes(2, "big")


def repair_magline(data: bytearray, _random: Random) -> None:
    if len(data) >= 16:
        order: Literal["little", "big"] = "big" if data[2] == 0 else "little"
        length = len(data) - 16 - int.from_bytes(data[6:8], order)
        data[12:16] = max(length, 0).to_bytes(4, order)


def repair_nothing(_data: bytearray, _random: Random) -> None:
    """Leave the frame as it is, for protocols whose lengths are spread over the frame."""
