"""How far each consumer of the log has come: a small file for each, changed in one step.

Any process may move its own consumer's position; no lock is needed, for one consumer is one process.
"""

import re
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

from wirelake.errors import InputError, StorageError
from wirelake.limits import LOG_CONSUMER_CHARS_MAX, LOG_CONSUMERS_MAX
from wirelake.log.files import Files

NAME: Final = "positions"
_SUFFIX: Final = ".json"
_CONSUMER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LOG_CONSUMER_CHARS_MAX - 1}}}")


class Position(Struct, frozen=True):
    seq: int  # the first record that the consumer still needs
    at_us: int  # when it said so


class Positions:
    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder / NAME
        self._files = files

    def commit(self, consumer: str, seq: int, at_us: int) -> None:
        """Returns once it is on disk. Retention keeps `seq` and all after it."""
        path = self._path(consumer)
        if not self._folder.exists():
            self._folder.mkdir(exist_ok=True)
            self._files.fsync_dir(self._folder.parent)
        if not path.exists() and len(self.all()) >= LOG_CONSUMERS_MAX:
            raise InputError(f"the log has {LOG_CONSUMERS_MAX} consumers already, which is the limit")
        try:
            self._files.replace_file(path, json.encode(Position(seq, at_us)))
        except OSError as error:
            raise StorageError(f"the position of {consumer} could not be kept: {error}") from error

    def get(self, consumer: str) -> int | None:
        """None if the consumer has never committed one."""
        path = self._path(consumer)
        return self._read(path).seq if path.exists() else None

    def forget(self, consumer: str) -> None:
        """Retention no longer minds it."""
        self._path(consumer).unlink(missing_ok=True)
        self._files.fsync_dir(self._folder)

    def all(self) -> dict[str, Position]:
        if not self._folder.exists():
            return {}
        paths = sorted(path for path in self._folder.iterdir() if path.name.endswith(_SUFFIX))
        return {path.name.removesuffix(_SUFFIX): self._read(path) for path in paths}

    def _path(self, consumer: str) -> Path:
        if _CONSUMER.fullmatch(consumer) is None:
            raise InputError(f"{consumer!r} is no name for a consumer: letters, digits, - and _")
        return self._folder / f"{consumer}{_SUFFIX}"

    def _read(self, path: Path) -> Position:
        try:
            return json.decode(path.read_bytes(), type=Position)
        except DecodeError as error:
            raise StorageError(f"{path} does not hold a position: {error}") from error
