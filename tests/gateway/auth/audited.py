"""Read what a gateway recorded of who did what."""

import asyncio
from typing import Any

from gateway.running_gateway import WAIT_S, Running
from wirelake.log.audit import audit_rows
from wirelake.protocols.text import read_json


def audit_of(running: Running) -> list[dict[str, Any]]:
    """Return the rows of the audit in the log, with their details parsed."""
    rows = [row for batch in running.gateway.log.read() for row in audit_rows(batch).to_pylist()]
    return [row | {"detail": read_json(row["detail"].encode()) if row["detail"] else {}} for row in rows]


async def audited(running: Running, action: str, count: int = 1, **columns: str) -> list[dict[str, Any]]:
    """Return the rows of an action once there are so many."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = [row for row in audit_of(running) if row["action"] == action]
            found = [row for row in found if all(row[name] == value for name, value in columns.items())]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)
