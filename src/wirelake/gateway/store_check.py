"""Check for `wirelake doctor` that the parts of a data folder belong together, without opening it for writing.

A gateway checks more when it opens the folder: see `stores.py`. This module imports none of the packages whose absence
`wirelake doctor` reports.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct

from wirelake.errors import WirelakeError
from wirelake.key_source import KeySource
from wirelake.lake.progress import mismatch, read_checkpoint
from wirelake.log.segments.high_watermark import WATERMARK_FILE, HighWatermark, read_data_id
from wirelake.state.batch import LogPosition, read_log_position
from wirelake.state.database import CORRUPTION_ADVICE
from wirelake.state.encryption import needs_key, needs_scrub, read_key, read_key_id

_EXPIRING: Final = """
    SELECT identity, max(expires_at_ms) AS end FROM tokens GROUP BY identity
    HAVING count(*) = count(expires_at_ms) AND end > ? AND end <= ? ORDER BY end, identity
"""


class _State(Struct):
    data_id: str = ""
    position: LogPosition | None = None


def examine_stores(folder: Path) -> list[str]:
    """Return what is wrong, as sentences without a full stop. A folder that does not exist yet has no problems."""
    log, state_file = folder / "log", folder / "state.db"
    problems: list[str] = []
    checkpoint = read_checkpoint(folder)
    try:
        state = _read_state(state_file)  # before the log, which may grow in between
    except (sqlite3.Error, DecodeError) as error:
        problems.append(f"state.db is not readable ({error}): {CORRUPTION_ADVICE}")
        state = None
    try:
        log_id = read_data_id(log)
        end = HighWatermark(log).seq if (log / WATERMARK_FILE).exists() else 0
    except WirelakeError as error:
        return [*problems, str(error)]
    if state is None and end and not problems:
        problems.append(f"state.db is missing, and the log has {end} records: restore it, or see `serve --accept-loss`")
    if state is not None and log_id and state.data_id != log_id:
        owner = f"belongs to another one (id {state.data_id})" if state.data_id else "is older than the log"
        problems.append(f"state.db {owner}: restore the one that belongs to the log (id {log_id})")
    elif state is not None and state.position is not None and state.position.durable_seq > end:
        seen = state.position.durable_seq
        problems.append(f"the log ends at record {end}, and state.db has seen it up to {seen}: restore the log")
    problem = "" if checkpoint is None else mismatch(checkpoint, log_id, end)
    return [*problems, problem] if problem else problems


def expiring_identities(folder: Path, now_ms: int, within_s: float) -> list[tuple[str, int]]:
    """Return the identities whose last token expires within this time, and when it does, the soonest first.

    A state that cannot be read, or that an earlier version wrote, has none.
    """
    path = folder / "state.db"
    if not path.exists() or not path.stat().st_size:
        return []
    try:
        with closing(_open_state(path)) as connection:
            return connection.execute(_EXPIRING, (now_ms, now_ms + int(within_s * 1000))).fetchall()
    except sqlite3.Error:
        return []


def _read_state(path: Path) -> _State | None:
    """Return the id and the position that the state stores, or None if there is no state."""
    if not path.exists() or not path.stat().st_size:
        return None
    with closing(_open_state(path)) as connection:
        row = connection.execute("SELECT value FROM meta WHERE name = 'data_id'").fetchone()
        return _State("" if row is None else row[0], read_log_position(connection))


def _open_state(path: Path) -> sqlite3.Connection:
    # Without a write-ahead log, SQLite can read the file as it is, without creating files beside it.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)


def examine_state_key(folder: Path, source: KeySource) -> str:
    """Return what is wrong with the encryption of the state's secrets, as a sentence without a full stop, or "".

    Raise InputError if the key cannot be read, or is not the right one.
    """
    path = folder / "state.db"
    if not path.exists() or not path.stat().st_size:
        source.read()
        return ""
    try:
        with closing(_open_state(path)) as connection:
            if needs_key(connection) or not (source.is_default and source.is_missing):
                read_key(connection, source)
            if not read_key_id(connection):
                return "The secrets in state.db are in clear text: start the gateway, which encrypts them"
            if needs_scrub(connection):
                return (
                    "Unused parts of state.db may have secrets in clear text, or under an earlier key: free some disk"
                    " space, and restart the gateway, which rewrites the file"
                )
    except sqlite3.Error:  # a damaged file is reported by `examine_stores`
        return ""
    return ""
