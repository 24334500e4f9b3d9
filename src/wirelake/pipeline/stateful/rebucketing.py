"""Divide the state of a stream into another number of buckets, between two batches.

Each row goes to the bucket of its key. Rows for every bucket, which are the same in all of them, are copied. The clock
is the latest of all buckets. The open rows in the tables are the same before and after; the next batch writes them
again, because their files belong to buckets.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.store import Store
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.stateful.bucket_state import CLOCK, BucketState, StateChange, clock_of, clock_state
from wirelake.pipeline.stateful.events import EVERY, bucket_of
from wirelake.pipeline.stateful.state_files import read_state, state_name, write_state


def rebucket_files(
    folder: Store, states: Mapping[int, Sequence[StateFile]], buckets: int, batch: str
) -> dict[int, list[StateFile]]:
    """Write the states of so many buckets. `batch` names the files. Return them by bucket."""
    before = [read_state(folder, states[bucket]) for bucket in sorted(states)]
    written = {}
    for bucket, rows in enumerate(rebucket(before, buckets)):
        change = StateChange(np.zeros(0, np.int64), rows)
        written[bucket] = write_state(folder, state_name(bucket, buckets, batch), BucketState(), [], change)
    return written


def rebucket(states: Sequence[BucketState], buckets: int) -> list[pa.Table]:
    """Return the state of each of so many buckets, in the order of kinds."""
    clock_us = max((clock_of(state) for state in states), default=0)
    parts: list[list[pa.Table]] = [[clock_state(clock_us)] for _ in range(buckets)]
    for kind in dict.fromkeys(kind for state in states for kind in state.kinds if kind != CLOCK):
        common: pa.Table | None = None
        for state in states:
            rows = state.of_kind(kind).peek()
            is_common = pc.equal(rows["key"], EVERY)
            if common is None and pc.any(is_common).as_py():
                common = rows.filter(is_common)
            rows = rows.filter(pc.invert(is_common))
            targets = np.array([bucket_of(key, buckets) for key in rows["key"].to_pylist()], np.int64)
            for bucket in np.unique(targets).tolist():
                parts[bucket].append(rows.filter(pa.array(targets == bucket)))
        for of_bucket in parts if common is not None else ():
            of_bucket.append(common)
    return [pa.concat_tables(of_bucket) for of_bucket in parts]
