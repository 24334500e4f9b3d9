"""Stream snapshots as server-sent events, one a second. All open pages share the same snapshot."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakKeyDictionary

from starlette.responses import Response, StreamingResponse

from wirelake.console.snapshot import OverviewSnapshot, take
from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.limits import CONSOLE_LIVE_S, CONSOLE_WATCHERS_MAX
from wirelake.protocols.jsontext import write_json

_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Watch:
    def __init__(self, api: HttpApi) -> None:
        self.watchers = 0
        self._api = api
        self._taken_s = float("-inf")
        self._event = b""

    async def events(self) -> AsyncIterator[bytes]:
        self.watchers += 1
        try:
            while not self._api.gateway.stopping:
                yield self._current()
                await asyncio.sleep(CONSOLE_LIVE_S)
        finally:
            self.watchers -= 1

    def _current(self) -> bytes:
        now_s = self._api.gateway.now_s()
        if now_s - self._taken_s >= CONSOLE_LIVE_S / 2:
            self._taken_s = now_s
            self._event = b"data: %b\n\n" % write_json(take(self._api))
        return self._event


_WATCHES: Final[WeakKeyDictionary[HttpApi, Watch]] = WeakKeyDictionary()


async def live(exchange: RequestContext, _: None) -> Response:
    api = exchange.api
    watch = _WATCHES.get(api) or _WATCHES.setdefault(api, Watch(api))
    if watch.watchers >= CONSOLE_WATCHERS_MAX:
        raise ApiError(
            503,
            f"{CONSOLE_WATCHERS_MAX} console pages are open already (CONSOLE_WATCHERS_MAX): close some and retry",
            headers=AGAIN,
        )
    return StreamingResponse(watch.events(), headers=_HEADERS, media_type="text/event-stream")


ROUTES = (
    Route(
        method="GET",
        path="/console/live",
        summary="Stream a snapshot of the gateway once a second.",
        handle=live,
        access=Access.ADMIN,
        gives=OverviewSnapshot,
        media_type="text/event-stream",
    ),
)
