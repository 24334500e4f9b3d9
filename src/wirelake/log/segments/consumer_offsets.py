"""Store the offset of each consumer of the log: a small file for each, replaced in one step.

Any process may commit the offset of its own consumer. No lock is needed, because one consumer is one process.
"""

import re
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

from wirelake.errors import InputError, StorageError
from wirelake.files import FileSystem
from wirelake.limits import LOG_CONSUMER_CHARS_MAX, LOG_CONSUMERS_MAX

OFFSETS_FOLDER: Final = "positions"
_SUFFIX: Final = ".json"
_CONSUMER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LOG_CONSUMER_CHARS_MAX - 1}}}")


class ConsumerOffset(Struct, frozen=True):
    seq: int  # the first record that the consumer still needs
    at_us: int  # when it was committed


class ConsumerOffsets:
    """Read and commit the offsets of all consumers of one log."""

    def __init__(self, folder: Path, files: FileSystem | None = None) -> None:
        self._folder = folder / OFFSETS_FOLDER
        self._files = FileSystem() if files is None else files

    def commit(self, consumer: str, seq: int, at_us: int) -> None:
        """Store the offset durably. Retention keeps `seq` and all records after it."""
        path = self._path(consumer)
        if not self._folder.exists():
            self._folder.mkdir(exist_ok=True)
            self._files.fsync_dir(self._folder.parent)
        if not path.exists() and len(self.all()) >= LOG_CONSUMERS_MAX:
            raise InputError(f"cannot add consumer {consumer}: the log has {LOG_CONSUMERS_MAX} consumers, the maximum")
        try:
            self._files.replace_file(path, json.encode(ConsumerOffset(seq, at_us)))
        except OSError as error:
            raise StorageError(f"cannot store the offset of consumer {consumer} in {path}: {error}") from error

    def get(self, consumer: str) -> int | None:
        """Return the committed offset, or None if the consumer has never committed one."""
        path = self._path(consumer)
        return self._read(path).seq if path.exists() else None

    def all(self) -> dict[str, ConsumerOffset]:
        """Return the offsets by consumer."""
        if not self._folder.exists():
            return {}
        paths = sorted(path for path in self._folder.iterdir() if path.name.endswith(_SUFFIX))
        return {path.name.removesuffix(_SUFFIX): self._read(path) for path in paths}

    def _path(self, consumer: str) -> Path:
        if _CONSUMER.fullmatch(consumer) is None:
            raise InputError(f"invalid consumer name {consumer!r}: use letters, digits, - and _")
        return self._folder / f"{consumer}{_SUFFIX}"

    def _read(self, path: Path) -> ConsumerOffset:
        try:
            return json.decode(path.read_bytes(), type=ConsumerOffset)
        except DecodeError as error:
            raise StorageError(f"{path} does not contain a consumer offset: {error}") from error
