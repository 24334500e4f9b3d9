"""List the pages that the HTTP listener serves besides the API."""

from typing import Final

from wirelake.console import (
    devices,
    files,
    inspector,
    live,
    login,
    overview,
    quarantine,
    sessions,
    tables,
    topics,
    trace,
)
from wirelake.gateway.http.route import Route

PAGES: Final[tuple[Route, ...]] = (
    *files.ROUTES,
    *login.ROUTES,
    *live.ROUTES,
    *overview.ROUTES,
    *sessions.ROUTES,
    *topics.ROUTES,
    *devices.ROUTES,
    *inspector.ROUTES,
    *trace.ROUTES,
    *quarantine.ROUTES,
    *tables.ROUTES,
)
