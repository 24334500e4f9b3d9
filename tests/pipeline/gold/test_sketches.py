"""Test that quantiles are exact for few values and near for many, and that Spark reads and writes the same bytes."""

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.limits import GOLD_SKETCH_K
from wirelake.pipeline.gold.sketches import QUANTILES, merge_sketches, quantiles_of, sketch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERROR = 0.0133  # of a rank, with 99 % confidence
values_ms = st.floats(0, 1e6, allow_nan=False)


def sketch(values: list[float]) -> bytes:
    found = sketch_of(np.array(values, np.float64))
    assert found is not None
    return found


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@given(st.lists(values_ms, min_size=1, max_size=GOLD_SKETCH_K), st.integers(0, GOLD_SKETCH_K))
def test_quantiles_of_few_values_are_exact_however_they_were_merged(values: list[float], cut: int) -> None:
    parts = [sketch(part) for part in (values[:cut], values[cut:]) if part]
    assert quantiles_of(merge_sketches(parts)) == tuple(nearest_rank(values, share) for share in QUANTILES.values())


def test_nothing_has_no_sketch() -> None:
    assert sketch_of(np.array([], np.float64)) is None


def test_quantiles_of_many_values_are_near_and_small() -> None:
    chance = np.random.default_rng(7)
    values = chance.lognormal(3, 1, 50_000)
    merged = merge_sketches([sketch(part.tolist()) for part in np.array_split(values, 60)])  # an hour of minutes
    for found, share in zip(quantiles_of(merged), QUANTILES.values(), strict=True):
        assert (values <= found).mean() == pytest.approx(share, abs=2 * ERROR)
    assert len(merged) < 8192


def test_spark_merges_our_sketches_and_we_read_its_own(spark: "SparkSession") -> None:
    minutes = pa.table({"hour": [1, 1, 2], "latency_sketch": [sketch([1.0, 3.0]), sketch([2.0]), sketch([9.0])]})
    spark.createDataFrame(minutes).createOrReplaceTempView("minutes")
    found = spark.sql(
        "SELECT hour, kll_sketch_get_quantile_double(kll_merge_agg_double(latency_sketch), 0.5) AS p50, "
        "kll_sketch_get_n_double(kll_merge_agg_double(latency_sketch)) AS n FROM minutes GROUP BY hour ORDER BY hour"
    ).collect()
    assert [tuple(row) for row in found] == [(1, 2.0, 3), (2, 9.0, 1)]
    (made,) = spark.sql(
        "SELECT kll_sketch_agg_double(ms) AS sketch FROM VALUES (1.0D), (5.0D), (7.0D) AS t(ms)"
    ).collect()
    assert quantiles_of(merge_sketches([bytes(made.sketch), sketch([8.0])])) == (5.0, 8.0, 8.0)
