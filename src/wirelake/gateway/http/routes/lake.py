"""List the tables that one may query, and run SQL over them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct, json
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from wirelake.broker.access import AccessPolicy, Rights
from wirelake.errors import AccessDeniedError, WirelakeError
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.http.bodies import EXAMPLE_NAME
from wirelake.gateway.http.limiter import ConcurrencyLimit, busy
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Route
from wirelake.lake import query
from wirelake.lake.field_views import field_views
from wirelake.lake.query_process import PooledQuery, QueryPool
from wirelake.lake.row_filters import row_filters_of
from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES as TABLES_BY_NAME
from wirelake.limits import (
    AUDIT_ERROR_CHARS_MAX,
    AUDIT_SQL_CHARS_MAX,
    HTTP_QUERIES_MAX,
    LAKE_ROWS,
    LAKE_ROWS_MAX,
    LAKE_SQL_CHARS_MAX,
)
from wirelake.log.audit import FAILED, OK, REFUSED
from wirelake.roles import Action

SQL: Final = "sql"  # the action in the audit


class QueryRequest(Struct, forbid_unknown_fields=True):
    sql: Annotated[str, Meta(max_length=LAKE_SQL_CHARS_MAX)]
    rows: Annotated[int, Meta(ge=1, le=LAKE_ROWS_MAX)] = LAKE_ROWS  # at most


class Tables(Struct):
    tables: list[query.TableInfo]


class _Rows(Struct, frozen=True):
    """Count the rows of a `QueryResult` without parsing them."""

    rows: list[Raw]


_rows: Final = json.Decoder(_Rows)


class LakeQueries:
    """Run queries over the tables, a limited number at once."""

    def __init__(self, lake: Store, access: AccessPolicy, audit: AuditLog, now_s: Callable[[], float]) -> None:
        self._access = access
        self._audit = audit
        self._now_s = now_s
        self.limit = ConcurrencyLimit(HTTP_QUERIES_MAX, busy("queries are running", "HTTP_QUERIES_MAX"))
        self._pool = QueryPool(lake)

    async def run(self, context: RequestContext, sql: str, rows_max: int) -> bytes:
        """Run a query, and record who ran it. Return the result as JSON."""
        started_s, outcome, rows = self._now_s(), FAILED, 0
        detail: dict[str, Any] = {"sql": sql[:AUDIT_SQL_CHARS_MAX]}
        try:
            body, rows = await self._run(context, sql, rows_max)
            outcome = OK
        except AccessDeniedError:
            outcome = REFUSED
            raise
        except WirelakeError as error:
            detail["error"] = str(error)[:AUDIT_ERROR_CHARS_MAX]
            raise
        finally:
            detail |= {"rows": rows, "ms": round((self._now_s() - started_s) * 1000)}
            await self._audit.settle(partial(self._audit.record, context, SQL, "", outcome, **detail), context)
        return body

    async def _run(self, context: RequestContext, sql: str, rows_max: int) -> tuple[bytes, int]:
        """Run a query in a process of its own, which is killed if the client disconnects.

        Return the result as JSON, and the number of its rows.
        """
        with self.limit.slot():
            rights = context.rights
            row_filters = row_filters_of(rights.row_filter)
            running = self._pool.query(sql, rows_max, tables=queryable(rights), row_filters=row_filters)
            result = asyncio.create_task(asyncio.to_thread(_run_and_count, running))
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
            try:
                return result.result()
            except AccessDeniedError as error:
                raise self._access.denied(context, Action.QUERY, error.target) from error

    def reap(self) -> None:
        """Clean up after query processes that have exited."""
        self._pool.reap()

    def close(self) -> None:
        self._pool.close()


def _run_and_count(running: PooledQuery) -> tuple[bytes, int]:
    body = running.run()
    return body, len(_rows.decode(body).rows)


class LakeRoutes:
    def __init__(self, lake: Store, queries: LakeQueries) -> None:
        self._lake = lake
        self._queries = queries

    def routes(self) -> tuple[BoundRoute, ...]:
        return (TABLES.bind(self.tables), QUERY.bind(self.query))

    async def tables(self, context: RequestContext, _: None) -> Tables:
        return Tables(await list_queryable(context, self._lake))

    async def query(self, context: RequestContext, body: QueryRequest) -> Response:
        return Response(await self._queries.run(context, body.sql, body.rows), media_type="application/json")


def queryable(rights: Rights) -> frozenset[str] | None:
    """Return the tables and views that may be queried; None if all may, also those that are yet to come."""
    if rights.allows_all(Action.QUERY):
        return None
    return frozenset(name for name in (*TABLES_BY_NAME, *field_views()) if rights.allows(Action.QUERY, name))


async def list_queryable(context: RequestContext, lake: Store) -> list[query.TableInfo]:
    """Return the tables that the sender of a request may query."""
    found = await asyncio.to_thread(query.list_tables, lake)
    return [table for table in found if context.rights.allows(Action.QUERY, table.name)]


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
    summary="List the tables that one may query, with their rows, files and last change.",
    gives=Tables,
    example_answer={"tables": [_TABLE]},
)

QUERY: Final = Route(
    method="POST",
    path="/api/lake/query",
    operation_id="lake.ask",
    summary="Run one SELECT over tables that one may query, limited in time, memory and rows.",
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
