"""Open the log and the state of a data folder together, and check that they belong together.

The log, the state and the pipeline's checkpoint have the same id. The state stores the position in the log that it
corresponds to, and how much of the log was on disk by then. So a start notices a log or a state that was deleted,
truncated, exchanged or restored from an older copy. What the state lacks and the log has is replayed; this also repairs
the difference of a few records, in either direction, that a crash leaves. What cannot be restored is a loss, and the
gateway refuses to start unless it was started with `--accept-loss`.
"""

import logging
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json

from wirelake.config import LogSection
from wirelake.errors import LossError, StorageError
from wirelake.key_source import KeySource
from wirelake.lake.progress import Checkpoint, read_checkpoint
from wirelake.limits import LOG_LINGER_S, MIB
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.high_watermark import read_data_id, write_data_id
from wirelake.log.segments.log import SegmentLog, clock_us
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.recovery import skip_records
from wirelake.log.segments.settings import LogSettings
from wirelake.state.batch import LogPosition, pop_unlogged, read_log_position
from wirelake.state.database import Database, storage_error
from wirelake.state.replay import REPLAYED_EVENTS, LogReplay, ReplayReport
from wirelake.state.store import StateStore

_log = logging.getLogger(__name__)
_REPLAYED: Final = pa.array([*REPLAYED_EVENTS, "state"])
_NOUNS: Final = {
    "device_seals": "replay protection of devices",
    "values": "redis values",
    "records": "sisdb records",
    "series": "sisdb records",
    "layouts": "sisdb records",
}
_ID_BYTES: Final = 16


class Stores(NamedTuple):
    log: SegmentLog
    state: StateStore
    position: LogPosition  # of the log, from which the state follows it
    unlogged: list[str]  # tables that were changed while no gateway ran, so that the log has no record of it
    accepted: list[str]  # losses, as sentences
    epoch: str


def log_settings(log: LogSection) -> LogSettings:
    """Return the settings of the log as the section of the settings file has them."""
    return LogSettings(
        fsync=log.fsync,
        segment_bytes=log.segment_mb * MIB,
        keep_days=float(log.keep_days),
        keep_bytes=log.keep_bytes or None,
        disk_bytes_max=log.disk_bytes_max or None,
        linger_s=LOG_LINGER_S,
    )


def open_stores(
    folder: Path,
    settings: LogSettings,
    *,
    key: KeySource | None = None,
    accept_loss: bool = False,
    now_us: Callable[[], int] = clock_us,
) -> Stores:
    """Open both; `key` is that of the state, see `Database`.

    Raise LossError if confirmed data is missing and cannot be restored, unless `accept_loss` is set.
    """
    return _Opener(folder, settings, key, accept_loss, now_us).run()


class _Opener:
    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        key: KeySource | None,
        accept_loss: bool,
        now_us: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._key = key
        self._now_us = now_us
        self._settings = settings
        self._accept_loss = accept_loss
        self._losses: list[str] = []
        self._log_folder = folder / "log"
        self._state_file = folder / "state.db"

    def run(self) -> Stores:
        checkpoint = read_checkpoint(self._folder)
        with ExitStack() as opened:
            log = SegmentLog(self._log_folder, self._settings, now_us=self._now_us)
            opened.callback(lambda: log.close())
            had_state = _has_content(self._state_file)
            if not had_state and log.next_seq:
                self._add_loss(
                    f"state.db is missing or empty, and the log has {log.next_seq} records: identities, devices, "
                    "redis values and sisdb records are gone (topics and what was published are replayed from the log)"
                )
                self._refuse_unless_accepted()  # before an empty database is created, which would look like a state
            database = Database(self._state_file, self._key)
            opened.callback(database.close)
            try:
                database.check()
                connection = database.write_connection
                connection.execute("BEGIN IMMEDIATE")
                known = _KnownPositions(connection, had_state, read_data_id(self._log_folder), checkpoint)
                log = self._continue(log, known)
                found = self._reconcile(connection, log, known)
                connection.execute("COMMIT")
                # The checkpoint moves the id from the write-ahead log to the file itself.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise storage_error(f"{self._state_file} cannot be brought into step with the log", error) from error
            if known.log_id != known.data_id:
                write_data_id(self._log_folder, known.data_id)
            state = StateStore(database)  # closes the database itself if it fails
            opened.pop_all()
        for loss in self._losses:
            _log.warning("accepted: %s", loss)
        return Stores(log, state, *found, self._losses, database.meta("epoch"))

    def _continue(self, log: SegmentLog, known: "_KnownPositions") -> SegmentLog:
        """Return the log to continue with. If it ends before what others have read of it, and that is accepted, it
        continues behind that.
        """
        end = log.next_seq
        positions = ConsumerOffsets(self._log_folder).all().values()
        seen = max(known.durable_seq, known.pipeline_seq, *(position.seq for position in positions))
        if known.is_foreign:
            self._add_loss(
                f"state.db belongs to another data folder (id {known.state_id}; the log has {known.log_id}): nothing "
                "is known of what this log's gateway owes to whom"
            )
        elif known.is_older:
            self._add_loss("state.db was written before this log: it is an old copy, or was recreated")
        if end >= seen and not (known.has_topics_only and not end):
            return log
        self._add_loss(
            f"the log ends at record {end}, and {known.seen_by(seen)} up to {seen}: it was deleted, cut, or restored "
            "from an older copy"
            if end < seen
            else "the log is missing, and state.db has topics that were published on"
        )
        self._refuse_unless_accepted()
        next_seq = max(seen, known.next_seq)
        first = end or min(known.pipeline_seq or next_seq, next_seq)
        log.close()
        skip_records(self._log_folder, first, next_seq)
        return SegmentLog(self._log_folder, self._settings, now_us=self._now_us)

    def _reconcile(
        self, connection: sqlite3.Connection, log: SegmentLog, known: "_KnownPositions"
    ) -> tuple[LogPosition, list[str]]:
        """Replay the log into the state, inside the transaction that the caller has begun.

        Return the position to follow the log from, and the tables that changed without the log.
        """
        epoch = known.meta("epoch")
        replay = LogReplay(connection, epoch, new_ids=self._accept_loss)
        from_seq = self._first_seq(log, known)
        if from_seq is not None:
            lost_tables, rows_damaged = self._replay(replay, log, from_seq, known)
            report = replay.finish()
            self._add_losses(report, lost_tables, rows_damaged)
            if any((report.publications, report.subscriptions, report.acks, report.expired)):
                _log.info(
                    "the state was behind the log: replayed %d publications, %d subscriptions, %d acks and %d expiries",
                    *(report.publications, report.subscriptions, report.acks, report.expired),
                )
        self._refuse_unless_accepted()
        if self._losses:  # a new epoch: ids that were given out and are now unknown must not be given again
            connection.execute("UPDATE meta SET value = lower(hex(randomblob(4))) WHERE name = 'epoch'")
        unlogged = pop_unlogged(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('data_id', ?)", (known.data_id,))
        # Batch numbers start with the time, so that not even a state restored from a copy uses one twice.
        position = LogPosition(max(known.batch + 1, time.time_ns() // 1_000_000), log.next_seq, log.committed_seq)
        position.write(connection)
        return position, unlogged

    def _first_seq(self, log: SegmentLog, known: "_KnownPositions") -> int | None:
        """Return the first record to replay, or None if the state is not of this log or starts with it."""
        end, oldest = log.next_seq, log.oldest_seq
        if known.is_foreign or not end or (known.position is None and not known.log_id and known.had_state):
            return None
        if known.position is None or known.is_older:
            return oldest
        if known.next_seq < oldest:
            self._add_loss(
                f"the state ends at record {known.next_seq} of the log, which begins at {oldest}: it was restored from "
                "an old copy, and what happened between the two was removed by retention"
            )
        return max(known.next_seq, oldest)

    def _replay(
        self, replay: LogReplay, log: SegmentLog, from_seq: int, known: "_KnownPositions"
    ) -> tuple[set[str], int]:
        """Return the tables of which the state lost changes, and how many records could not be read."""
        lost_tables: set[str] = set()
        reader = LogReader(self._log_folder)
        for batch in reader.read(from_seq, log.next_seq):
            chosen = batch.filter(pc.is_in(batch["event"], value_set=_REPLAYED))
            for row in chosen.select(["event", "note", "frame", "at"]).cast(_ROWS).to_pylist():
                note: dict[str, Any] = json.decode(row["note"])
                if row["event"] != "state":
                    replay.apply(row["event"], note, row["frame"], row["at"] // 1000)
                elif known.position is not None and note["batch"] > known.batch:
                    lost_tables |= set(note["tables"])
        return lost_tables, reader.rows_lost

    def _add_losses(self, report: ReplayReport, lost_tables: set[str], rows_damaged: int) -> None:
        if lost_tables:
            nouns = ", ".join(sorted({_NOUNS.get(table, table) for table in lost_tables}))
            self._add_loss(
                f"state.db lost changes that the log cannot restore, of: {nouns} (its write-ahead log was cut, or it "
                "was restored from an older copy)"
            )
        if report.unplaced:
            self._add_loss(f"{report.unplaced} records of the log are of topics that state.db knows by other numbers")
        if report.missing and rows_damaged:
            self._add_loss(f"{report.missing} publications are neither in state.db nor readable in the log")

    def _add_loss(self, text: str) -> None:
        self._losses.append(text)

    def _refuse_unless_accepted(self) -> None:
        if self._losses and not self._accept_loss:
            raise LossError(
                f"the data folder {self._folder} is incomplete: {'; '.join(self._losses)}. Restore "
                "what is missing from a backup, or start once with --accept-loss to continue without it"
            )


class _KnownPositions:
    """Read what the state and the checkpoint know of the log."""

    def __init__(
        self, connection: sqlite3.Connection, had_state: bool, log_id: str, checkpoint: Checkpoint | None
    ) -> None:
        self._connection = connection
        self.had_state = had_state
        self.log_id = log_id
        self.state_id = self.meta("data_id") or ""
        self.position = read_log_position(connection)
        pipeline_id = checkpoint.data_id if checkpoint is not None else ""
        self.data_id = log_id or self.state_id or pipeline_id or secrets.token_hex(_ID_BYTES)
        own = checkpoint is not None and pipeline_id in {"", self.data_id}
        self.pipeline_seq = checkpoint.next_seq if checkpoint is not None and own else 0

    def meta(self, name: str) -> Any:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    @property
    def is_foreign(self) -> bool:
        return bool(self.log_id and self.state_id and self.log_id != self.state_id)

    @property
    def is_older(self) -> bool:
        """Return whether the state has no id but the log has one: the state gets its id first."""
        return bool(self.had_state and self.log_id and not self.state_id)

    @property
    def has_topics_only(self) -> bool:
        """Return whether the state stores no position in the log, but has notifications."""
        if self.position is not None:
            return False
        return bool(self._connection.execute("SELECT EXISTS (SELECT 1 FROM notifications)").fetchone()[0])

    @property
    def batch(self) -> int:
        return 0 if self.position is None else self.position.batch

    @property
    def next_seq(self) -> int:
        return 0 if self.position is None or self.is_foreign else self.position.next_seq

    @property
    def durable_seq(self) -> int:
        return 0 if self.position is None or self.is_foreign else self.position.durable_seq

    def seen_by(self, seq: int) -> str:
        """Return who has read records up to this one."""
        if seq == self.durable_seq:
            return "state.db has seen it"
        return "the pipeline has read it" if seq == self.pipeline_seq else "a consumer has read it"


_ROWS: Final = pa.schema([("event", pa.string()), ("note", pa.string()), ("frame", pa.binary()), ("at", pa.int64())])


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"{path} is not accessible: {error}") from error
