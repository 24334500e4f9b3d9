"""Store the files of the lake and of its checkpoint: in a folder, or in an object store such as S3.

Paths are relative, with slashes. A file is either complete or does not exist, and is durable once it exists. This is
the only module that syncs, renames and locks files of the lake; `object_store.py` does the same without any of these.
"""

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from wirelake.errors import InputError
from wirelake.files import TEMP_SUFFIX, FileLock, FileSystem, replace_file, wait_for_lock

_DISK: Final = FileSystem()
_AWS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
)
_GOOGLE: Final = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS")
_AZURE: Final = (
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_STORAGE_SAS_KEY",
)
_ENVIRONMENT: Final = {"s3": _AWS, "s3a": _AWS, "gs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE}


class Output(Protocol):
    """Write a new file, which is visible once it is closed. `sink` is for pyarrow; the caller does not close it."""

    sink: Any

    def close(self) -> int:
        """Finish the file, and return its size."""

    def discard(self) -> None:
        """Forget the file: nothing is left of it."""


class Lock(Protocol):
    """Hold a lock."""

    def check(self) -> None:
        """Raise InUseError if another process has taken the lock, because this one did not renew it in time."""

    def release(self) -> None: ...


class Store(ABC):
    """Read and write files below a URL. A store can be pickled: executors get it with their tasks."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Return where the files are, such as file:///srv/lake or s3://bucket/prefix."""

    @property
    @abstractmethod
    def delta_options(self) -> dict[str, str]:
        """Return the options with which deltalake opens the tables. They may contain secrets."""

    @abstractmethod
    def at(self, prefix: str) -> "Store":
        """Return the store of the files below a prefix."""

    @abstractmethod
    def table_uri(self, table: str) -> str:
        """Return where deltalake finds the table of this folder."""

    @abstractmethod
    def name(self, path: str) -> str:
        """Return how messages name this file."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file. Raise FileNotFoundError without it."""

    @abstractmethod
    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a file. Without `sync`, a power failure may bring the old one back."""

    @abstractmethod
    def create(self, path: str, data: bytes, *, sync: bool = True) -> bool:
        """Write a file unless it exists. Return whether this call wrote it: of two callers, one does.

        Without `sync`, a power failure may cut it short.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def delete_all(self, prefix: str) -> None:
        """Delete everything below a prefix."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it does not exist."""

    @abstractmethod
    def list(self, prefix: str = "") -> list[str]:
        """Return the files below a prefix, in the order of their paths, which begin with it."""

    @abstractmethod
    def has_files(self, prefix: str) -> bool:
        """Return whether there is something below a prefix."""

    @abstractmethod
    def clean(self, prefix: str) -> None:
        """Delete what processes that were killed left unfinished directly below a prefix."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make a file durable that another program wrote."""

    @abstractmethod
    def open_output(self, path: str, *, sync: bool = True) -> Output:
        """Write a file piece by piece."""

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """Open a file for pyarrow, which may read it in any order. Raise FileNotFoundError without it."""

    @abstractmethod
    def hold(self, name: str, conflict: str) -> Lock:
        """Take a lock. Raise InUseError with `conflict`, "in process", and which, if another process holds it."""

    @abstractmethod
    def lock(self, name: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Wait for a lock and hold it: alone, or together with others that ask for a shared one."""


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """Store files in a folder of this machine, or of a file system that all machines see."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def url(self) -> str:
        return self.folder.absolute().as_uri()

    @property
    def delta_options(self) -> dict[str, str]:
        return {}

    def at(self, prefix: str) -> "LocalStore":
        return LocalStore(self.folder / prefix)

    def table_uri(self, table: str) -> str:
        return str(self.folder / table)

    def name(self, path: str) -> str:
        return str(self.folder / path)

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        try:
            replace_file(self.folder / path, data, sync=sync)
        except FileNotFoundError:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / path, data, sync=sync)

    def create(self, path: str, data: bytes, *, sync: bool = True) -> bool:
        """Link a complete file to its name, which fails if the name exists."""
        final = self.folder / path
        if final.exists():
            return False
        final.parent.mkdir(parents=True, exist_ok=True)
        new = final.with_name(f"{final.name}.{uuid.uuid4()}{TEMP_SUFFIX}")
        try:
            _write_new(new, data, sync)
            os.link(new, final)
        except FileExistsError:
            return False
        finally:
            new.unlink(missing_ok=True)
        if sync:
            _DISK.fsync_dir(final.parent)
        return True

    def delete(self, path: str) -> None:
        (self.folder / path).unlink(missing_ok=True)

    def delete_all(self, prefix: str) -> None:
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def size(self, path: str) -> int | None:
        try:
            return (self.folder / path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, prefix: str = "") -> list[str]:
        found = []
        for folder, _, names in os.walk(self.folder / prefix):
            below = PurePosixPath(Path(folder).relative_to(self.folder))
            found += [str(below / name) for name in names if not name.endswith(TEMP_SUFFIX)]
        return sorted(found)

    def has_files(self, prefix: str) -> bool:
        return (self.folder / prefix).is_dir()

    def clean(self, prefix: str) -> None:
        for path in (self.folder / prefix).glob(f"*{TEMP_SUFFIX}"):
            path.unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        fd = os.open(self.folder / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        _DISK.fsync_dir((self.folder / path).parent)

    def open_output(self, path: str, *, sync: bool = True) -> Output:
        return _LocalOutput(self.folder / path, sync)

    def open_input(self, path: str) -> Any:
        return pa.memory_map(str(self.folder / path))

    def hold(self, name: str, conflict: str) -> Lock:
        self.folder.mkdir(parents=True, exist_ok=True)
        return _LocalLock(FileLock(self.folder / name, conflict))

    @contextmanager
    def lock(self, name: str, *, shared: bool = False) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(self.folder / name, shared=shared):
            yield


class _LocalOutput:
    """Write to a temporary name, and rename the file once it is complete."""

    def __init__(self, path: Path, sync: bool) -> None:
        self._final = path
        self._new = path.with_name(path.name + TEMP_SUFFIX)
        self._sync = sync
        try:
            self.sink = pa.OSFile(str(self._new), "wb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sink = pa.OSFile(str(self._new), "wb")

    def close(self) -> int:
        self.sink.close()
        fd = os.open(self._new, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self._sync:
                os.fsync(fd)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        self._new.replace(self._final)
        if self._sync:
            _DISK.fsync_dir(self._final.parent)
        return size

    def discard(self) -> None:
        self.sink.close()
        self._new.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, sync: bool) -> None:
    fd = _DISK.create(path)
    try:
        _DISK.write(fd, [data], 0)
        if sync:
            _DISK.fsync(fd)
    finally:
        _DISK.close(fd)


@dataclass(frozen=True, slots=True)
class _LocalLock:
    """Hold a lock that the operating system drops with the process, so it cannot be lost before."""

    file: FileLock

    def check(self) -> None:
        return

    def release(self) -> None:
        self.file.release()


def open_store(url: str | Path, options: Mapping[str, str] | None = None) -> Store:
    """Return the store at a URL or in a folder. `options` are those of the object store: endpoint, credentials."""
    scheme = "" if isinstance(url, Path) else urlsplit(url).scheme
    if scheme in ("", "file"):
        folder = Path(url) if scheme == "" else _folder_of(str(url))
        return LocalStore(folder.absolute())
    from wirelake.lake.object_store import ObjectStore  # noqa: PLC0415 (an extra, which local lakes do not need)

    return ObjectStore(str(url).rstrip("/"), tuple(sorted((options or {}).items())))


def open_lake(data: Path, url: str = "", options: Mapping[str, str] | None = None) -> Store:
    """Return the store of the tables, as the settings have it: in the data folder, or at `url`.

    What the options lack is taken from the environment variables of the store's vendor, so that executors get it too.
    """
    if not url:
        return LocalStore(data.absolute() / "lake")
    known = _ENVIRONMENT.get(urlsplit(url).scheme, ())
    found = {name.lower(): os.environ[name] for name in known if os.environ.get(name)}
    return open_store(url, {**found, **(options or {})})


def _folder_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InputError(
            f"{url} names the machine {parts.netloc}: a file URL has three slashes, as in file:///srv/lake"
        )
    return Path(unquote(parts.path))
