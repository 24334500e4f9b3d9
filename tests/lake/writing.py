"""Write small tables for tests, as any Delta writer would."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from wirelake.lake.tables import LakeTable


def write(lake: Path, table: LakeTable, *rows: dict[str, Any]) -> None:
    """Write rows. Columns that a row lacks are null."""
    data = pa.Table.from_pylist(list(rows), schema=table.schema)
    write_deltalake(lake / table.folder, data, mode="append", partition_by=list(table.partition_by))
