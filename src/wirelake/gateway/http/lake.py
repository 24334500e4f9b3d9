"""The tables, by HTTP: which there are, and SQL over them. Everybody's traffic is in them, so only the admin asks."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.exchange import Exchange
from wirelake.gateway.http.route import Access, Route
from wirelake.lake import listing, query
from wirelake.limits import HTTP_QUERIES_MAX, LAKE_ROWS, LAKE_ROWS_MAX, LAKE_SQL_CHARS_MAX


class Question(Struct, forbid_unknown_fields=True):
    sql: Annotated[str, Meta(max_length=LAKE_SQL_CHARS_MAX)]
    rows: Annotated[int, Meta(ge=1, le=LAKE_ROWS_MAX)] = LAKE_ROWS  # at most


class Tables(Struct):
    tables: list[listing.TableInfo]


async def tables(exchange: Exchange, _: None) -> Tables:
    return Tables(await asyncio.to_thread(listing.tables, exchange.gateway.folder / "lake"))


async def ask(exchange: Exchange, asked: Question) -> query.Answer:
    api = exchange.api
    if api.queries >= HTTP_QUERIES_MAX:
        raise ApiError(429, f"{api.queries} queries are under way already (HTTP_QUERIES_MAX)")
    api.queries += 1
    try:
        return await asyncio.to_thread(query.query, exchange.gateway.folder / "lake", asked.sql, asked.rows)
    finally:
        api.queries -= 1


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
        summary="The tables, how many rows and files each has, and when it last changed.",
        handle=tables,
        access=Access.ADMIN,
        gives=Tables,
        example_answer={"tables": [_TABLE]},
    ),
    Route(
        method="POST",
        path="/api/lake/query",
        summary="SQL over the tables: one SELECT, bounded in time, memory and rows.",
        handle=ask,
        access=Access.ADMIN,
        takes=Question,
        gives=query.Answer,
        refusals=(429,),
        example={"sql": "SELECT protocol, balanced FROM gold.ledger", "rows": 100},
        example_answer={
            "columns": [{"name": "protocol", "type": "VARCHAR"}, {"name": "balanced", "type": "BOOLEAN"}],
            "rows": [["comet", True]],
            "truncated": False,
            "elapsed_ms": 12.5,
        },
    ),
)
