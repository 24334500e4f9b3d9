"""What a span of the log contributes to everything that is put together over time, sorted into buckets."""

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.pipeline.decode.decoded import Decoded
from wirelake.pipeline.memory.calls import call_items
from wirelake.pipeline.memory.commands import fragment_items
from wirelake.pipeline.memory.deliveries import delivery_items
from wirelake.pipeline.memory.item import CALL, ITEMS, RECORD, SESSION, from_json, in_buckets
from wirelake.pipeline.memory.records import record_items
from wirelake.pipeline.memory.sessions import session_items, start_items
from wirelake.pipeline.memory.tallies import tally_items

__all__ = ["ITEMS", "items_of"]


def items_of(batch: pa.RecordBatch, decoded: Decoded, buckets: int) -> pa.RecordBatch:
    """`batch` is of the log, in its order; `decoded` is what it says."""
    starts = _starts(batch)
    items = pa.concat_tables(
        [
            fragment_items(decoded.packets),
            call_items(batch, decoded.messages),
            delivery_items(batch),
            record_items(batch, decoded.messages),
            session_items(batch),
            tally_items(batch, decoded.messages, decoded.quarantine),
            *(start_items(kind, starts) for kind in (CALL, RECORD, SESSION)),
        ]
    )
    placed = in_buckets(items, buckets).combine_chunks().to_batches()
    return placed[0] if placed else pa.RecordBatch.from_pylist([], ITEMS)


def _starts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The counters with which gateways began."""
    counters = batch.filter(pc.equal(batch["event"], "counters"))
    return counters.filter(
        pa.array([bool(from_json(note).get("start")) for note in counters["note"].to_pylist()], pa.bool_())
    )
