"""The table of pages: what the HTTP door shows beside the API."""

from typing import Final

from wirelake.console import files, live, login, overview
from wirelake.gateway.http.route import Route

PAGES: Final[tuple[Route, ...]] = (
    *files.ROUTES,
    *login.ROUTES,
    *live.ROUTES,
    *overview.ROUTES,
)
