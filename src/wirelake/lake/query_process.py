"""Run users' queries in separate processes, with limits that hold whatever the query does.

A process is started for the first query and reused while it is healthy. One that does not reply in time, whose query is
cancelled, or that dies is killed; the next query gets a new one.
"""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from msgspec import json

from wirelake.errors import AccessDeniedError, DamagedTableError, InputError, StateError
from wirelake.lake.query import MEMORY_EXCEEDED, QueryResult, time_exceeded
from wirelake.lake.query_worker import (
    DAMAGED,
    DENIED,
    FAILURE,
    LAST_FAILURE,
    LENGTH_BYTES,
    QUERY,
    READY,
    RESULT,
    STORE,
    Query,
    StoreAddress,
    frame,
)
from wirelake.lake.store import Store
from wirelake.limits import (
    LAKE_ANSWER_BYTES_MAX,
    LAKE_KILL_GRACE_S,
    LAKE_PROCESS_REUSE_S,
    LAKE_PROCESS_START_S,
    LAKE_QUERY_S,
    LAKE_REPLY_EXTRA_BYTES,
    LAKE_ROWS_MAX,
)
from wirelake.roles import Action, RowFilter

# What the interpreter needs to start. A query must not be able to see anything else of the environment.
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "HOME", "TMPDIR")
_REPLY_BYTES_MAX: Final = LAKE_ANSWER_BYTES_MAX + LAKE_REPLY_EXTRA_BYTES
_READ_BYTES: Final = 256 * 1024


def query(lake: Store, sql: str, rows_max: int = LAKE_ROWS_MAX, timeout_s: float = LAKE_QUERY_S) -> QueryResult:
    """Run one query in a process that ends with it."""
    process = QueryProcess(lake)
    try:
        return json.decode(process.run(Query(sql, rows_max, timeout_s)), type=QueryResult)
    finally:
        process.close()


class QueryProcess:
    """Run one process with its pipes. Any thread may call `kill`; only one at a time may call the rest."""

    def __init__(self, lake: Store) -> None:
        self.is_usable = True
        self._is_ready = False
        self._is_cancelled = False
        self._used_s = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wirelake.lake.query_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,  # Ctrl-C is for the parent
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("Popen did not create the pipes")
        self._requests, self._replies = self._process.stdin, self._process.stdout
        # Not as an argument, which others can read: the options may have credentials.
        self._requests.write(frame(STORE, json.encode(StoreAddress(lake.url, lake.delta_options))))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_fresh(self) -> bool:
        """Whether it can run another query: it exits if it has had none for some time."""
        return self.is_usable and time.monotonic() - self._used_s < LAKE_PROCESS_REUSE_S

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def run(self, query: Query) -> bytes:
        """Return a `QueryResult` as JSON.

        Raise InputError if there is none, AccessDeniedError with the table that the query may not read,
        DamagedTableError if a table cannot be read, StateError if it was cancelled.
        """
        try:
            if not self._is_ready:
                kind, body = self._receive(LAKE_PROCESS_START_S)
                if kind != READY:
                    raise InputError(body.decode(errors="replace"))
                self._is_ready = True
            self._requests.write(frame(QUERY, json.encode(query)))
            kind, body = self._receive(query.timeout_s + LAKE_KILL_GRACE_S)
        except TimeoutError as error:
            self.is_usable = False
            if self._is_ready:
                raise InputError(time_exceeded(query.timeout_s)) from error
            raise InputError(f"the query process did not start within {LAKE_PROCESS_START_S:g} s") from error
        except (EOFError, BrokenPipeError) as error:
            self.is_usable = False
            if self._is_cancelled:
                raise StateError("the query was cancelled") from error
            raise InputError(MEMORY_EXCEEDED if self._is_ready else "the query process could not start") from error
        except BaseException:
            self.is_usable = False
            raise
        self._used_s = time.monotonic()
        self.is_usable = kind in {RESULT, FAILURE, DENIED}
        if kind == DENIED:
            raise AccessDeniedError("", Action.QUERY, body.decode(errors="replace"))
        if kind == DAMAGED:
            raise DamagedTableError(body.decode(errors="replace"))
        if kind in {FAILURE, LAST_FAILURE}:
            raise InputError(body.decode(errors="replace"))
        return body

    def kill(self) -> None:
        """Kill the process, whatever it is doing. Do not wait for it."""
        self.is_usable = False
        self._is_cancelled = True
        self._process.kill()

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self.kill()
        self._process.wait()
        self._requests.close()
        self._replies.close()

    def _receive(self, timeout_s: float) -> tuple[bytes, bytes]:
        deadline_s = time.monotonic() + timeout_s
        size = int.from_bytes(self._read(LENGTH_BYTES, deadline_s), "big")
        if not 0 < size <= _REPLY_BYTES_MAX:
            raise EOFError(f"a reply of {size} bytes")
        return self._read(1, deadline_s), self._read(size - 1, deadline_s)

    def _read(self, size: int, deadline_s: float) -> bytes:
        readable = select.poll()  # select() is limited to descriptors below 1024
        readable.register(self._replies, select.POLLIN)
        parts: list[bytes] = []
        while size:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not readable.poll(remaining_s * 1000):
                raise TimeoutError
            part = self._replies.read(min(_READ_BYTES, size))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class QueryPool:
    """Keep idle processes for the next queries. The caller limits how many run at once."""

    def __init__(self, lake: Store) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._idle: list[QueryProcess] = []
        self._running: set[PooledQuery] = set()
        self._closed = False

    def query(
        self,
        sql: str,
        rows_max: int,
        timeout_s: float = LAKE_QUERY_S,
        tables: frozenset[str] | None = None,
        row_filters: Mapping[str, RowFilter] | None = None,
    ) -> "PooledQuery":
        """Return a query that can be run. `tables` are those that it may read, and `row_filters` their rows, if not
        all.
        """
        return PooledQuery(self, Query(sql, rows_max, timeout_s, tables, dict(row_filters or {})))

    def take(self, running: "PooledQuery") -> QueryProcess:
        """Return a process for this query. Raise StateError if the query was cancelled."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.is_fresh:
            process.close()
            process = None
        if process is None:
            process = QueryProcess(self._lake)
        with self._lock:
            is_needed = not (self._closed or running.is_cancelled)
            if is_needed:
                running.process = process
                self._running.add(running)
        if not is_needed:
            process.close()
            raise StateError("the query was cancelled")
        return process

    def release(self, running: "PooledQuery") -> None:
        with self._lock:
            self._running.discard(running)
            process, running.process = running.process, None
            if process is not None and process.is_usable and not self._closed:
                self._idle.append(process)
                process = None
        if process is not None:
            process.close()

    def cancel(self, running: "PooledQuery") -> None:
        with self._lock:
            running.is_cancelled = True
            if running.process is not None:
                running.process.kill()

    def reap(self) -> None:
        """Close processes that exited because they were idle."""
        with self._lock:
            ended = [process for process in self._idle if process.has_ended]
            self._idle = [process for process in self._idle if process not in ended]
        for process in ended:
            process.close()

    def close(self) -> None:
        """Close all processes. Running queries fail at once."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for running in self._running:
                if running.process is not None:
                    running.process.kill()
        for process in idle:
            process.close()


class PooledQuery:
    """Run a query in a thread, and let another thread cancel it."""

    def __init__(self, pool: QueryPool, query: Query) -> None:
        self.process: QueryProcess | None = None  # while it runs
        self.is_cancelled = False
        self._pool = pool
        self._query = query

    def run(self) -> bytes:
        """Return a `QueryResult` as JSON: see `QueryProcess.run`."""
        process = self._pool.take(self)
        try:
            return process.run(self._query)
        finally:
            self._pool.release(self)

    def cancel(self) -> None:
        self._pool.cancel(self)
