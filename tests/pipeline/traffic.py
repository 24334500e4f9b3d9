"""Write a log of mixed traffic: captured frames of every protocol, some of them damaged, with other records."""

from functools import cache
from pathlib import Path
from random import Random

from wirelake.log.interface import EventLog
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import write_json

CAPTURES = Path(__file__).parent.parent / "captures"
START_US = 1_900_000_000_000_000  # in 2030: no retention by age
WAIT_S = 60.0


@cache
def captures() -> list[tuple[str, Sender, bytes]]:
    """Return (protocol, sender, frame) of every captured frame."""
    found = []
    for path in sorted(CAPTURES.glob("*.hex")):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                sender, _, data = line.split()[:3]
                found.append((path.stem, Sender(sender), bytes.fromhex(data)))
    return found


def fill(log: EventLog, records: int, seed: int = 0, step_us: int = 200) -> None:
    """Append so many records, one in a hundred damaged. They are durable when this returns."""
    random = Random(seed)
    commit = None
    for _ in range(records):
        seq = log.next_seq
        at_us = START_US + seq * step_us
        protocol, sender, frame = random.choice(captures())
        session = f"{protocol}-{random.randrange(50)}"
        direction = "in" if sender is Sender.CLIENT else "out"
        kind = random.random()
        if kind < 0.01:
            frame = frame[:-1] + bytes([frame[-1] ^ 0xFF])
        if kind > 0.99:
            note = {"topic": "@news", "id": f"n-{seq}", "position": seq, "type": 0, "by": "me"}
            commit = log.append(at_us, "", "publish", "", "", "", "", b"hello", write_json(note).decode())
        elif kind > 0.98:
            note = {"code": "bad_length", "offset": 3, "text": "a length beyond the limit"}
            text = write_json(note).decode()
            commit = log.append(at_us, protocol, "quarantine", "in", session, "me", "10.0.0.1:5", frame, text)
        else:
            commit = log.append(at_us, protocol, "frame", direction, session, "me", "10.0.0.1:5", frame)
    if commit is not None:
        commit.wait(WAIT_S)


def filled(data: Path, records: int, seed: int = 0) -> None:
    """Create a data folder with a log of so many records."""
    log = SegmentLog(data / "log", LogSettings(segment_bytes=1024 * 1024, fsync=False, keep_days=None))
    for start in range(0, records, 5000):
        fill(log, min(5000, records - start), seed + start)
    log.close()
