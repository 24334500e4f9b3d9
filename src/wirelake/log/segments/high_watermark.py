"""Keep the high watermark of the log, up to which it is committed, and the id of its data folder.

The watermark is a small file that every reader maps into memory:

    0       8           16     20        24
    +-------+-----------+------+---------+
    | magic | committed | salt | crc of  |
    |       | seq, u64  | u32  | the salt|
    +-------+-----------+------+---------+

The writer sets `committed` after the sync of a block has returned, never before. It is one aligned store of eight
bytes, so a reader in another process sees the old value or the new one. A reader returns no record at or past it: a
block that is written but not synced does not exist for anyone. The file itself is not synced with every block, so after
a power failure it can be behind what is on disk, but never ahead; the next writer inspects the blocks and advances it.

The id of the data folder is also in the state and in the pipeline's checkpoint, to detect parts that do not belong
together.
"""

import mmap
import os
import secrets
import struct
from pathlib import Path
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from wirelake.errors import InputError, StorageError
from wirelake.files import FileSystem, replace_file

WATERMARK_FILE: Final = "committed"
_MAGIC: Final = b"WLKCOMIT"
_LAYOUT: Final = struct.Struct("<8sQII")
WATERMARK_BYTES: Final = _LAYOUT.size
_SEQ_OFFSET: Final = 8
_ID_FILE: Final = "id"
_ID_CHARS_MAX: Final = 64


def new_salt() -> int:
    return secrets.randbits(32)


class HighWatermark:
    """Read the watermark or, in the one process that writes the log, advance it."""

    __slots__ = ("_map", "_seq", "salt")

    def __init__(self, folder: Path, writable: bool = False) -> None:
        path = folder / WATERMARK_FILE
        try:
            fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise InputError(f"there is no log in {folder}") from error
        try:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, _LAYOUT.size, access=access)
        except ValueError as error:
            raise InputError(f"{path} is damaged: start the gateway on this data folder to repair it") from error
        finally:
            os.close(fd)
        magic, _, salt, crc = _LAYOUT.unpack_from(self._map)
        # None if it is damaged: each segment's head has it too.
        self.salt: int | None = salt if magic == _MAGIC and crc == _salt_crc(salt) else None
        self._seq = memoryview(self._map)[_SEQ_OFFSET : _SEQ_OFFSET + 8].cast("Q")

    @property
    def seq(self) -> int:
        """Return the seq before which every record is on disk."""
        return self._seq[0]

    def advance(self, seq: int) -> None:
        """Let readers read all records before `seq`."""
        self._seq[0] = seq

    def flush(self) -> None:
        """Sync the file, so that readers after a power failure need not wait for a writer."""
        self._map.flush()

    @staticmethod
    def create(folder: Path, seq: int, salt: int, files: FileSystem) -> None:
        """Write the file anew."""
        files.replace_file(folder / WATERMARK_FILE, _LAYOUT.pack(_MAGIC, seq, salt, _salt_crc(salt)))


def _salt_crc(salt: int) -> int:
    return crc32c(salt.to_bytes(4, "little"))


def read_data_id(folder: Path) -> str:
    """Return the id of the data folder; empty for a log that has none yet, because it is new or of an old version."""
    path = folder / _ID_FILE
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    if not text.isalnum() or len(text) > _ID_CHARS_MAX:
        raise StorageError(f"{path} does not contain the id of a data folder: remove the file to have it rewritten")
    return text


def write_data_id(folder: Path, data_id: str) -> None:
    """Store the id of the data folder. It is durable when this returns."""
    try:
        replace_file(folder / _ID_FILE, f"{data_id}\n".encode())
    except OSError as error:
        raise StorageError(f"cannot write {folder / _ID_FILE}: {error}") from error
