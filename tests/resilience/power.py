"""A power failure, from outside: the gateway runs with a journal of every write and sync (`disk_journal.c`), is killed,
and its folder is made what a disk would hold: everything that was synced, and any part of what was not.

A write that was not synced may be there or not, sector by sector, in any mixture. A new name, a rename or a removal is
sure after a sync of its folder. What is written through a memory map is not in the journal: the log's high-watermark
file may then hold any older value, and SQLite's `-shm` file is worth nothing after a crash.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from log.faults import Inode, torn
from msgspec import Struct

from wirelake.log.segments.high_watermark import WATERMARK_BYTES, WATERMARK_FILE

COMPILE_S: Final = 60
_HEAD: Final = struct.Struct("<cIQQ")
_SOURCE: Final = Path(__file__).with_name("disk_journal.c")
_NOT_DURABLE: Final = ("-shm",)


class Operation(Struct, frozen=True):
    kind: bytes
    path: Path
    offset: int
    data: bytes


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


class Disk:
    """Journal the writes to one folder, and simulate a power failure."""

    def __init__(self, folder: Path, workshop: Path) -> None:
        self.folder = folder
        self._journal = workshop / "disk.journal"
        self._library = workshop / "disk_journal.so"
        self._before = workshop / "before"
        self._compile()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the process whose writes are to be journaled."""
        return {
            "LD_PRELOAD": str(self._library),
            "DISK_JOURNAL_FILE": str(self._journal),
            "DISK_JOURNAL_ROOT": str(self.folder),
        }

    def begin(self) -> None:
        """Record the folder's content as durable. Call it before the process starts."""
        self._journal.unlink(missing_ok=True)
        shutil.rmtree(self._before, ignore_errors=True)
        if self.folder.exists():
            shutil.copytree(self.folder, self._before)

    def fail(self, chance: Random) -> int:
        """Reduce the folder to what survives; return how many operations were not yet synced."""
        seen_seq = _watermark(self.folder)
        now, durable = self._replay()
        for path in {*now, *durable}:  # names that wait for a sync of their folder
            if now.get(path) is not durable.get(path) and chance.random() < 0.5:
                if path in now:
                    durable[path] = now[path]
                else:
                    del durable[path]
        shutil.rmtree(self.folder)
        for path, file in durable.items():
            if path.name.endswith(_NOT_DURABLE):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            content = torn(file.durable, file.pending, chance)
            if path.name == WATERMARK_FILE and len(content) >= WATERMARK_BYTES:
                content[8:16] = chance.randint(0, seen_seq).to_bytes(8, "little")
            path.write_bytes(content)
        return sum(len(file.pending) for file in now.values())

    def _replay(self) -> tuple[dict[Path, Inode], dict[Path, Inode]]:
        """Track the files by name, as the process sees them and as the disk has them."""
        now: dict[Path, Inode] = {}
        if self._before.exists():
            for path in self._before.rglob("*"):
                if path.is_file():
                    now[self.folder / path.relative_to(self._before)] = Inode(bytearray(path.read_bytes()))
        durable = dict(now)
        for operation in self._operations():
            path = operation.path
            match operation.kind:
                case b"w":
                    now.setdefault(path, Inode()).pending.append((operation.offset, operation.data))
                case b"t":
                    now.setdefault(path, Inode()).pending.append((operation.offset, None))
                case b"r":
                    if path in now:
                        now[Path(os.fsdecode(operation.data))] = now.pop(path)
                case b"u":
                    now.pop(path, None)
                case _ if path in now:
                    now[path].sync()
                case _:
                    _sync_folder(path, now, durable)
        return now, durable

    def _operations(self) -> Iterator[Operation]:
        """Read the journal, without a last entry that the kill cut off."""
        journal = self._journal.read_bytes() if self._journal.exists() else b""
        place = 0
        while place + _HEAD.size <= len(journal):
            kind, path_bytes, offset, data_bytes = _HEAD.unpack_from(journal, place)
            place += _HEAD.size
            path = journal[place : place + path_bytes]
            data = journal[place + path_bytes : place + path_bytes + data_bytes]
            place += path_bytes + data_bytes
            if place > len(journal):
                return
            yield Operation(kind, Path(os.fsdecode(path)), offset, data)

    def _compile(self) -> None:
        command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=COMPILE_S)


def _sync_folder(folder: Path, now: dict[Path, Inode], durable: dict[Path, Inode]) -> None:
    for path in [path for path in durable if path.parent == folder and path not in now]:
        del durable[path]
    durable.update({path: inode for path, inode in now.items() if path.parent == folder})


def _watermark(folder: Path) -> int:
    path = folder / "log" / WATERMARK_FILE
    return int.from_bytes(path.read_bytes()[8:16], "little") if path.exists() else 0
