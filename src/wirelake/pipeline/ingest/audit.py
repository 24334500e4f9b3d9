"""Turn records of who did what into rows of silver.audit."""

from typing import Any

import pyarrow as pa

from wirelake.lake.tables import AUDIT, DAY
from wirelake.log.audit import audit_rows


def rows_of(batch: Any) -> Any:
    """Return the records of a batch of the log that belong to the audit, in their order, as rows of the table."""
    rows = audit_rows(batch)
    return pa.record_batch([*rows.columns, rows["received_at"].cast(DAY)], AUDIT.schema)
