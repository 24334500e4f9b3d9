"""Keep the versions of tables and their replaced files for some time, so that downstream streams survive an outage.

This is for the tables that only grow. Gold tables and open rows are replaced all the time: nobody can follow them as a
stream, and their old files would soon be many times as large as they are.
"""

import re
from typing import TYPE_CHECKING, Final

from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.limits import LAKE_HISTORY_DAYS, LAKE_HISTORY_REPLACED_DAYS, LAKE_VERSIONS_MAX

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


def history_properties(table: LakeTable, days: float = LAKE_HISTORY_DAYS) -> dict[str, str | None]:
    """Return the properties of a table that say how long its versions and its removed files are kept."""
    hours = max(1, round(24 * (min(days, LAKE_HISTORY_REPLACED_DAYS) if table.is_replaced else days)))
    interval = f"interval {hours} hours"
    return {"delta.deletedFileRetentionDuration": interval, "delta.logRetentionDuration": interval}


def set_history(opened: "DeltaTable", table: LakeTable, days: float) -> None:
    """Set how long versions and removed files are kept, if that is not as the table has it."""
    wanted = history_properties(table, days)
    found = opened.metadata().configuration
    if any(found.get(name) != value for name, value in wanted.items()):
        opened.alter.set_table_properties({name: value or "" for name, value in wanted.items()})
        opened.update_incremental()


def trim_log(lake: Store, table: LakeTable, versions_max: int = LAKE_VERSIONS_MAX) -> int:
    """Delete old versions beyond a number, up to the newest checkpoint before it. Return how many."""
    folder = f"{table.folder}/_delta_log"
    names = [path.rpartition("/")[2] for path in lake.list(folder)]
    commits = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
    if len(commits) <= versions_max:
        return 0
    checkpoints = {int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))}
    oldest = max((version for version in checkpoints if version <= commits[-versions_max]), default=0)
    for name in names:
        found = _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
        if found is not None and int(found[1]) < oldest:
            lake.delete(f"{folder}/{name}")
    return sum(version < oldest for version in commits)
