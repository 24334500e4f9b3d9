"""What a span of the log contributes to everything that is put together over time, sorted into buckets."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.pipeline.decode.decoded import Decoded
from wirelake.pipeline.memory.calls import call_items
from wirelake.pipeline.memory.commands import fragment_items
from wirelake.pipeline.memory.deliveries import delivery_items
from wirelake.pipeline.memory.item import (
    CALL,
    DELIVERY,
    FRAGMENT,
    ITEMS,
    RECORD,
    SESSION,
    TALLY,
    from_json,
    in_buckets,
)
from wirelake.pipeline.memory.records import record_items
from wirelake.pipeline.memory.sessions import session_items, start_items
from wirelake.pipeline.memory.tallies import tally_items

__all__ = ["ITEMS", "items_of"]


def items_of(
    batch: pa.RecordBatch,
    decoded: Decoded,
    buckets: int,
    kind: str | None = None,
    read: pa.RecordBatch | None = None,
) -> pa.RecordBatch:
    """`batch` is of the log, in its order; `decoded` is what it says. All kinds of items, or one.

    `read` is what was read of the log, where `batch` leaves out records that break the decoder: these are counted too.
    """
    starts = _starts(batch)
    made: dict[str, Callable[[], pa.Table]] = {
        FRAGMENT: lambda: fragment_items(decoded.packets),
        CALL: lambda: call_items(batch, decoded.messages),
        DELIVERY: lambda: delivery_items(batch),
        RECORD: lambda: record_items(batch, decoded.messages),
        SESSION: lambda: session_items(batch),
        TALLY: lambda: tally_items(batch if read is None else read, decoded.messages, decoded.quarantine),
    }
    kinds = made if kind is None else (kind,)
    begun = [start_items(each, starts) for each in (CALL, RECORD, SESSION) if each in kinds]
    items = pa.concat_tables([*(made[each]() for each in kinds), *begun])
    placed = in_buckets(items, buckets).combine_chunks().to_batches()
    return placed[0] if placed else pa.RecordBatch.from_pylist([], ITEMS)


def _starts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The counters with which gateways began."""
    counters = batch.filter(pc.equal(batch["event"], "counters"))
    return counters.filter(
        pa.array([bool(from_json(note).get("start")) for note in counters["note"].to_pylist()], pa.bool_())
    )
