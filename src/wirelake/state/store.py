"""Everything the gateway keeps beyond the event log, by noun, in one database.

Operations change memory at once and return the `Commit` of the batch they went into: what is answered to a client
waits for it. All methods belong to the thread that opened the store; commits can be waited for from any.
"""

from pathlib import Path

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.limits import STATE_VALUES_BYTES_MAX
from wirelake.state.database import Database
from wirelake.state.devices import Devices
from wirelake.state.identities import Identities
from wirelake.state.records import Records
from wirelake.state.sessions import Sessions
from wirelake.state.topics import Topics
from wirelake.state.values import Values
from wirelake.state.writer import Writer


class StateStore:
    """Opens the database (InUseError if another process has it, VersionError if it is not for us) and fills memory."""

    def __init__(self, place: Path | Database, *, values_bytes_max: int = STATE_VALUES_BYTES_MAX) -> None:
        """`place` is the file, or the database if it is open already."""
        self.database = Database(place) if isinstance(place, Path) else place
        self.writer = Writer(self.database.writing, self._load)
        try:
            reader = self.database.reader
            self.identities = Identities(self.writer, reader)
            self.devices = Devices(self.writer, reader)
            self.topics = Topics(self.writer, reader, self.database.meta("epoch"))
            self.records = Records(self.writer, reader, self.database.meta("opened"))
            self.values = Values(self.writer, reader, values_bytes_max)
            self.sessions = Sessions(self.writer, reader)
            self._load()
        except BaseException:
            self.close()
            raise

    @property
    def trouble(self) -> StorageError | None:
        """Why the state cannot be written or read at the moment, if it cannot."""
        return self.writer.trouble or self.database.reader.trouble

    def barrier(self) -> Commit:
        """Durable when everything asked for so far is."""
        return self.writer.barrier()

    def remove_identity(self, name: str) -> Commit | None:
        """With its subscriptions and sessions, all or nothing. None where there was none."""
        self.writer.ready()
        with self.writer.whole():
            if self.identities.find(name) is None:
                return None
            self.topics.forget(name)
            self.sessions.forget(name)
            return self.identities.remove(name)

    def close(self) -> None:
        """Write what waits, then close the files. Commits that were waited for are decided by then."""
        self.writer.close()
        self.database.close()

    def _load(self) -> None:
        for noun in (self.identities, self.devices, self.topics, self.records, self.values, self.sessions):
            noun.load()
