"""Turn the readings of telemetry into rows of silver.readings.

A reading belongs to the device that its message names as the source, else to the identity of its session. It counts
only if the session is admitted: frames of a peer that has not logged in prove nothing. Such a frame is followed by the
login if its session reports and logs in with one frame, or sends both without waiting for the answer. So early
readings wait for the login of their session: see `pipeline/stateful/early_readings.py`.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import READINGS, TEXT
from wirelake.log.imported import imported_at_us

_OWN: Final = [field for field in READINGS.schema if field.name != "serial"]
EARLY_READINGS: Final = pa.schema(
    [*_OWN, pa.field("source", TEXT), pa.field("session", TEXT), pa.field("identity", TEXT)]
)
NO_READINGS: Final = pa.RecordBatch.from_pylist([], READINGS.schema)
_NONE_EARLY: Final = pa.RecordBatch.from_pylist([], EARLY_READINGS)


def admitted_readings(readings: Any) -> Any:
    """Return the rows of sessions that had logged in or were imported. `readings` has the columns EARLY_READINGS."""
    if readings is None:
        return NO_READINGS
    admitted = readings.filter(_is_admitted(readings))
    return rows_of(admitted, admitted["identity"])


def early(readings: Any) -> Any:
    """Return the readings of sessions that had not logged in."""
    return _NONE_EARLY if readings is None else readings.filter(pc.invert(_is_admitted(readings)))


def rows_of(readings: Any, identities: Any) -> Any:
    """Return readings as rows of the table, for sessions with these identities. Those without a device are left out."""
    serials = pc.coalesce(readings["source"], identities)
    columns = [serials if field.name == "serial" else readings[field.name] for field in READINGS.schema]
    rows = pa.record_batch(columns, READINGS.schema)
    return rows.filter(pc.fill_null(pc.not_equal(serials, ""), fill_value=False))


def _is_admitted(readings: Any) -> Any:
    has_identity = pc.not_equal(readings["identity"], "")
    sessions = pc.unique(readings["session"])
    imported = [session for session in sessions.to_pylist() if imported_at_us(session or "")]
    if not imported:
        return has_identity
    return pc.or_(has_identity, pc.is_in(readings["session"], pa.array(imported, TEXT)))
