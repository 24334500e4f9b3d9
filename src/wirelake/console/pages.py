"""Build the console's pages, and serve their style sheets and scripts."""

from pathlib import Path
from typing import Final

from starlette.responses import Response

from wirelake.console import audit, identities, inspector, login, overview, resources, tables, workbench
from wirelake.console.page import PageServer
from wirelake.gateway.http.assembly import HttpRuntime, HttpServices, HttpSessions, HttpStorage
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.gateway.http.routes.health import GatewayStatus
from wirelake.gateway.http.routes.static import JAVASCRIPT, static_response
from wirelake.gateway.http.traffic import TrafficMeter

FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": JAVASCRIPT, ".svg": "image/svg+xml"}
_FILES: Final = {path.name: path for path in FOLDER.iterdir() if path.suffix in _TYPES}  # the only files served


class ConsoleFiles:
    def routes(self) -> tuple[BoundRoute, ...]:
        return (FILE.bind(self.file), ICON.bind(self.icon))

    async def file(self, context: RequestContext, _: None) -> Response:
        path = _FILES.get(context.path("name"))
        if path is None:
            raise ApiError(404, "no such console file")
        return static_response(context, path, _TYPES[path.suffix])

    async def icon(self, context: RequestContext, _: None) -> Response:
        return static_response(context, FOLDER / "icon.svg", _TYPES[".svg"])


FILE: Final = Route(method="GET", path="/console/{name}", summary="Get a console file.", access=Access.ANYBODY)
ICON: Final = Route(method="GET", path="/favicon.ico", summary="Get the icon.", access=Access.ANYBODY)

PAGES: Final[tuple[Route, ...]] = (
    FILE,
    ICON,
    *login.ROUTES,
    *overview.ROUTES,
    *resources.ROUTES,
    *inspector.ROUTES,
    *tables.ROUTES,
    *workbench.ROUTES,
    *identities.ROUTES,
    *audit.ROUTES,
)


def console_pages(
    runtime: HttpRuntime, storage: HttpStorage, sessions: HttpSessions, status: GatewayStatus, http: HttpServices
) -> list[BoundRoute]:
    """Return the console's pages for a gateway with these components."""
    server = PageServer(http.authenticator, http.limiter)
    traffic = TrafficMeter(runtime.counters, sessions.connections, sessions.devices, http.streams)
    snapshots = overview.SnapshotSource(
        traffic, sessions.broker, storage.log, http.stats, storage.folder, runtime.clock.now_ms
    )
    live = overview.LiveSnapshots(snapshots, status.is_stopping, runtime.now_s)
    pages = (
        ConsoleFiles(),
        login.LoginPages(http.authenticator),
        overview.OverviewPages(server, sessions.broker.access, snapshots, live, status, storage.folder),
        resources.ResourcePages(server, runtime.settings, storage.state, sessions.broker, storage.lake),
        inspector.InspectorPages(server, http.tracer),
        tables.TablePages(server, http.lake, storage.folder, storage.lake),
        workbench.WorkbenchPages(server, storage.folder),
        identities.IdentityPages(server, storage.state.identities, sessions.broker.access, runtime.clock.now_ms),
        audit.AuditPages(server, storage.folder, storage.lake, runtime.clock.now_ms),
    )
    return [bound for page in pages for bound in page.routes()]
