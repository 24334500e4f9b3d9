"""Where everything is. Executors on other machines see the same folders: the paths are absolute."""

from pathlib import Path

from msgspec import Struct


class Places(Struct, frozen=True):
    data: Path

    @staticmethod
    def of(data: Path) -> "Places":
        return Places(data.absolute())

    @property
    def log(self) -> Path:
        return self.data / "log"

    @property
    def lake(self) -> Path:
        return self.data / "lake"

    @property
    def state(self) -> Path:
        return self.data / "state.db"

    @property
    def checkpoint(self) -> Path:
        """Of the stream that fills the tables: Spark's own, the intents, and what is carried from batch to batch."""
        return self.data / "checkpoints" / "tables"

    @property
    def carry(self) -> Path:
        return self.checkpoint / "carry"
