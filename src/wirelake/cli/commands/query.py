"""Implement `wirelake query`: run SQL over the tables, without Spark."""

import csv
import sys
from pathlib import Path
from typing import Final

import click
from msgspec import convert
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.api import ApiClient
from wirelake.cli.support.limits import CLI_CELL_CHARS_MAX
from wirelake.cli.support.options import settings_options, token_option
from wirelake.cli.support.output import counted
from wirelake.cli.support.stores import lake_of
from wirelake.config import load
from wirelake.lake.query import QueryResult
from wirelake.lake.query_process import query as run_query
from wirelake.lake.tables import TABLES
from wirelake.lake.views import is_written
from wirelake.limits import LAKE_QUERY_S, LAKE_ROWS, LAKE_ROWS_MAX
from wirelake.protocols.text import write_json

_WIDE: Final = 100_000


@click.command(
    epilog="""\b
Examples:
  wirelake query "SELECT * FROM gold.ledger"
  wirelake query "SELECT name, count(*) AS frames FROM silver.messages GROUP BY name ORDER BY frames DESC"
  wirelake query "SELECT serial, value FROM silver.readings WHERE type = 1" --format csv"""
)
@click.argument("sql")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, LAKE_ROWS_MAX),
    default=LAKE_ROWS,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1),
    default=LAKE_QUERY_S,
    show_default=True,
    help="Timeout in seconds.",
)
@token_option
@settings_options
def query(
    sql: str,
    form: str,
    rows: int,
    timeout_s: float,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Run one SELECT over the tables, which have names like silver.messages.

    Reads the tables where they are, whether or not a gateway or pipeline is running. With --token-file the gateway
    runs it, within its own limit of time, over the tables that the identity may query.
    """
    settings = load(config_file, data_folder)
    if token_file is not None:
        body = {"sql": sql, "rows": rows}
        found = ApiClient(settings, token_file).request("POST", "/api/lake/query", body, wait_s=timeout_s)
        _show(convert(found, QueryResult), form)
        return
    lake = lake_of(settings)
    result = run_query(lake, sql, rows, timeout_s)
    _show(result, form)
    if not result.rows and not any(is_written(lake, table) for table in TABLES.values()):
        click.echo(f"No tables in {lake} yet: the pipeline creates them (see `wirelake pipeline status`).", err=True)


def _show(result: QueryResult, form: str) -> None:
    {"table": _table, "json": _json, "csv": _csv}[form](result)
    if result.truncated:
        click.echo(
            f"Only the first {counted(len(result.rows), 'row is', 'rows are')} shown; use --rows for more.", err=True
        )


def _table(result: QueryResult) -> None:
    """Print at full width: the terminal wraps long lines, and a column cut to three letters is useless."""
    table = Table(*[column.name for column in result.columns], box=None, pad_edge=False)
    for row in result.rows:
        table.add_row(*["" if value is None else _short(str(value)) for value in row])
    Console(highlight=False, markup=False, width=_WIDE, soft_wrap=True).print(table)
    click.echo(f"{counted(len(result.rows), 'row')} in {result.elapsed_ms:.0f} ms", err=True)


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= CLI_CELL_CHARS_MAX else f"{line[: CLI_CELL_CHARS_MAX - 1]}…"


def _json(result: QueryResult) -> None:
    names = [column.name for column in result.columns]
    for row in result.rows:
        click.echo(write_json(dict(zip(names, row, strict=True))))


def _csv(result: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([column.name for column in result.columns])
    writer.writerows(result.rows)
