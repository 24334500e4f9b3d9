"""Pair the calls that are plain: a request, then its only response, both in the batch. For the rest see `calls.py`.

On a session and under a correlation, requests and responses of a plain run take turns, beginning with a request. Then
each response answers the request before it, whatever else the session does. Columns are enough to see that.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import CALLS
from wirelake.pipeline.stateful.bucket_state import with_partition_columns
from wirelake.pipeline.stateful.events import EVERY

REQUEST: Final = "request"
RESPONSE: Final = "response"
_COLUMNS: Final = [name for name in CALLS.schema.names if name != "day"]


def split_pairs(events: pa.Table, open_sessions: Any, age_us: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows of plain calls, and the events that are part of none.

    `events` are sorted by session and seq. `open_sessions` have requests of an earlier batch; a request that is older
    than `age_us` is not answered any more.
    """
    events = events.combine_chunks()
    order, first = _runs(events)
    if not len(order):
        return _rows(events, order, order), events
    plain = _is_plain(events, order, first, open_sessions, age_us)
    requests, responses = order[plain][0::2], order[plain][1::2]
    left = np.ones(len(events), np.bool_)
    left[requests] = left[responses] = False
    return _rows(events, requests, responses), events.filter(pa.array(left))


def _runs(events: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the events by session and correlation, in the order of the log, and where a new pair of these begins."""
    sessions, correlations = (_codes(events[name])[0] for name in ("key", "correlation"))
    runs = sessions * (correlations.max(initial=0) + 1) + correlations
    order = np.argsort(runs, kind="stable")
    ordered = runs[order]
    return order, np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(order) else order


def _is_plain(events: pa.Table, order: np.ndarray, first: np.ndarray, open_sessions: Any, age_us: int) -> np.ndarray:
    """Return which events, in this order, are part of a plain run."""
    sizes = np.diff(first, append=len(order))
    turn = (np.arange(len(order)) - np.repeat(first, sizes)) % 2  # 0: of a request
    is_request, is_response = (_mask(pc.equal(events["name"], name))[order] for name in (REQUEST, RESPONSE))
    fits = np.where(turn == 0, is_request, is_response)
    single = _mask(pc.and_(_is_none_or(events["number"], 1), _is_none_or(events["until"], 0)))[order]
    at_us = events["at"].cast(pa.int64()).to_numpy()[order]
    too_old = np.zeros(len(order), np.bool_)
    too_old[1:] = (turn[1:] == 1) & (at_us[:-1] + age_us <= at_us[1:])
    in_turn = np.logical_and.reduceat(fits & single & ~too_old, first) & (sizes % 2 == 0)
    undisturbed = _is_undisturbed(events, is_request | is_response, order, open_sessions)
    return np.asarray(np.repeat(in_turn, sizes) & undisturbed)


def _is_undisturbed(events: pa.Table, is_call: np.ndarray, order: np.ndarray, open_sessions: Any) -> np.ndarray:
    """Return which events are of sessions that do not end in this batch, and have nothing open from before."""
    codes, sessions = _codes(events["key"])
    disturbed = _mask(pc.or_(pc.is_in(sessions, value_set=open_sessions), pc.equal(sessions, EVERY)))
    disturbed = disturbed.copy()
    disturbed[codes[order][~is_call]] = True
    return np.asarray(~disturbed[codes[order]])


def _rows(events: pa.Table, requests: np.ndarray, responses: np.ndarray) -> pa.Table:
    """Return final rows of silver.calls."""
    asked, answered = events.take(pa.array(requests)), events.take(pa.array(responses))
    delay_us = pc.subtract(answered["at"].cast(pa.int64()), asked["at"].cast(pa.int64()))
    known = pc.not_equal(asked["identity"], "")
    columns = [
        *(asked[name] for name in ("seq", "at", "node", "protocol", "key")),
        pc.if_else(known, asked["identity"], answered["identity"]),  # a login comes before its identity is known
        asked["service"],
        asked["op"],
        pc.if_else(pc.not_equal(asked["correlation"], ""), asked["correlation"], None),
        asked["at"],
        answered["at"],
        pc.divide(pc.max_element_wise(delay_us, 0).cast(pa.float64()), 1000.0),
        pa.repeat(pa.scalar(1, pa.int64()), len(asked)),
        answered["status"],
    ]
    return with_partition_columns(CALLS, pa.Table.from_arrays(columns, names=_COLUMNS))


def _codes(column: Any) -> tuple[np.ndarray, Any]:
    """Return a number for each value, and the distinct values. A null is a value of its own."""
    encoded = column.combine_chunks().dictionary_encode("encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _is_none_or(column: Any, value: int) -> Any:
    return pc.fill_null(pc.equal(column, value), fill_value=True)


def _mask(column: Any) -> np.ndarray:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(array.to_numpy(zero_copy_only=False))
