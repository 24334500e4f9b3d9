"""How far the log is committed: a small file that every reader maps into memory.

    0       8           16     20        24
    +-------+-----------+------+---------+
    | magic | committed | salt | crc of  |
    |       | seq, u64  | u32  | the salt|
    +-------+-----------+------+---------+

The writer sets `committed` after the sync of a block has returned, never before; it is one aligned store of eight
bytes, so a reader in another process sees the old value or the new one. A reader takes no record at or past it: a block
that is written but not synced does not exist for anyone. The file itself is not synced with every block. After a power
failure it can therefore be behind what is on disk, never ahead; the next writer looks at the blocks themselves and
brings it up.
"""

import mmap
import os
import secrets
import struct
from pathlib import Path
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from wirelake.errors import InputError
from wirelake.log.files import Files

NAME: Final = "committed"
_MAGIC: Final = b"WLKCOMIT"
_LAYOUT: Final = struct.Struct("<8sQII")
BYTES: Final = _LAYOUT.size
_SEQ_OFFSET: Final = 8


def new_salt() -> int:
    return secrets.randbits(32)


class Mark:
    """Open it for reading or, in the one process that writes, to move it."""

    __slots__ = ("_map", "_seq", "salt")

    def __init__(self, folder: Path, writable: bool = False) -> None:
        path = folder / NAME
        try:
            fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise InputError(f"there is no log in {folder}") from error
        try:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, _LAYOUT.size, access=access)
        except ValueError as error:
            raise InputError(f"{path} is not what a log keeps there: open the log for writing once") from error
        finally:
            os.close(fd)
        magic, _, salt, crc = _LAYOUT.unpack_from(self._map)
        # None if it does not hold: each segment's head has it too.
        self.salt: int | None = salt if magic == _MAGIC and crc == _salt_crc(salt) else None
        self._seq = memoryview(self._map)[_SEQ_OFFSET : _SEQ_OFFSET + 8].cast("Q")

    @property
    def seq(self) -> int:
        """Every record before this one is on disk."""
        return self._seq[0]

    def move(self, seq: int) -> None:
        self._seq[0] = seq

    def flush(self) -> None:
        """To disk, so that readers after a power failure need not wait for a writer to come."""
        self._map.flush()

    @staticmethod
    def create(folder: Path, seq: int, salt: int, files: Files) -> None:
        files.replace_file(folder / NAME, _LAYOUT.pack(_MAGIC, seq, salt, _salt_crc(salt)))


def _salt_crc(salt: int) -> int:
    return crc32c(salt.to_bytes(4, "little"))
