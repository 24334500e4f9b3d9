"""List the tables and their sizes, from the Delta log alone."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.errors import InputError
from wirelake.lake.damage import explained
from wirelake.lake.query import NOT_INSTALLED, is_written
from wirelake.lake.tables import TABLES, LakeTable


class TableInfo(Struct, frozen=True):
    name: str
    columns: list[str]
    version: int  # of the Delta table: one for each commit; -1 if nothing was written yet
    rows: int
    files: int
    bytes: int
    changed_at_ms: int  # 0 if nothing was written yet


def tables(lake: Path) -> list[TableInfo]:
    return [_info(lake, table) for table in TABLES.values()]


def _info(lake: Path, table: LakeTable) -> TableInfo:
    columns = list(table.schema.names)
    if not is_written(lake, table):
        return TableInfo(table.name, columns, -1, 0, 0, 0, 0)
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 an extra
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error
    with explained(lake):
        opened = DeltaTable(lake / table.folder)
        files = pa.table(opened.get_add_actions(flatten=True))
    changed = files["modification_time"].cast(pa.timestamp("ms")).cast(pa.int64()) if len(files) else None
    return TableInfo(
        name=table.name,
        columns=columns,
        version=opened.version(),
        rows=pc.sum(files["num_records"]).as_py() or 0,
        files=len(files),
        bytes=pc.sum(files["size_bytes"]).as_py() or 0,
        changed_at_ms=pc.max(changed).as_py() if changed is not None else 0,
    )
