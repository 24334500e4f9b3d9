"""The tables, by HTTP: which there are, and SQL over them. Everybody's traffic is in them, so only the admin asks."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from wirelake.gateway.http import examples
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.lake import listing, query
from wirelake.limits import HTTP_QUERIES_MAX, LAKE_ROWS, LAKE_ROWS_MAX, LAKE_SQL_CHARS_MAX


class QueryRequest(Struct, forbid_unknown_fields=True):
    sql: Annotated[str, Meta(max_length=LAKE_SQL_CHARS_MAX)]
    rows: Annotated[int, Meta(ge=1, le=LAKE_ROWS_MAX)] = LAKE_ROWS  # at most


class Tables(Struct):
    tables: list[listing.TableInfo]


async def tables(exchange: RequestContext, _: None) -> Tables:
    return Tables(await asyncio.to_thread(listing.tables, exchange.gateway.folder / "lake"))


async def ask(exchange: RequestContext, asked: QueryRequest) -> Response:
    """Run it in a process of its own, which is killed when nobody waits for the answer any more."""
    api = exchange.api
    if api.queries >= HTTP_QUERIES_MAX:
        raise ApiError(429, f"{api.queries} queries are running already (HTTP_QUERIES_MAX): try again")
    api.queries += 1
    try:
        return Response(await _run(exchange, asked), media_type="application/json")
    finally:
        api.queries -= 1


async def _run(exchange: RequestContext, asked: QueryRequest) -> bytes:
    running = exchange.api.query_pool.query(asked.sql, asked.rows)
    answer = asyncio.create_task(asyncio.to_thread(running.run))
    left = asyncio.ensure_future(exchange.request.receive())  # the body is read: what comes next is that the peer left
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        if not answer.done():
            running.cancel()
        await asyncio.wait({answer})  # the thread ends as soon as its process has
    if running.is_cancelled and answer.exception() is not None:
        raise ClientDisconnect
    return answer.result()


_TABLE: dict[str, Any] = {
    "name": "gold.ledger",
    "columns": ["hour", "protocol", "balanced"],
    "version": 12,
    "rows": 7,
    "files": 1,
    "bytes": 4096,
    "changed_at_ms": 1_700_000_000_000,
}

ROUTES = (
    Route(
        method="GET",
        path="/api/lake/tables",
        summary="List the tables with their rows, files and last change.",
        handle=tables,
        access=Access.ADMIN,
        gives=Tables,
        example_answer={"tables": [_TABLE]},
    ),
    Route(
        method="POST",
        path="/api/lake/query",
        summary="Run one SELECT over the tables, limited in time, memory and rows.",
        handle=ask,
        access=Access.ADMIN,
        takes=QueryRequest,
        gives=query.QueryResult,
        example={"sql": "SELECT protocol, balanced FROM gold.ledger", "rows": 100},
        example_answer={
            "columns": [{"name": "protocol", "type": "VARCHAR"}, {"name": "balanced", "type": "BOOLEAN"}],
            "rows": [[examples.NAME, True]],
            "truncated": False,
            "elapsed_ms": 12.5,
        },
    ),
)
