"""The table: everything that can be asked by HTTP."""

from typing import Final

from wirelake.gateway.http.openapi import description_route
from wirelake.gateway.http.route import Route
from wirelake.gateway.http.routes import (
    acks,
    decode,
    devices,
    health,
    identities,
    lake,
    ledger,
    log,
    messages,
    metrics,
    services,
    sessions,
    static,
    subscribe,
    topic,
    topics,
)

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *metrics.ROUTES,
    description_route(lambda: ROUTES),
    *topics.ROUTES,
    *topic.ROUTES,
    *subscribe.ROUTES,
    *acks.ROUTES,
    *sessions.ROUTES,
    *identities.ROUTES,
    *devices.ROUTES,
    *services.ROUTES,
    *decode.ROUTES,
    *messages.ROUTES,
    *ledger.ROUTES,
    *lake.ROUTES,
    *log.ROUTES,
    *static.ROUTES,
)
