"""Name sessions that were imported into the log from a capture.

Their records have the times of the capture, and the log is ordered by when they were imported. So whatever compares
`at` with the time of other records has to tell them apart, and takes the time of the import from the id.
"""

import re
from typing import Final

_ID: Final = re.compile("import([0-9a-f]{1,15})(?:-[0-9a-f]+)?")


def imported_session_id(imported_at_us: int, number: int) -> str:
    """Return the id of a session: when the import began, and a number that is unique in it."""
    return f"import{imported_at_us:x}-{number:x}"


def imported_at_us(session: str) -> int:
    """Return when the import began, of a session or as `import_of` names it; 0 if the session was not imported."""
    found = _ID.fullmatch(session)
    return 0 if found is None else int(found[1], 16)


def aged_from_us(session: str, at_us: int) -> int:
    """Return from when on something of a session grows old: from its time, or from its import if that was later."""
    return max(at_us, imported_at_us(session))


def import_of(session: str) -> str:
    """Return what all sessions of one import have in common; "" if the session was not imported."""
    return session.rpartition("-")[0] if imported_at_us(session) else ""
