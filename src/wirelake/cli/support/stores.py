"""Open the stores that the settings name."""

from pathlib import Path

from wirelake.config import Settings
from wirelake.lake.store import Store, open_lake


def lake_of(settings: Settings) -> Store:
    """Return the store of the tables."""
    return open_lake(Path(settings.data), settings.lake.url, settings.lake.options)
