"""Handle a connection of the HTTP listener: uvicorn's, with the limits that every listener of the gateway has.

Until the sender of a request is authenticated, the request has less time, and its body counts against a budget of its
own: peers without a token can block neither those who have one nor, from another address, those who want to log in.

`uvicorn.Config(http=...)` takes a protocol class, but uvicorn has no public API for what is added here: limits while a
request arrives, answers without the application, and the end of a request whose connection is gone. So this class
derives from `HttpToolsProtocol`, and uses those of its attributes that have no underscore.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import uvicorn
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from wirelake.address import Address
from wirelake.gateway.auth.admission import Admission, Slot, host_of
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.limiter import BodyBudget, HealthOnly, RequestLimiter
from wirelake.gateway.metrics import Counters
from wirelake.gateway.transport.stalls import Stall, StallMonitor
from wirelake.limits import (
    HTTP_DRAIN_S,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEALTH_S,
    HTTP_KEEP_ALIVE_S,
    HTTP_REQUEST_S,
    HTTP_STOP_S,
    HTTP_UNKNOWN_REQUEST_S,
)

T = TypeVar("T")
_BACKLOG: Final = 1024


class ServerConfig(uvicorn.Config):
    """Configure uvicorn, and hand to its connections what they need: uvicorn passes them nothing but this object."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        admission: Admission,
        counters: Counters,
        stalls: StallMonitor,
        limiter: RequestLimiter,
        is_known: Callable[[Request], bool],
        pending_bytes_max: Callable[[], int],
    ) -> None:
        """Let `is_known` tell whether a request's sender is authenticated without a slow check."""
        super().__init__(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,  # a peer's address is that of its socket
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=HTTP_KEEP_ALIVE_S,
            timeout_graceful_shutdown=HTTP_STOP_S,
        )
        self.admission = admission
        self.counters = counters
        self.stalls = stalls
        self.limiter = limiter
        self.is_known = is_known
        self.pending_bytes_max = pending_bytes_max


class _PendingRequest(Struct):
    """A request without a complete response, and the budget that the bytes of its body are counted in."""

    cycle: RequestResponseCycle
    budget: BodyBudget | None = None  # None until a byte of the body arrives
    body_bytes: int = 0


class HttpConnection(HttpToolsProtocol):
    """Close the connection if a request exceeds its time or its size, or if the peer does not read the response."""

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        slot: Slot | None = None,
    ) -> None:
        """Take over `slot` if the connection is admitted already."""
        super().__init__(config, server_state, app_state, _loop)
        self._admission = config.admission
        self._counters = config.counters
        self._stalls = config.stalls
        self._limiter = config.limiter
        self._is_known = config.is_known
        self._pending_bytes_max = config.pending_bytes_max
        self._slot = slot
        self._is_admitted = False
        self._is_health_only = False
        self._close_code = "peer_closed"
        self._head_bytes = 0
        self._is_in_head = True
        self._timeout: asyncio.TimerHandle | None = None
        self._timeout_started_s = 0.0
        self._token_check: asyncio.Task[Any] | None = None
        self._pending: deque[_PendingRequest] = deque()  # oldest first: responses are sent in order
        self.address = ""
        self.stall: Stall | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = str(Address(*self.client)) if self.client else ""
        admitted = self._slot or self._admission.enter(self.address, authenticated=True)
        if isinstance(admitted, str):
            self._counters.refused["http", admitted] += 1
            self._is_health_only = True
            self.app = HealthOnly(self.app)
            self._limiter.reserve.enter(self._host, self._on_timeout)
            self._start_timeout(HTTP_HEALTH_S)
            return
        self._slot = admitted
        self._is_admitted = True
        self._counters.accepted["http"] += 1
        self._counters.connections["http"] += 1
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_timeout()
        if self.stall is not None:
            self.stall.end()
        if self._token_check is not None:
            self._token_check.cancel()
        while self._pending:
            pending = self._pending.popleft()
            self._release(pending)
            pending.cycle.disconnected = True  # of several requests, uvicorn informs the last one only
            pending.cycle.message_event.set()
        if self._is_health_only:
            self._limiter.reserve.leave(self._host, self._on_timeout)
        if self._is_admitted:
            self._is_admitted = False
            if self._slot is not None:
                self._slot.release()
            self._counters.connections["http"] -= 1
            self._counters.closed["http", "lost" if exc else self._close_code] += 1

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted and not self._is_health_only:
            return
        if self._timeout is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timeout()
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HTTP_HEAD_BYTES_MAX:
            self._refuse(ApiError(431, f"request line and headers exceed the limit of {HTTP_HEAD_BYTES_MAX} bytes"))

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """Return the certificate that the peer proved to have, as `ssl.SSLSocket.getpeercert` does."""
        return cast(Mapping[str, Any] | None, self.transport.get_extra_info("peercert"))

    async def run_while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """Check a token for the current request; ClientDisconnect if the connection ends meanwhile.

        The work is cancelled then, and also when the gateway stops: ApiError.
        """
        self._token_check = task = self.loop.create_task(work)
        if self.transport.is_closing():
            task.cancel()
        with self._limiter.token_check(task):
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.cancelled():  # this request was cancelled, not the check
                    task.cancel()
                    raise
                if self.transport.is_closing():
                    raise ClientDisconnect from None
                raise ApiError(503, "the gateway is shutting down", headers=AGAIN) from None
            finally:
                self._token_check = None

    # A peer that does not read its response

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.stall is None and self._is_admitted:
            self._stalls.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.wake()

    @property
    def pending_max(self) -> int:
        return self._pending_bytes_max()

    @property
    def pending_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def wake(self) -> None:
        if self.stall is not None and self.flow.write_paused is False:
            self.stall.end()

    def disconnect(self, code: str, _text: str) -> None:
        self._close_code = code
        self._counters.errors["http", code] += 1
        self.transport.abort()

    # The parts of a request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self  # so that a stream that is not read can be aborted
        self._is_in_head = True
        self._start_timeout()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._pending.append(_PendingRequest(self.cycle))

    def on_body(self, body: bytes) -> None:
        """Count the bytes as they arrive, in the budget of their sender."""
        pending = self._pending[-1] if self._pending else None
        if self.transport.is_closing():
            return
        if pending is not None and pending.cycle is self.cycle and not self.cycle.response_complete:
            if pending.budget is None:
                is_known = self._is_known(Request(cast(Scope, self.cycle.scope)))
                pending.budget = self._limiter.bodies if is_known else self._limiter.unknown_bodies
            if not pending.budget.reserve(self._host, len(body)):
                self._refuse(_too_many_bodies(pending.budget))
                return
            pending.body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        if self._pending:
            self._release(self._pending.popleft())
        super().on_response_complete()

    def on_authenticated(self) -> None:
        """Give the current request the time and the body budget of known senders."""
        if self._timeout is not None and not self._is_health_only:
            self._timeout.cancel()
            self._timeout = self.loop.call_at(self._timeout_started_s + HTTP_REQUEST_S, self._on_timeout)
        pending = self._pending[0] if self._pending else None
        unknown_bodies, bodies = self._limiter.unknown_bodies, self._limiter.bodies
        if pending is None or pending.budget is not unknown_bodies:
            return
        if not bodies.reserve(self._host, pending.body_bytes):
            raise _too_many_bodies(bodies)
        unknown_bodies.release(self._host, pending.body_bytes)
        pending.budget = bodies

    def on_message_complete(self) -> None:
        self._cancel_timeout()
        self._is_in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP; uvicorn calls this too."""
        self._refuse(ApiError(400, msg, "bad_http"))

    def timeout_keep_alive_handler(self) -> None:
        self._close_code = "idle"
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(HTTP_DRAIN_S, self.transport.abort)

    @property
    def _host(self) -> str:
        return host_of(self.address)

    def _release(self, pending: _PendingRequest) -> None:
        if pending.budget is not None:
            pending.budget.release(self._host, pending.body_bytes)
            pending.budget = None

    def _start_timeout(self, timeout_s: float | None = None) -> None:
        if self._timeout is None:
            timeout_s = min(HTTP_REQUEST_S, HTTP_UNKNOWN_REQUEST_S) if timeout_s is None else timeout_s
            self._timeout_started_s = self.loop.time()
            self._timeout = self.loop.call_later(timeout_s, self._on_timeout)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _on_timeout(self) -> None:
        self._timeout = None
        self._close_code = "request_timeout"
        self._counters.errors["http", "request_timeout"] += 1
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Send an error below the application, which never sees the request, and close."""
        if self.transport.is_closing():
            return
        self._close_code = error.code
        self._counters.errors["http", error.code] += 1
        is_responding = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if is_responding or len(self._pending) > 1:
            self.transport.abort()  # the error would be read as part of another response
            return
        if self._pending:
            self._pending[0].cycle.disconnected = True  # keeps the application from responding
            self._pending[0].cycle.message_event.set()
        body = error.body()
        status = HTTPStatus(error.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in (error.headers or {}).items()]
        lines += ["content-type: application/json", f"content-length: {len(body)}", "connection: close", "", ""]
        self.transport.write("\r\n".join(lines).encode() + body)
        self.transport.close()


def _too_many_bodies(budget: BodyBudget) -> ApiError:
    return ApiError(429, f"bodies of {budget.bytes_max} bytes are being received already; try again", headers=AGAIN)
