"""Commit batches of literal rows to a lake, as the pipeline does."""

from pathlib import Path
from typing import Any

from pipeline.rows import arrow_rows
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.pipeline.commit.delta import DeltaWriter
from wirelake.pipeline.commit.files import FileAction, write_rows
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.gold.partials import PartialSums, write_partials
from wirelake.pipeline.gold.refresh import GoldTables
from wirelake.pipeline.time_ranges import time_column

APP = "test"
Rows = list[dict[str, Any]]


class Lake:
    """Hold a lake and its checkpoint. Open rows replace those of the batch before."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "lake")
        self.checkpoint = LocalStore(folder / "checkpoint")
        self.manifests = ManifestStore(self.checkpoint)
        self.delta = DeltaWriter(self.store, APP)
        self._open: dict[str, list[FileAction]] = {}
        self._batch = 0

    def gold(self) -> GoldTables:
        """Return the gold tables as a new process sees them."""
        return GoldTables(self.store, self.checkpoint, APP)

    def commit(
        self, rows: dict[str, Rows], opened: dict[str, Rows] | None = None, now_us: int = 0, partials: bool = True
    ) -> None:
        manifest = self.plan(rows, opened, now_us, partials)
        for name in manifest.tables:
            self.delta.commit(name, manifest.batch, manifest.adds.get(name, ()), manifest.removes.get(name, ()))

    def plan(
        self, rows: dict[str, Rows], opened: dict[str, Rows] | None = None, now_us: int = 0, partials: bool = True
    ) -> Manifest:
        """Write the files and the manifest of a batch."""
        adds: dict[str, list[FileAction]] = {"silver.batches": []}
        removes: dict[str, list[FileAction]] = {}
        sums = PartialSums()
        for name, some in rows.items():
            typed = _typed(TABLES[name], some)
            sums.add(name, typed)
            adds.setdefault(name, []).extend(write_rows(TABLES[name], typed, self.store))
        for settled, some in (opened or {}).items():
            table = TABLES[settled].open_table
            removes[table.name] = self._open.pop(table.name, [])
            self._open[table.name] = write_rows(table, _typed(table, some), self.store)
            adds.setdefault(table.name, []).extend(self._open[table.name])
        batch, self._batch = self._batch, self._batch + 1
        path = write_partials(self.checkpoint, batch, sums.result()) if partials else None
        manifest = Manifest(
            batch=batch,
            from_seq=batch * 10,
            until_seq=batch * 10 + 10,
            now_us=now_us,
            rows=10,
            adds=adds,
            removes=removes,
            partials=path,
        )
        return self.manifests.create(manifest)


def _typed(table: LakeTable, rows: Rows) -> Any:
    return arrow_rows(table, *({"day": row[time_column(table)].date(), **row} for row in rows))
