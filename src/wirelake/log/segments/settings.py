"""Configure a segment log. The defaults are those of `wirelake.toml`."""

from msgspec import Struct

from wirelake.limits import (
    LOG_BUFFERED_BYTES_MAX,
    LOG_KEEP_DAYS,
    LOG_RETENTION_EVERY_S,
    LOG_RETRY_FIRST_S,
    LOG_RETRY_MAX_S,
    LOG_SEGMENT_AGE_S,
    LOG_SEGMENT_BYTES,
)


class RetentionLimits(Struct, frozen=True):
    """Limit what is kept. Only segments that every consumer has read are ever removed."""

    keep_days: float | None = LOG_KEEP_DAYS  # older segments are removed
    keep_bytes: int | None = None  # the oldest segments are removed while there is more
    disk_bytes_max: int | None = None  # the same; if that is not enough, the log accepts no more records


class LogSettings(Struct, frozen=True, kw_only=True):
    node: str = "local"  # the column `node` of every record
    fsync: bool = True  # False: a commit means "handed to the operating system"
    segment_bytes: int = LOG_SEGMENT_BYTES
    segment_age_s: float = LOG_SEGMENT_AGE_S
    linger_s: float = 0.0  # how long a record that nobody waits for may wait for others
    buffered_bytes_max: int = LOG_BUFFERED_BYTES_MAX
    keep_days: float | None = LOG_KEEP_DAYS  # for these three, see `RetentionLimits`
    keep_bytes: int | None = None
    disk_bytes_max: int | None = None
    retention_every_s: float = LOG_RETENTION_EVERY_S
    retry_first_s: float = LOG_RETRY_FIRST_S
    retry_max_s: float = LOG_RETRY_MAX_S
