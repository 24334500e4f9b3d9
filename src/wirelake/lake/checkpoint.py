"""What the pipeline's checkpoint says of the log it was filled from, for those who only look: no Spark is needed.

checkpoints/tables/stream.json          the data folder's id
checkpoints/tables/intents/NUMBER.json  up to which record a batch goes
checkpoints/tables/spark/offsets/N      the same, as Spark planned it
"""

from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

FOLDER: Final = Path("checkpoints") / "tables"  # below the data folder


class Checkpoint(Struct, frozen=True):
    data_id: str  # empty where it was written before there were ids
    next_seq: int  # the first record that no batch has taken in


class _Stream(Struct):
    data_id: str = ""


class _Intent(Struct):
    until_seq: int


class _Offset(Struct):
    seq: int


def read_checkpoint(data: Path) -> Checkpoint | None:
    """None where no pipeline has begun."""
    folder = data / FOLDER
    try:
        stream = json.decode((folder / "stream.json").read_bytes(), type=_Stream)
    except FileNotFoundError:
        return None
    except DecodeError:  # the pipeline says what is wrong with it
        stream = _Stream()
    return Checkpoint(stream.data_id, max(_intended(folder), _planned(folder)))


def mismatch(checkpoint: Checkpoint, data_id: str, next_seq: int) -> str:
    """Why a checkpoint does not belong to the log with this id and end, as a sentence; or nothing."""
    if checkpoint.data_id and data_id and checkpoint.data_id != data_id:
        return (
            f"the checkpoint and the tables belong to another data folder (id {checkpoint.data_id}; the log has "
            f"{data_id}): bring back the checkpoints/ and lake/ of this log, or move both away and fill the tables anew"
        )
    if checkpoint.next_seq > next_seq:
        return (
            f"the tables are filled up to record {checkpoint.next_seq}, but the log ends at {next_seq}: it was "
            "deleted, cut, or restored from an older copy. Bring back the log, or start the gateway once with "
            "--accept-loss, which continues the log behind that record; to fill the tables anew from this log, move "
            "checkpoints/ and lake/ away"
        )
    return ""


def _intended(folder: Path) -> int:
    last = max(folder.glob("intents/[0-9]*.json"), default=None)
    return 0 if last is None else _seq(last.read_bytes(), _Intent, "until_seq")


def _planned(folder: Path) -> int:
    files = [path for path in folder.glob("spark/offsets/[0-9]*") if path.name.isdecimal()]
    last = max(files, key=lambda path: int(path.name), default=None)
    return 0 if last is None else _seq(last.read_bytes().strip().rpartition(b"\n")[2], _Offset, "seq")


def _seq(text: bytes, kind: type[Struct], name: str) -> int:
    """0 where a file does not hold what it should: the pipeline itself reports that."""
    try:
        return int(getattr(json.decode(text, type=kind), name))
    except DecodeError:
        return 0
