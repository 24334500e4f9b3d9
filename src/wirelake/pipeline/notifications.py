"""Rows of silver.notifications, from the records of what was published."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import NOTIFICATIONS
from wirelake.protocols.jsontext import read_json


def notifications_of(batch: Any) -> Any:
    """`batch` is of the log."""
    rows = []
    for record in batch.filter(pc.equal(batch["event"], "publish")).to_pylist():
        note = read_json(record["note"].encode())
        place = {name: record[name] for name in ("seq", "at", "node", "protocol")}
        told = {name: note[name] for name in ("id", "topic", "position", "type")}
        rows.append(place | told | {"publisher": note["by"], "content": record["frame"], "day": record["at"].date()})
    return pa.RecordBatch.from_pylist(rows, schema=NOTIFICATIONS.schema)
