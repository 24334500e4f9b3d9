"""Define where everything is in a data folder. Paths are absolute: executors on other machines see the same folders."""

from pathlib import Path

from msgspec import Struct


class DataPaths(Struct, frozen=True):
    data: Path

    @staticmethod
    def of(data: Path) -> "DataPaths":
        return DataPaths(data.absolute())

    @property
    def log(self) -> Path:
        return self.data / "log"

    @property
    def lake(self) -> Path:
        return self.data / "lake"

    @property
    def database(self) -> Path:
        """Return the gateway's state, with the keys of devices."""
        return self.data / "state.db"

    @property
    def checkpoint(self) -> Path:
        """Return the checkpoint of the stream that fills the tables: Spark's own, manifests, and bucket states."""
        return self.data / "checkpoints" / "tables"

    @property
    def bucket_states(self) -> Path:
        return self.checkpoint / "carry"

    @property
    def spark_checkpoint(self) -> Path:
        return self.checkpoint / "spark"

    @property
    def spark_offsets(self) -> Path:
        return self.spark_checkpoint / "offsets"
