"""Views of the log that are decoded as they are read: no trip through the JVM before the bytes are understood."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

DECODED_VIEWS: Final = ("messages", "packets")


def decoded_schema(view: str) -> Any:
    """The columns of a view."""
    from wirelake.pipeline.decode import decoded  # noqa: PLC0415 (loads every codec)

    return signed({"messages": decoded.MESSAGES, "packets": decoded.PACKETS}[view])


def signed(schema: Any) -> Any:
    """Spark has no unsigned numbers: a byte becomes a short."""
    return pa.schema([field.with_type(pa.int16()) if field.type == pa.uint8() else field for field in schema])


def decoded_view(view: str) -> Callable[[Any], Any]:
    """From records of the log to those of the view."""
    from wirelake.pipeline.decode.batch import decode_batch, decode_packets  # noqa: PLC0415 (loads every codec)

    schema = decoded_schema(view)
    if view == "packets":  # without the work for messages
        return lambda batch: decode_packets(batch).cast(schema)
    return lambda batch: decode_batch(batch).messages.cast(schema)
