"""Write manifests: what a batch is about to do to the tables, before the first of them changes.

After a crash between two tables, the manifest is applied again; tables that have the batch already are skipped. The
newest manifests are kept for some time: a power failure may undo commits that were not on disk yet.

    checkpoints/tables/intents/000000000042.json
    checkpoints/tables/intents/000000000042-0000.buckets     the states after the batch, in another number of buckets

A manifest also counts what the tasks of its batch read. These counts become rows of silver.batches, which the ledger
compares with what the gateway counted when it wrote the log, and with the rows that are in the tables.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import DecodeError, Struct, field, json
from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.store import Store
from wirelake.lake.tables import BATCHES, DAY
from wirelake.limits import PIPELINE_MANIFESTS_KEPT
from wirelake.log.segments.reader import Gap
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.time_ranges import HOUR_US

RECORDS_LOST: Final = "records_lost"  # damaged in the log
RECORDS_REMOVED: Final = "records_removed"  # by retention, before they were read
# What a limit made the pipeline forget or give up; all other counts are for information only.
DROPPED: Final = frozenset(
    {
        "acks_forgotten",
        "calls_given_up",
        "commands_given_up",
        "deliveries_given_up",
        "layouts_forgotten",
        "sessions_given_up",
        "tally_hours_joined",
        RECORDS_LOST,
        RECORDS_REMOVED,
    }
)
_FOLDER: Final = "intents"
_SUFFIX: Final = ".json"
_REBUCKETED: Final = ".buckets"
_Struct = TypeVar("_Struct", bound=Struct)


class ReadCount(Struct, frozen=True, array_like=True):
    """Count the records of one hour and protocol that were read."""

    hour_us: int
    protocol: str
    records: int
    received: int  # frames in, with those that the gateway quarantined
    sent: int  # frames out


class StateFile(Struct, frozen=True, array_like=True):
    """Name a file of a bucket's state."""

    name: str
    bytes: int = 0
    crc: int = -1  # CRC-32 of the file; -1 if it was written before there were any


class Manifest(Struct, frozen=True, kw_only=True):
    """Describe what a batch does. The names in the file are those of its first version."""

    batch: int
    from_seq: int
    until_seq: int
    now_us: int  # the batch's time: the latest `at` in it
    rows: int  # records; fewer than the seqs, if some are lost
    poison: list[int] = []  # records that broke the decoder, now in quarantine
    gaps: list[Gap] = []  # records that are lost in the log
    removed: int = 0  # records before `from_seq` that retention removed before they were read
    read: list[ReadCount] = []  # what its tasks read, by hour and protocol
    counts: dict[str, int] = {}  # what was dropped, and what has no row of its own
    totals: dict[str, int] = {}  # the same since the tables were created
    complete_from_us: int | None = field(default=None, name="accounted_us")  # silver.batches has whole hours from here
    adds: dict[str, list[FileAction]] = field(default_factory=dict)  # by table
    removes: dict[str, list[FileAction]] = field(default_factory=dict)
    open: dict[str, dict[int, list[FileAction]]] = field(default_factory=dict)  # table → bucket → files of open rows
    whole_states: dict[int, str] = field(default_factory=dict, name="carry")  # of earlier versions: one file each
    states: dict[int, list[StateFile]] = field(default_factory=dict)  # bucket → files, in order
    buckets: int = 0  # how many there are; 0: as many as when the stream was created
    rebucketed: bool = False  # since the batch: its `open` does not belong to these buckets
    partials: str | None = None  # file of the checkpoint with what the gold tables gain; None in older versions

    @property
    def bucket_states(self) -> dict[int, list[StateFile]]:
        """Return the files of each bucket's state, in order."""
        return {bucket: [StateFile(name)] for bucket, name in self.whole_states.items()} | self.states

    @property
    def state_names(self) -> set[str]:
        return {file.name for files in self.bucket_states.values() for file in files}

    @property
    def paths(self) -> set[str]:
        """Return the paths in the lake of the files that the batch adds."""
        return {file.lake_path for files in self.adds.values() for file in files}

    @property
    def open_rows(self) -> dict[str, int]:
        """Return how many open rows each table has after the batch."""
        return {
            name: sum(file.rows for files in buckets.values() for file in files)
            for name, buckets in sorted(self.open.items())
        }

    @property
    def tables(self) -> list[str]:
        """Return the tables that the batch changes, bronze first."""
        return sorted(self.adds.keys() | self.removes.keys())


def next_batch(last: Manifest | None) -> int:
    """Return the number of the batch after this one."""
    return 0 if last is None else last.batch + 1


class Rebucketing(Struct, frozen=True):
    """Describe the states after a batch in another number of buckets. The newest one of a batch counts."""

    batch: int
    buckets: int
    states: dict[int, list[StateFile]]


class ManifestStore:
    """Store the manifests of a checkpoint."""

    def __init__(self, checkpoint: Store) -> None:
        self._store = checkpoint

    def create(self, manifest: Manifest) -> Manifest:
        """Write the manifest of a batch, unless there is one. Return the one that counts, which is durable.

        Of two drivers that compute the same batch, both commit the files of the first.
        """
        if self._store.create(_path(manifest.batch), json.encode(manifest)):
            return manifest
        found = self._read(manifest.batch)
        if (found.from_seq, found.until_seq) != (manifest.from_seq, manifest.until_seq):
            raise StorageError(
                f"another pipeline wrote batch {manifest.batch} with records {found.from_seq} to {found.until_seq - 1} "
                f"and this one with {manifest.from_seq} to {manifest.until_seq - 1}: run one pipeline for each lake, "
                f"with the data folder that belongs to the checkpoint in {self._store}"
            )
        return found

    def rewrite(self, manifest: Manifest) -> None:
        """Replace a manifest: only a migration does so, while nobody else works on the stream."""
        self._store.write(_path(manifest.batch), json.encode(manifest))

    def get(self, batch: int) -> Manifest | None:
        try:
            return self._read(batch)
        except FileNotFoundError:
            return None

    def last(self) -> Manifest | None:
        """Return the newest manifest, with the states as they are now."""
        names = self._names()
        batches = _batches(names)
        found = self.get(batches[-1]) if batches else None
        newest = max((name for name in names if found and name.startswith(_rebucketing(found.batch))), default=None)
        if found is None or newest is None:
            return found
        now = self._decode(f"{_FOLDER}/{newest}", Rebucketing)
        return replace(found, buckets=now.buckets, whole_states={}, states=now.states, rebucketed=True)

    def next_rebucketing(self, batch: int) -> str:
        """Return a name for another division of the states after a batch."""
        prefix = _rebucketing(batch)
        known = [name for name in self._names() if name.startswith(prefix)]
        return f"{prefix}{len(known):04d}"

    def rebucket(self, name: str, rebucketing: Rebucketing) -> bool:
        """Write a division of the states, unless another process has written one of this name. Return whether it is."""
        return self._store.create(f"{_FOLDER}/{name}{_REBUCKETED}", json.encode(rebucketing))

    def since(self, batch: int) -> list[Manifest]:
        """Return the manifests after this batch, in order."""
        return [self._read(each) for each in self.batches() if each > batch]

    def batches(self) -> list[int]:
        return _batches(self._names())

    def _names(self) -> list[str]:
        return [path.removeprefix(f"{_FOLDER}/") for path in self._store.list(_FOLDER)]

    def prune(self, needed: int) -> list[Manifest]:
        """Remove old manifests, but none after the batch `needed`. Return those removed."""
        names = self._names()
        batches = _batches(names)
        old = [batch for batch in batches[:-PIPELINE_MANIFESTS_KEPT] if batch <= needed]
        removed = [self._read(batch) for batch in old]
        for batch in old:
            self._store.delete(_path(batch))
        kept = batches[len(old) :]
        for name in names:
            if name.endswith(_REBUCKETED) and kept and int(name.partition("-")[0]) < kept[0]:
                self._store.delete(f"{_FOLDER}/{name}")
        return removed

    def _read(self, batch: int) -> Manifest:
        return self._decode(_path(batch), Manifest)

    def _decode(self, path: str, kind: type[_Struct]) -> _Struct:
        try:
            return json.decode(self._store.read(path), type=kind)
        except DecodeError as error:
            name = self._store.name(path)
            raise StorageError(f"{name} is not a manifest: {error}; restore the checkpoint from a backup") from error


def _path(batch: int) -> str:
    return f"{_FOLDER}/{batch:012d}{_SUFFIX}"


def _rebucketing(batch: int) -> str:
    return f"{batch:012d}-"


def _batches(names: list[str]) -> list[int]:
    return sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))


class ReadCounter:
    """Count what a task reads from the log."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], tuple[int, int, int]] = {}

    def add(self, batch: Any) -> None:
        is_frame, is_in = pc.equal(batch["event"], "frame"), pc.equal(batch["direction"], "in")
        received = pc.and_(pc.or_(is_frame, pc.equal(batch["event"], "quarantine")), is_in)
        sent = pc.and_(is_frame, pc.equal(batch["direction"], "out"))
        columns = {
            "hour": pc.divide(batch["at"].cast(pa.int64()), HOUR_US),
            "protocol": batch["protocol"],
            "received": received.cast(pa.int64()),
            "sent": sent.cast(pa.int64()),
        }
        found = (
            pa.table(columns)
            .group_by(["hour", "protocol"])
            .aggregate([([], "count_all"), ("received", "sum"), ("sent", "sum")])
        )
        names = ("hour", "protocol", "count_all", "received_sum", "sent_sum")
        for hour, protocol, *counts in zip(*(found[name].to_pylist() for name in names), strict=True):
            key = (hour * HOUR_US, protocol)
            before = self._counts.get(key, (0, 0, 0))
            self._counts[key] = tuple(one + other for one, other in zip(before, counts, strict=True))

    def counts(self) -> list[ReadCount]:
        return [ReadCount(*key, *counts) for key, counts in sorted(self._counts.items())]


def sum_read_counts(reports: list[list[ReadCount]]) -> list[ReadCount]:
    """Return the sum of what several tasks read."""
    sums: dict[tuple[int, str], list[int]] = {}
    for count in (each for report in reports for each in report):
        own = sums.setdefault((count.hour_us, count.protocol), [0, 0, 0])
        for index, more in enumerate((count.records, count.received, count.sent)):
            own[index] += more
    return [ReadCount(*key, *counts) for key, counts in sorted(sums.items())]


def batch_rows(manifest: Manifest, counts: Mapping[str, int], complete_from_us: int) -> Any:
    """Return the rows of silver.batches. Hours before `complete_from_us` were not counted from their beginning."""
    rows: list[dict[str, Any]] = []
    common = {"batch": manifest.batch, "from_seq": manifest.from_seq, "until_seq": manifest.until_seq}
    for count in manifest.read:
        is_complete = count.hour_us >= complete_from_us
        rows.append(
            {
                **common,
                "hour": count.hour_us,
                "protocol": count.protocol,
                "records": count.records if is_complete else None,
                "received": count.received if is_complete else None,
                "sent": count.sent if is_complete else None,
            }
        )
    hour_us = manifest.now_us // HOUR_US * HOUR_US
    for what, times in sorted(counts.items()):
        if what in DROPPED and times:
            rows.append({**common, "hour": hour_us, "protocol": "", "what": what, "dropped": times})
    table = pa.Table.from_pylist(rows, pa.schema([field for field in BATCHES.schema if field.name != "day"]))
    return table.append_column("day", table["hour"].cast(DAY)).select(BATCHES.schema.names)
