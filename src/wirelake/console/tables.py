"""Show the tables and the pipeline's progress, and run SQL with the result as rows or a plot."""

import asyncio
from typing import Final

from wirelake.console.page import Context, page
from wirelake.gateway.http.request_context import RequestContext
from wirelake.lake.listing import tables

EXAMPLES: Final = {
    "ledger": "SELECT hour, protocol, counted, received, decoded, quarantined, waiting, balanced, why\n"
    "FROM gold.ledger ORDER BY hour DESC, protocol",
    "traffic by minute": "SELECT minute, protocol, sum(frames) AS frames\n"
    "FROM gold.traffic_minute GROUP BY minute, protocol ORDER BY minute",
    "latest of each device": "SELECT serial, at, status, readings FROM gold.device_latest ORDER BY serial",
    "slowest calls": "SELECT asked_at, requester, service, op, latency_ms, status\n"
    "FROM silver.calls ORDER BY latency_ms DESC NULLS LAST LIMIT 20",
    "quarantined frames": "SELECT at, protocol, reason, text, frame\nFROM silver.quarantine ORDER BY at DESC LIMIT 50",
}


async def view(exchange: RequestContext) -> Context:
    listed = await asyncio.to_thread(tables, exchange.gateway.folder / "lake")
    return {"tables": listed, "examples": EXAMPLES, "sql": exchange.query("sql")}


ROUTES = (page("/tables", "tables.html", view),)
