"""Time cut into minutes, and how long things took."""

from pyspark.sql import Column
from pyspark.sql import functions as f


def minute(at: str) -> Column:
    return f.date_trunc("minute", f.col(at))


def percentiles(of: str) -> list[Column]:
    """Exact, over the rows that have a value."""
    return [f.percentile(of, f.lit(share)).alias(f"p{share * 100:.0f}_ms") for share in (0.5, 0.95, 0.99)]


def counted_where(condition: Column) -> Column:
    return f.count(f.when(condition, 1))
