"""List the tables, and run SQL over them. They contain the traffic of all identities, so both require the admin."""

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from wirelake.gateway.http.bodies import EXAMPLE_NAME
from wirelake.gateway.http.limiter import ConcurrencyLimit, busy
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.lake import query
from wirelake.lake.query_process import QueryPool
from wirelake.lake.store import Store
from wirelake.limits import HTTP_QUERIES_MAX, LAKE_ROWS, LAKE_ROWS_MAX, LAKE_SQL_CHARS_MAX


class QueryRequest(Struct, forbid_unknown_fields=True):
    sql: Annotated[str, Meta(max_length=LAKE_SQL_CHARS_MAX)]
    rows: Annotated[int, Meta(ge=1, le=LAKE_ROWS_MAX)] = LAKE_ROWS  # at most


class Tables(Struct):
    tables: list[query.TableInfo]


class LakeQueries:
    """Run queries over the tables, a limited number at once."""

    def __init__(self, lake: Store) -> None:
        self.limit = ConcurrencyLimit(HTTP_QUERIES_MAX, busy("queries are running", "HTTP_QUERIES_MAX"))
        self._pool = QueryPool(lake)

    async def run(self, context: RequestContext, sql: str, rows_max: int) -> bytes:
        """Run a query in a process of its own, which is killed if the client disconnects. Return the result as JSON."""
        with self.limit.slot():
            running = self._pool.query(sql, rows_max)
            result = asyncio.create_task(asyncio.to_thread(running.run))
            # The body has been read, so the next event can only be that the client disconnected.
            disconnected = asyncio.ensure_future(context.request.receive())
            try:
                await asyncio.wait({result, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                disconnected.cancel()
                if not result.done():
                    running.cancel()
                await asyncio.wait({result})  # the thread ends as soon as its process has
            if running.is_cancelled and result.exception() is not None:
                raise ClientDisconnect
            return result.result()

    def reap(self) -> None:
        """Clean up after query processes that have exited."""
        self._pool.reap()

    def close(self) -> None:
        self._pool.close()


class LakeRoutes:
    def __init__(self, lake: Store, queries: LakeQueries) -> None:
        self._lake = lake
        self._queries = queries

    def routes(self) -> tuple[BoundRoute, ...]:
        return (TABLES.bind(self.tables), QUERY.bind(self.query))

    async def tables(self, _context: RequestContext, _body: None) -> Tables:
        return Tables(await asyncio.to_thread(query.list_tables, self._lake))

    async def query(self, context: RequestContext, body: QueryRequest) -> Response:
        return Response(await self._queries.run(context, body.sql, body.rows), media_type="application/json")


_TABLE: Final[dict[str, Any]] = {
    "name": "gold.ledger",
    "columns": ["hour", "protocol", "balanced"],
    "version": 12,
    "rows": 7,
    "files": 1,
    "bytes": 4096,
    "changed_at_ms": 1_700_000_000_000,
}

TABLES: Final = Route(
    method="GET",
    path="/api/lake/tables",
    operation_id="lake.tables",
    summary="List the tables with their rows, files and last change.",
    access=Access.ADMIN,
    gives=Tables,
    example_answer={"tables": [_TABLE]},
)

QUERY: Final = Route(
    method="POST",
    path="/api/lake/query",
    operation_id="lake.ask",
    summary="Run one SELECT over the tables, limited in time, memory and rows.",
    access=Access.ADMIN,
    takes=QueryRequest,
    gives=query.QueryResult,
    example={"sql": "SELECT protocol, balanced FROM gold.ledger", "rows": 100},
    example_answer={
        "columns": [{"name": "protocol", "type": "VARCHAR"}, {"name": "balanced", "type": "BOOLEAN"}],
        "rows": [[EXAMPLE_NAME, True]],
        "truncated": False,
        "elapsed_ms": 12.5,
    },
)

ROUTES: Final = (TABLES, QUERY)
