"""Provide the data source `wirelake`: the log as a DataFrame in any Spark session, as a batch or as a stream.

    spark.dataSource.register(WirelakeSource)
    spark.read.format("wirelake").load("data")

| option | |
| --- | --- |
| `view` | `frames` (the default; records as they are), `messages` (decoded), `packets` (parts of commands), `spans` |
| `columns` | comma-separated columns of the view: leaving columns out saves most of the cost |
| `from_seq`, `until` | the first record, and the one before which to stop; a stream has no end |
| `gone` | `fail` (the default), or `oldest`: what to do if retention has removed the first record |
| `damaged` | `fail` (the default), or `skip`: what to do with records that are damaged on disk |
| `maxRows`, `maxBytes` | how much a stream reads in one batch, in whole blocks of the log |
| `partitionRows` | approximate number of records for one task |
| `log` | which log to read, if there are copies of several in a store |
| `store.NAME` | an option of the store: endpoint, region, credentials that are not in the environment |

The path is a data folder, or the URL of a lake into which the pipeline copies sealed segments: `s3://bucket/prefix`.
Decoded views are decoded as they are read: the bytes do not pass through the JVM first.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import astuple
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from wirelake.errors import GoneError, InputError, LossError
from wirelake.lake.store import Store, open_store
from wirelake.limits import PIPELINE_BATCH_BYTES, PIPELINE_BATCH_ROWS
from wirelake.log.interface import SCHEMA
from wirelake.log.segments.block_index import BlockIndex
from wirelake.pipeline.ingest.log_copies import FOLDER, LogCopies, read_store_file
from wirelake.pipeline.ingest.spans import SPAN_SCHEMA, LogIndex, Span, SpanReader, batch_end, plan_spans
from wirelake.pipeline.ingest.stored_index import StoredIndex

DECODED_VIEWS: Final = ("messages", "packets")
VIEWS: Final = ("frames", "spans", *DECODED_VIEWS)
GONE: Final = ("fail", "oldest")
DAMAGED: Final = ("fail", "skip")
_STORE: Final = "store."  # begins the options of the store


class SourceOptions:
    """Parse and check the options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        path = options.get("path")
        if not path:
            raise InputError('the source wirelake needs the data folder: .load("data")')
        self.store = _log_store(path, options) if "://" in path else None
        folder = Path(path)
        self.folder = folder / "log" if (folder / "log").is_dir() else folder
        self.log = options.get("log", "")
        self._copies_file = options.get("copies", "")  # of the pipeline: where the log is copied to, see LogCopies
        self.view = _choice(options, "view", VIEWS)
        self.columns = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
        self.gone = _choice(options, "gone", GONE)
        self.skip_damaged = _choice(options, "damaged", DAMAGED) == "skip"
        first = _number(options, "from_seq")
        self.from_seq = _number(options, "startingOffset") if first is None else first
        self.until_seq = _number(options, "until")
        self.rows_max = _number(options, "maxRows") or PIPELINE_BATCH_ROWS
        self.bytes_max = _number(options, "maxBytes") or PIPELINE_BATCH_BYTES
        self.partition_rows = _number(options, "partitionRows")

    def open_index(self) -> LogIndex:
        return BlockIndex(self.folder) if self.store is None else StoredIndex(self.store, self.log)

    def open_copies(self) -> LogCopies | None:
        """Return what copies the log for executors that do not see it; None if they do."""
        return LogCopies(self.folder, read_store_file(Path(self._copies_file))) if self._copies_file else None

    def first_seq(self, from_seq: int, survey: LogIndex) -> int:
        """Return the record to begin with: this one or, if the option says so, the oldest that is left."""
        oldest = survey.oldest_seq
        if from_seq >= oldest:
            return from_seq
        if self.gone == "fail":
            raise GoneError(from_seq, oldest)
        return oldest

    def spans(self, survey: LogIndex, from_seq: int, until_seq: int) -> list[Span]:
        spans = plan_spans(survey, from_seq, until_seq, self.partition_rows)
        return [survey.locate(span) for span in spans] if isinstance(survey, StoredIndex) else spans

    def read(self, span: Span) -> Iterator[Any]:
        if self.view == "spans":
            yield pa.record_batch([[value] for value in astuple(span)], schema=SPAN_SCHEMA)
            return
        reader = SpanReader(self.folder, span, copies=self.store, skip_damaged=self.skip_damaged)
        if self.view == "frames":
            yield from reader.columns(self.columns)
            return
        decode = decoded_view(self.view)
        for batch in reader.batches():
            yield decode(batch).select(self.columns) if self.columns else decode(batch)

    @property
    def schema(self) -> Any:
        full = {"frames": SCHEMA, "spans": SPAN_SCHEMA}.get(self.view) or decoded_schema(self.view)
        unknown = [name for name in self.columns if name not in full.names]
        if unknown or (self.columns and self.view == "spans"):
            raise InputError(f"the view {self.view} has no column {', '.join(unknown or self.columns)} to select")
        return pa.schema([full.field(name) for name in self.columns]) if self.columns else full


class WirelakeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "wirelake"

    def schema(self) -> StructType:
        return from_arrow_schema(SourceOptions(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return WirelakeReader(SourceOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return WirelakeStreamReader(SourceOptions(self.options))


class _Partition(InputPartition):
    def __init__(self, span: Span) -> None:
        super().__init__(astuple(span))

    @property
    def span(self) -> Span:
        return Span(*self.value)


class WirelakeReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options, survey = self._options, self._options.open_index()
        oldest, end = survey.oldest_seq, survey.next_seq
        first = oldest if options.from_seq is None else options.first_seq(options.from_seq, survey)
        end = end if options.until_seq is None else min(end, options.until_seq)
        return [_Partition(span) for span in options.spans(survey, first, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Partition)  # noqa: S101 (for the type checker)
        return self._options.read(partition.span)


class WirelakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read the log as a stream. An offset is the seq of the first record that was not read yet."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._survey: LogIndex | None = None
        self._copies: LogCopies | None = None
        self._end_seq: int | None = None  # of availableNow

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        first = self._options.from_seq
        return {"seq": self._log.oldest_seq if first is None else self._options.first_seq(first, self._log)}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        from_seq, end = start["seq"], self._log.next_seq
        if from_seq > end:
            raise LossError(
                f"the checkpoint is at record {from_seq}, but the log in {self._options.folder} ends at {end}: it was "
                "deleted, truncated, or restored from an older copy, and new records would be ignored"
            )
        if self._end_seq is not None:
            end = min(end, self._end_seq)
        if isinstance(limit, ReadAllAvailable):
            return {"seq": max(from_seq, end)}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        first = min(self._options.first_seq(from_seq, self._log), end)
        return {"seq": max(from_seq, batch_end(self._log, first, end, rows_max, self._options.bytes_max))}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_max)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"seq": self._log.next_seq}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end_seq = self._log.next_seq

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        if end["seq"] <= start["seq"]:
            return []
        spans = self._options.spans(self._log, self._options.first_seq(start["seq"], self._log), end["seq"])
        if self._copies is None:
            self._copies = self._options.open_copies()
        return [_Partition(span) for span in (spans if self._copies is None else self._copies.publish(spans))]

    def commit(self, end: dict[str, int]) -> None:
        """Remove copies of the log that only earlier batches needed. Called by Spark, one batch later."""
        if self._copies is not None:
            self._copies.remove_read(end["seq"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Partition)  # noqa: S101 (for the type checker)
        return self._options.read(partition.span)

    @property
    def _log(self) -> LogIndex:
        if self._survey is None:
            self._survey = self._options.open_index()
        return self._survey

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options only: executors need nothing else."""
        return {"_options": self._options, "_survey": None, "_copies": None, "_end_seq": None}


def _log_store(url: str, options: Mapping[str, str]) -> Store:
    of_store = {name.removeprefix(_STORE): options[name] for name in options if name.startswith(_STORE)}
    return open_store(url, of_store).at(FOLDER)


def _choice(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0])
    if value not in known:
        raise InputError(f"the source wirelake has no {name} {value!r}: use one of {', '.join(known)}")
    return value


def _number(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None or value == "":
        return None
    if not value.isdecimal():
        raise InputError(f"the option {name} of the source wirelake must be a number, not {value!r}")
    return int(value)


def decoded_schema(view: str) -> Any:
    """Return the columns of a view."""
    from wirelake.pipeline.ingest.decode import MESSAGES, PACKETS  # noqa: PLC0415 (loads NumPy)

    return signed({"messages": MESSAGES, "packets": PACKETS}[view])


def signed(schema: Any) -> Any:
    """Return a schema for Spark, which has no unsigned numbers: a byte becomes a short."""
    return pa.schema([field.with_type(pa.int16()) if field.type == pa.uint8() else field for field in schema])


def decoded_view(view: str) -> Callable[[Any], Any]:
    """Return a function from records of the log to rows of the view."""
    from wirelake.pipeline.ingest.decode import decode_batch, decode_packets  # noqa: PLC0415 (loads NumPy)

    schema = decoded_schema(view)
    if view == "packets":  # cheaper than by way of messages
        return lambda batch: decode_packets(batch).cast(schema)
    return lambda batch: decode_batch(batch).messages.cast(schema)
