"""Write small tables for tests, as any Delta writer would."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from wirelake.lake.store import LocalStore, Store
from wirelake.lake.tables import LakeTable


def write(lake: Path | Store, table: LakeTable, *rows: dict[str, Any]) -> None:
    """Write rows. Columns that a row lacks are null."""
    data = pa.Table.from_pylist(list(rows), schema=table.schema)
    store = LocalStore(lake) if isinstance(lake, Path) else lake
    write_deltalake(
        store.table_uri(table.folder),
        data,
        mode="append",
        partition_by=list(table.partition_by),
        storage_options=store.delta_options,
    )
