"""Define where everything is: in a data folder, and in the stores of its lake and checkpoint.

The lake and the checkpoint are in the data folder, or beside one another in the store that `lake.url` names. The log,
the state and Spark's own part of the checkpoint are in the data folder in either case.
"""

from pathlib import Path

from msgspec import Struct

from wirelake.key_source import KeySource, state_key
from wirelake.lake.progress import FOLDER, checkpoint_store
from wirelake.lake.store import Store, open_lake


class DataPaths(Struct, frozen=True):
    data: Path
    lake: Store
    checkpoint: Store  # of the stream that fills the tables: manifests and bucket states
    state_key: KeySource  # says where the key is that decrypts the keys of devices

    @staticmethod
    def of(data: Path, lake: Store | None = None, key: KeySource | None = None) -> "DataPaths":
        """Return the places for a data folder. Its lake and the key of its state are inside, unless they are given."""
        folder = data.absolute()
        lake = open_lake(folder) if lake is None else lake
        return DataPaths(folder, lake, checkpoint_store(folder, lake), key or state_key("", folder))

    @property
    def log(self) -> Path:
        return self.data / "log"

    @property
    def database(self) -> Path:
        """Return the gateway's state, with the keys of devices."""
        return self.data / "state.db"

    @property
    def bucket_states(self) -> Store:
        return self.checkpoint.at("carry")

    @property
    def spark_checkpoint(self) -> Path:
        """Return Spark's own part of the checkpoint, which Spark writes itself."""
        return self.data / FOLDER / "spark"

    @property
    def spark_offsets(self) -> Path:
        return self.spark_checkpoint / "offsets"
