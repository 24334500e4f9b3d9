"""Decode equal frames once: an answer like OK, a heartbeat, a notification that goes to many subscribers."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from wirelake.protocols.columnar import DecodedFrames, decode_each
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reading_columns import READING_COLUMNS

_WORTHWHILE: Final = 0.8  # share of distinct frames up to which it costs less to look for equal ones


def decode_distinct(protocol: Protocol, frames: Any, from_server: Any) -> DecodedFrames:
    """Return what `decode_each` returns, which depends on the bytes of a frame and on its sender only."""
    encoded = frames.dictionary_encode("encode")
    if len(encoded.dictionary) > len(frames) * _WORTHWHILE:
        return decode_each(protocol, frames, from_server)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) * 2 + from_server
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    found = decode_each(protocol, frames.take(pa.array(first)), from_server[first])
    message_of = np.full(len(first), -1)
    message_of[found.rows] = np.arange(len(found.rows))
    messages = message_of[place]
    is_good = messages >= 0
    by_place = {refused.row: refused for refused in found.refused}
    return DecodedFrames(
        np.flatnonzero(is_good),
        found.messages.take(pa.array(messages[is_good])),
        [replace(by_place[int(place[row])], row=row) for row in np.flatnonzero(~is_good).tolist()],
        readings=None if found.readings is None else _spread(found.readings, place, len(first)),
    )


def _spread(readings: Any, place: Any, count: int) -> Any:
    """Return the readings of each frame. `place` is the index of its bytes among the distinct ones."""
    of_place = readings["row"].to_numpy()
    starts, sizes = np.searchsorted(of_place, np.arange(count)), np.bincount(of_place, minlength=count)
    own = sizes[place]
    rows = np.repeat(np.arange(len(place)), own)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(own) - own, own)
    spread = readings.take(pa.array(starts[place][rows] + within))
    return spread.set_column(0, READING_COLUMNS.field("row"), pa.array(rows, pa.int64()))
