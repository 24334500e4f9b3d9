"""Run users' queries, one at a time, as the process `python -m wirelake.lake.query_worker`.

It limits its own memory, so that a query that needs more fails here and nowhere else. Standard input is where the
lake is, and then requests; replies go to standard output, each preceded by its length. At the end of the input the
process exits, whatever it is doing: its parent is gone.
"""

import os
import queue
import re
import resource
import sys
import threading
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct, json

from wirelake.errors import AccessDeniedError, DamagedTableError, InputError
from wirelake.lake.query import open_database, run, translate_errors
from wirelake.lake.store import open_store
from wirelake.limits import (
    LAKE_MEMORY_MIB_MAX,
    LAKE_PROCESS_EXTRA_MIB,
    LAKE_PROCESS_IDLE_S,
    LAKE_PROCESS_KEEP_MIB,
    LAKE_PROCESS_NICE,
    MIB,
)
from wirelake.roles import RowFilter

LENGTH_BYTES: Final = 8
STORE: Final = b"s"  # a `StoreAddress` as JSON, before the first query
QUERY: Final = b"q"  # a `Query` as JSON
READY: Final = b"r"  # ready for a query
RESULT: Final = b"a"  # a `QueryResult` as JSON
LAST_RESULT: Final = b"A"  # the same, and the process exits
FAILURE: Final = b"e"  # why there is no result
LAST_FAILURE: Final = b"E"
DENIED: Final = b"n"  # which table the query may not read
DAMAGED: Final = b"d"  # which table cannot be read; the process exits
_RECURSION_MAX: Final = 10_000  # of a statement's tree: DuckDB limits expressions itself
_ALLOCATED: Final = re.compile(r"VmData:\s*(\d+) kB")


class StoreAddress(Struct, frozen=True):
    """Describe where the lake is, and how to reach it."""

    url: str
    options: dict[str, str]


class Query(Struct, frozen=True):
    sql: str
    rows_max: int
    timeout_s: float
    tables: frozenset[str] | None = None  # that may be read; None: all
    row_filters: dict[str, RowFilter] = {}  # by table: which of its rows may be read, if not all


def frame(kind: bytes, body: bytes) -> bytes:
    return (len(kind) + len(body)).to_bytes(LENGTH_BYTES, "big") + kind + body


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is not a reply
    address = json.decode(_read_frame(sys.stdin.buffer), type=StoreAddress)
    lake = open_store(address.url, address.options)
    limit_process()
    requests: queue.SimpleQueue[Query] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    try:
        with translate_errors(lake):
            database = open_database(lake)
    except InputError as error:
        _send(replies, LAST_FAILURE, str(error).encode())
        return
    _send(replies, READY, b"")
    while True:
        try:
            query = requests.get(timeout=LAKE_PROCESS_IDLE_S)
        except queue.Empty:
            return
        try:
            with translate_errors(lake):
                limits = (query.rows_max, query.timeout_s, query.tables, query.row_filters)
                (result,) = run(database, lake, [query.sql], *limits)
                body = json.encode(result)
        except AccessDeniedError as error:
            _send(replies, DENIED, error.target.encode())
            continue
        except DamagedTableError as error:
            _send(replies, DAMAGED, str(error).encode())
            return
        except InputError as error:
            body, kinds = str(error).encode(), (FAILURE, LAST_FAILURE)
        else:
            kinds = (RESULT, LAST_RESULT)
        is_last = _allocated_mib() > LAKE_PROCESS_KEEP_MIB
        _send(replies, kinds[is_last], body)
        if is_last:
            return


def limit_process() -> None:
    """Limit the memory of this process, forbid it to write files and core dumps, and lower its priority."""
    data_bytes = (LAKE_MEMORY_MIB_MAX + LAKE_PROCESS_EXTRA_MIB) * MIB
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.nice(LAKE_PROCESS_NICE)
    sys.setrecursionlimit(_RECURSION_MAX)


def _read(requests: BinaryIO, received: "queue.SimpleQueue[Query]") -> None:
    while body := _read_frame(requests):
        received.put(json.decode(body, type=Query))
    os._exit(0)


def _read_frame(requests: BinaryIO) -> bytes:
    """Return the body of the next frame; nothing at the end of the input."""
    head = requests.read(LENGTH_BYTES)
    return requests.read(int.from_bytes(head, "big"))[1:]


def _send(replies: BinaryIO, kind: bytes, body: bytes) -> None:
    view = memoryview(frame(kind, body))
    while view:
        view = view[replies.write(view) :]


def _allocated_mib() -> int:
    """Return what the process has allocated and not released, as its limit counts it."""
    found = _ALLOCATED.search(Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found is not None else 0


if __name__ == "__main__":
    main()
