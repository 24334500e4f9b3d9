"""Store the files of the lake in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.

A put makes a whole object visible, and a conditional put (`If-None-Match`, `If-Match`) decides between two writers.
A lock is a lease: an object that its holder renews. One that has not changed for LAKE_LEASE_S is free, measured by the
clock of the process that waits, so the clocks of machines need not agree. A process that is suspended for longer than
that loses its lock without noticing at once, so a lock only avoids work that would be wasted: `create` and the commits
of Delta decide what must not happen twice.
"""

import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, json

from wirelake.errors import InputError, InUseError, StorageError
from wirelake.lake.store import Lock, Output, Store
from wirelake.limits import (
    LAKE_DELETES_AT_ONCE,
    LAKE_LEASE_POLL_S,
    LAKE_LEASE_RENEW_S,
    LAKE_LEASE_S,
    LAKE_LOCK_WAIT_S,
    LAKE_PART_BYTES,
    LAKE_PARTS_AT_ONCE,
    LAKE_REQUEST_ATTEMPTS_MAX,
    LAKE_REQUEST_S,
    LAKE_WHOLE_BYTES,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_CONDITIONAL_PUT: Final = "aws_conditional_put"
_S3: Final = ("s3://", "s3a://")


@dataclass(frozen=True, slots=True)
class ObjectStore(Store):
    """Store files as objects below a prefix. The connection is made on first use, in each process anew."""

    location: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # with credentials
    prefix: str = ""
    lease_s: float = LAKE_LEASE_S

    def __str__(self) -> str:
        return self.url

    @property
    def url(self) -> str:
        return f"{self.location}/{self.prefix}".rstrip("/")

    @property
    def delta_options(self) -> dict[str, str]:
        options = dict(self.options)
        if self.location.startswith(_S3):
            options.setdefault(_CONDITIONAL_PUT, "etag")
        return options

    @property
    def _client(self) -> "Client":
        return _connect(os.getpid(), self.location, self.options)

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}".strip("/")

    def at(self, prefix: str) -> "ObjectStore":
        return ObjectStore(self.location, self.options, self._key(prefix), self.lease_s)

    def table_uri(self, table: str) -> str:
        return f"{self.url}/{table}"

    def name(self, path: str) -> str:
        return f"{self.url}/{path}"

    def read(self, path: str) -> bytes:
        with _explained(self.name(path)):
            return bytes(self._client.get(self._key(path)).bytes())

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        with _explained(self.name(path)):
            self._client.put(self._key(path), data, use_multipart=False)

    def create(self, path: str, data: bytes, *, sync: bool = True) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        with _explained(self.name(path)):
            try:
                self._client.put(self._key(path), data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def delete(self, path: str) -> None:
        with _explained(self.name(path)):
            try:
                self._client.delete(self._key(path))
            except FileNotFoundError:
                return

    def delete_all(self, prefix: str) -> None:
        files = [self._key(path) for path in self.list(prefix)]
        for start in range(0, len(files), LAKE_DELETES_AT_ONCE):
            with _explained(self.name(prefix)):
                self._client.delete(files[start : start + LAKE_DELETES_AT_ONCE])

    def size(self, path: str) -> int | None:
        with _explained(self.name(path)):
            try:
                return self._client.head(self._key(path))["size"]
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "") -> list[str]:
        start = len(self.prefix) + 1 if self.prefix else 0
        with _explained(self.name(prefix)):
            chunks = self._client.list(self._key(prefix) or None)
            return sorted(each["path"][start:] for chunk in chunks for each in chunk)

    def has_files(self, prefix: str) -> bool:
        with _explained(self.name(prefix)):
            return any(len(chunk) for chunk in self._client.list(self._key(prefix) or None, chunk_size=1))

    def clean(self, prefix: str) -> None:
        """Do nothing: an object that was not finished does not exist."""

    def sync(self, path: str) -> None:
        """Do nothing: an object is durable once it exists."""

    def open_output(self, path: str, *, sync: bool = True) -> Output:
        return _ObjectOutput(self, path)

    def open_input(self, path: str) -> Any:
        with _explained(self.name(path)):
            found = self._client.get(self._key(path))
            if found.meta["size"] <= LAKE_WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(_ObjectInput(self, path, found.meta["size"]), "r")

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with _explained(self.name(path)):
            return bytes(self._client.get_range(self._key(path), start=start, end=end))

    def upload(self, path: str, file: Any) -> None:
        with _explained(self.name(path)):
            self._client.put(self._key(path), file, chunk_size=LAKE_PART_BYTES, max_concurrency=LAKE_PARTS_AT_ONCE)

    def get_lease(self, name: str) -> "tuple[LeaseHolder, str] | None":
        """Return who holds a lease, and the version of the object; None if nobody ever held it."""
        try:
            with _explained(self.name(name)):
                found = self._client.get(self._key(name))
                return json.decode(bytes(found.bytes()), type=LeaseHolder), found.meta["e_tag"] or ""
        except FileNotFoundError:
            return None

    def put_lease(self, name: str, holder: "LeaseHolder", version: str | None) -> str | None:
        """Write a lease if it still has this version (None: if it does not exist). Return the new version, or None."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        with _explained(self.name(name)):
            try:
                put = self._client.put(
                    self._key(name), json.encode(holder), mode="create" if version is None else {"e_tag": version}
                )
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return None
        return put["e_tag"] or ""

    def hold(self, name: str, conflict: str) -> Lock:
        """Take a lock. A lease that its holder does not renew is waited for, until it is free."""
        return _take(self, name, conflict, wait_s=0.0)

    @contextmanager
    def lock(self, name: str, *, shared: bool = False) -> Iterator[None]:
        conflict = f"waited {LAKE_LOCK_WAIT_S:g} s for {self.name(name)}, which is held"
        held = _take(self, name, conflict, LAKE_LOCK_WAIT_S)
        try:
            yield
        finally:
            held.release()


@cache
def _connect(_pid: int, location: str, options: tuple[tuple[str, str], ...]) -> "Client":
    """Connect once for each process: connections and threads do not survive a fork."""
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"a lake at {location} needs obstore: `pip install wirelake[lake]`") from error
    config: dict[str, Any] = {name: value for name, value in options if name != _CONDITIONAL_PUT}
    client: dict[str, Any] = {"timeout": timedelta(seconds=LAKE_REQUEST_S)}
    if config.pop("aws_allow_http", config.pop("allow_http", "")).lower() in ("true", "1"):
        client["allow_http"] = True
    retries: Any = {
        "max_retries": LAKE_REQUEST_ATTEMPTS_MAX - 1,
        "retry_timeout": timedelta(seconds=LAKE_REQUEST_S),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    connect: Callable[..., Client] = from_url  # its overloads differ in the names of the options
    try:
        return connect(location, config=config, client_options=client, retry_config=retries)
    except BaseError as error:
        raise InputError(f"lake.url = {location}, with its options, is not usable: {error}") from error


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raise a missing object as FileNotFoundError, and what the store refuses as StorageError, which names both."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError  # noqa: PLC0415

    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(f"{name} does not exist") from error
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        raise StorageError(
            f"{name} cannot be read or written: {str(error).splitlines()[0]}; check lake.url, its options, and the "
            "network"
        ) from error


class _ObjectOutput:
    """Write to a temporary file on this machine, and upload it once it is complete."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._file = tempfile.TemporaryFile(prefix="wirelake-upload-")  # noqa: SIM115 (closed by close or discard)
        self.sink = pa.PythonFile(self._file, "w")

    def close(self) -> int:
        try:
            size = self._file.tell()
            self._file.seek(0)
            self._store.upload(self._path, self._file)
        finally:
            self._file.close()
        return size

    def discard(self) -> None:
        self._file.close()


class _ObjectInput:
    """Read ranges of a large object, as pyarrow asks for them."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._offset = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        start = self._offset
        self._offset = self._size if count < 0 else min(start + count, self._size)
        return self._store.read_range(self._path, start, self._offset) if self._offset > start else b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._size}[whence]
        self._offset = min(max(0, origin + offset), self._size)
        return self._offset

    def tell(self) -> int:
        return self._offset

    def close(self) -> None:
        self.closed = True


class LeaseHolder(Struct, frozen=True):
    """Describe who holds a lease. Every renewal differs from the one before."""

    token: str
    process: str
    renewed: int = 0
    released: bool = False


class _Lease:
    """Hold a lease, and renew it in a thread if it is held for long."""

    def __init__(self, store: ObjectStore, name: str, holder: LeaseHolder, version: str) -> None:
        self._store = store
        self._name = name
        self._holder = holder
        self._version = version
        self._lost = ""
        self._lock = threading.Lock()
        self._renew_s = min(LAKE_LEASE_RENEW_S, store.lease_s / 3)
        self._ended = threading.Event()
        self._start_timer()

    def check(self) -> None:
        if self._lost:
            raise InUseError(f"{self._store.name(self._name)} is lost: {self._lost}")

    def release(self) -> None:
        self._ended.set()
        self._timer.cancel()
        with self._lock:
            if not self._lost:
                released = LeaseHolder(self._holder.token, self._holder.process, self._holder.renewed, released=True)
                self._store.put_lease(self._name, released, self._version)

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._renew_s, self._renew)
        self._timer.daemon = True
        self._timer.start()

    def _renew(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._holder = LeaseHolder(self._holder.token, self._holder.process, self._holder.renewed + 1)
            try:
                version = self._store.put_lease(self._name, self._holder, self._version)
                if version is None:
                    version = self._version_if_ours()
            except StorageError:  # the store is away: it is renewed in time, or another process takes it
                version = self._version
            if version is None:
                self._lost = "another process took it, because it was not renewed in time"
                return
            self._version = version
        self._start_timer()

    def _version_if_ours(self) -> str | None:
        """Return the lease's version if a renewal succeeded whose answer was lost."""
        found = self._store.get_lease(self._name)
        return found[1] if found is not None and found[0].token == self._holder.token else None


def _take(store: ObjectStore, name: str, conflict: str, wait_s: float) -> _Lease:
    """Take a lease that is free. While its holder renews it, wait for `wait_s` at most."""
    holder = LeaseHolder(str(uuid.uuid4()), f"{os.getpid()} on {socket.gethostname()}")
    started_s = seen_s = time.monotonic()
    seen: str | None = None
    while True:
        found = store.get_lease(name)
        now_s = time.monotonic()
        if found is not None and found[0].token == holder.token:  # a put succeeded whose answer was lost
            return _Lease(store, name, holder, found[1])
        if found is not None and found[1] != seen:
            if seen is not None and now_s - started_s >= wait_s and not found[0].released:
                raise InUseError(f"{conflict} in process {found[0].process}")
            seen, seen_s = found[1], now_s
        if found is None or found[0].released or now_s - seen_s >= store.lease_s:
            version = store.put_lease(name, holder, None if found is None else found[1])
            if version is not None:
                return _Lease(store, name, holder, version)
        else:
            time.sleep(LAKE_LEASE_POLL_S)
