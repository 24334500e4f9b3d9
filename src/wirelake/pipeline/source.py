"""The data source `wirelake`: the log as a DataFrame, in anybody's session, as a batch or as a stream.

    spark.dataSource.register(WirelakeSource)
    spark.read.format("wirelake").load("data")

| option | |
| --- | --- |
| `view` | `frames` (the default; records as they are), `messages` (decoded), `packets` (of apostol), `spans` |
| `columns` | names of the view's columns, by commas: the others are not handed over, which is what costs |
| `from_seq`, `until` | the first record, and the one before which it ends; a stream has no end |
| `gone` | `fail` (the default), or `oldest`: what to do when retention has removed the record to begin with |
| `damaged` | `fail` (the default), or `skip`: what to do with records that are damaged on disk |
| `maxRows`, `maxBytes` | how much a stream takes in one batch, in whole blocks of the log |
| `partitionRows` | about how many records one task reads |
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import astuple
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from wirelake.errors import GoneError, InputError, LossError
from wirelake.limits import PIPELINE_BATCH_BYTES, PIPELINE_BATCH_ROWS
from wirelake.log.interface import SCHEMA
from wirelake.log.segments.block_index import BlockIndex
from wirelake.pipeline.reading import SpanReader
from wirelake.pipeline.spans import Span, batch_end, cut
from wirelake.pipeline.views import DECODED_VIEWS, decoded_schema, decoded_view

SPANS: Final = pa.schema([(name, pa.int64()) for name in Span.__struct_fields__])
VIEWS: Final = ("frames", "spans", *DECODED_VIEWS)
GONE: Final = ("fail", "oldest")
DAMAGED: Final = ("fail", "skip")


class Options:
    """What was asked for, read and checked."""

    def __init__(self, options: Mapping[str, str]) -> None:
        path = options.get("path")
        if not path:
            raise InputError('the source wirelake needs the data folder: .load("data")')
        folder = Path(path)
        self.folder = folder / "log" if (folder / "log").is_dir() else folder
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

    def present(self, from_seq: int, survey: BlockIndex) -> int:
        """The record to begin with: the one asked for or, by option, the oldest left."""
        oldest = survey.oldest_seq
        if from_seq >= oldest:
            return from_seq
        if self.gone == "fail":
            raise GoneError(from_seq, oldest)
        return oldest

    def partitions(self, survey: BlockIndex, from_seq: int, until_seq: int) -> list[InputPartition]:
        return [_Partition(span) for span in cut(survey, from_seq, until_seq, self.partition_rows)]

    def read(self, span: Span) -> Iterator[Any]:
        if self.view == "spans":
            yield pa.record_batch([pa.array([value], pa.int64()) for value in astuple(span)], schema=SPANS)
            return
        reader = SpanReader(self.folder, span, skip_damaged=self.skip_damaged)
        if self.view == "frames":
            yield from reader.columns(self.columns)
            return
        look = decoded_view(self.view)
        for batch in reader.batches():
            yield look(batch).select(self.columns) if self.columns else look(batch)

    @property
    def schema(self) -> Any:
        whole = {"frames": SCHEMA, "spans": SPANS}.get(self.view) or decoded_schema(self.view)
        unknown = [name for name in self.columns if name not in whole.names]
        if unknown or (self.columns and self.view == "spans"):
            raise InputError(
                f"the view {self.view} has no columns to choose called {', '.join(unknown or self.columns)}"
            )
        return pa.schema([whole.field(name) for name in self.columns]) if self.columns else whole


class WirelakeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "wirelake"

    def schema(self) -> StructType:
        return from_arrow_schema(Options(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return WirelakeReader(Options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return WirelakeStreamReader(Options(self.options))


class _Partition(InputPartition):
    def __init__(self, span: Span) -> None:
        super().__init__(astuple(span))

    @property
    def span(self) -> Span:
        return Span(*self.value)


class WirelakeReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options, survey = self._options, BlockIndex(self._options.folder)
        oldest, end = survey.oldest_seq, survey.next_seq
        first = oldest if options.from_seq is None else options.present(options.from_seq, survey)
        return options.partitions(survey, first, end if options.until_seq is None else min(end, options.until_seq))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Partition)  # noqa: S101 (for the types: they are ours)
        return self._options.read(partition.span)


class WirelakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the seq of the first record that is not yet read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._survey: BlockIndex | None = None
        self._end_seq: int | None = None  # by availableNow

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        first = self._options.from_seq
        return {"seq": self._log.oldest_seq if first is None else self._options.present(first, self._log)}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        from_seq, end = start["seq"], self._log.next_seq
        if from_seq > end:
            raise LossError(
                f"the checkpoint is at record {from_seq}, but the log in {self._options.folder} ends at {end}: it was "
                "deleted, cut, or restored from an older copy, and what comes now would be ignored"
            )
        if self._end_seq is not None:
            end = min(end, self._end_seq)
        if isinstance(limit, ReadAllAvailable):
            return {"seq": max(from_seq, end)}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        first = min(self._options.present(from_seq, self._log), end)
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
        return self._options.partitions(self._log, self._options.present(start["seq"], self._log), end["seq"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Partition)  # noqa: S101 (for the types: they are ours)
        return self._options.read(partition.span)

    @property
    def _log(self) -> BlockIndex:
        if self._survey is None:
            self._survey = BlockIndex(self._options.folder)
        return self._survey

    def __getstate__(self) -> dict[str, Any]:
        """Executors need the options only."""
        return {"_options": self._options, "_survey": None, "_end_seq": None}


def _choice(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0])
    if value not in known:
        raise InputError(f"the source wirelake has no {name} {value!r}: there are {', '.join(known)}")
    return value


def _number(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None or value == "":
        return None
    if not value.isdecimal():
        raise InputError(f"the source wirelake: {name} is a number, not {value!r}")
    return int(value)
