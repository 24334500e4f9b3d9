"""Sketch latencies, so that the percentiles of minutes can be merged into those of hours.

A KLL sketch of k = 200 holds up to about 5 KB. Up to k values it holds all of them, and its quantiles are exact; beyond
that the rank of a quantile is off by at most 1.33 % of the values (with 99 % confidence). The bytes are those of Apache
DataSketches: Spark reads them with `kll_sketch_get_quantile_double` and merges them with `kll_merge_agg_double`.
"""

from collections.abc import Iterable
from typing import Any, Final

from datasketches import kll_doubles_sketch

from wirelake.limits import GOLD_SKETCH_K

QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_RANKS: Final = list(QUANTILES.values())


def sketch_of(values: Any) -> bytes | None:
    """Return the sketch of a NumPy array; None if it is empty."""
    if not len(values):
        return None
    sketch = kll_doubles_sketch(GOLD_SKETCH_K)
    sketch.update(values)
    return bytes(sketch.serialize())


def merge_sketches(parts: Iterable[bytes]) -> bytes:
    """Return the sketch of the values of all parts, of which there is at least one."""
    first, *rest = parts
    sketch = kll_doubles_sketch.deserialize(first)
    for part in rest:
        sketch.merge(kll_doubles_sketch.deserialize(part))
    return bytes(sketch.serialize())


def quantiles_of(sketch: bytes) -> tuple[float, ...]:
    """Return the values at QUANTILES. Each is one of the values (nearest rank), not a mean of two."""
    return tuple(kll_doubles_sketch.deserialize(sketch).get_quantiles(_RANKS, True))
