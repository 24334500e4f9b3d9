"""Brings the gold tables up to date: called by the job after batches, see `wirelake.pipeline.refreshing`."""

from pathlib import Path
from typing import TYPE_CHECKING

from wirelake.pipeline.refreshing import Dirty

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refresh(_spark: "SparkSession", _lake: Path, _dirty: Dirty) -> None:
    """`dirty` names, for each silver table, the minutes in which rows were added or changed.

    A failure is tried again with the same minutes and those that came since, so it has to be one commit a table.
    """
