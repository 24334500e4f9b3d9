"""The table of pages: what the HTTP door shows beside the API."""

from typing import Final

from wirelake.console import files, inspector, live, login, overview, tables
from wirelake.gateway.http.route import Route

PAGES: Final[tuple[Route, ...]] = (
    *files.ROUTES,
    *login.ROUTES,
    *live.ROUTES,
    *overview.ROUTES,
    *inspector.ROUTES,
    *tables.ROUTES,
)
