"""The tables as one batch left them: the same batch in all of them, though a stream goes on committing meanwhile."""

import time
from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable
from msgspec import Struct

from wirelake.errors import InputError, StorageError
from wirelake.lake.tables import FRAMES, Table
from wirelake.limits import PIPELINE_SNAPSHOT_S
from wirelake.pipeline.commits import live_files
from wirelake.pipeline.intents import Intent, Intents
from wirelake.pipeline.parquet import FileAction
from wirelake.pipeline.places import Places
from wirelake.pipeline.stream import Stream, known_stream

_LOOK_S: Final = 0.05


class Snapshot(Struct, frozen=True):
    until_seq: int  # records before this one are in the tables, and no others
    buckets: int
    files: dict[str, list[FileAction]]  # by table


def check_tables(places: Places) -> Stream:
    """Whose they are."""
    stream = known_stream(places)
    if stream is None or not _is_there(places, FRAMES):
        raise InputError(f"there are no tables in {places.lake}: run `wirelake pipeline run --once` first")
    return stream


def take_snapshot(places: Places, tables: Sequence[Table]) -> Snapshot:
    """Waits for a batch that is under way to be in all of them."""
    stream = check_tables(places)
    intents = Intents(places.checkpoint)
    deadline_s = time.monotonic() + PIPELINE_SNAPSHOT_S
    while True:
        opened = {each.name: DeltaTable(places.lake / each.folder) for each in tables if _is_there(places, each)}
        versions = {name: _version(table, stream.app) for name, table in opened.items()}
        intent = intents.get(versions[FRAMES.name])
        if intent is not None and _has_all(intent, tables, versions):
            files = {each.name: live_files(opened[each.name], each.name) for each in tables if each.name in opened}
            return Snapshot(intent.until_seq, stream.buckets, files)
        if time.monotonic() > deadline_s:
            raise StorageError(
                f"a batch is in some of the tables in {places.lake} and not in others, and nobody finishes it: "
                "`wirelake pipeline run --once` does"
            )
        time.sleep(_LOOK_S)


def _has_all(intent: Intent, tables: Sequence[Table], versions: dict[str, int]) -> bool:
    """Whether this batch is in the tables that it changes, and no later one in any."""
    for table in tables:
        version = versions.get(table.name, -1)
        if version > intent.batch or (version < intent.batch and table.name in intent.tables):
            return False
    return True


def _version(table: DeltaTable, app: str) -> int:
    found = table.transaction_version(app)
    return -1 if found is None else found


def _is_there(places: Places, table: Table) -> bool:
    return DeltaTable.is_deltatable(str(places.lake / table.folder))
