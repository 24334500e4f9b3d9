"""Handle a connection of the HTTP listener: uvicorn's, with the limits that every listener of the gateway has.

Until it is known who sends a request, it has less time, and its body counts against a share of its own: whoever has no
token can keep out neither those who have one nor, from another address, those who want to log in.

`uvicorn.Config(http=...)` takes a protocol class, but uvicorn has no public API for what is added here: limits while a
request arrives, answers without the application, and the end of a request whose connection is gone. So this class
derives from `HttpToolsProtocol`, and uses those of its attributes that have no underscore.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from wirelake.address import Address
from wirelake.gateway.auth.admission import Slot, host_of
from wirelake.gateway.http.bodies import BodyBudget
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.reserve import HealthOnly
from wirelake.limits import (
    HTTP_DRAIN_S,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEALTH_S,
    HTTP_REQUEST_S,
    HTTP_UNKNOWN_REQUEST_S,
)

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.http.api import HttpApi
    from wirelake.gateway.transport.stalls import Stall

T = TypeVar("T")


class _Pending(Struct):
    """A request that is not answered yet, and which budget the bytes of its body are counted in."""

    cycle: RequestResponseCycle
    budget: BodyBudget | None = None  # None until bytes came
    body_bytes: int = 0


class HttpConnection(HttpToolsProtocol):
    """A request has to come within its time and its size; a peer has to take its answer."""

    gateway: ClassVar["Gateway"]
    api: ClassVar["HttpApi"]
    health_app: ClassVar[HealthOnly]
    address = ""
    slot: Slot | None = None
    _let_in = False
    _reserved = False  # let in for health checks only
    _reason = "peer_closed"
    _head_bytes = 0
    _in_head = True
    _patience: asyncio.TimerHandle | None = None
    _patience_from_s = 0.0
    stall: "Stall | None" = None
    _abandonable: asyncio.Task[Any] | None = None
    _pending: deque[_Pending]  # the oldest first: answers are given in order

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._pending = deque()
        gateway = self.gateway
        self.address = str(Address(*self.client)) if self.client else ""
        admitted = self.slot or gateway.admission.enter(self.address, authenticated=True)
        if isinstance(admitted, str):
            gateway.counters.refused["http", admitted] += 1
            self._reserved = True
            self.app = self.health_app
            self.api.reserve.enter(self._host, self._too_slow)
            self._be_patient(HTTP_HEALTH_S)
            return
        self.slot = admitted
        self._let_in = True
        gateway.counters.accepted["http"] += 1
        gateway.counters.connections["http"] += 1
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        if self.stall is not None:
            self.stall.end()
        if self._abandonable is not None:
            self._abandonable.cancel()
        while self._pending:
            pending = self._pending.popleft()
            self._give_back(pending)
            pending.cycle.disconnected = True  # uvicorn tells the last of several only
            pending.cycle.message_event.set()
        if self._reserved:
            self.api.reserve.leave(self._host, self._too_slow)
        if self._let_in:
            self._let_in = False
            if self.slot is not None:
                self.slot.release()
            self.gateway.counters.connections["http"] -= 1
            self.gateway.counters.closed["http", "lost" if exc else self._reason] += 1

    def data_received(self, data: bytes) -> None:
        if not self._let_in and not self._reserved:
            return
        if self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._be_patient()
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HTTP_HEAD_BYTES_MAX:
            self._refuse(ApiError(431, f"request line and headers exceed the limit of {HTTP_HEAD_BYTES_MAX} bytes"))

    async def while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work for the request under way; ClientDisconnect if the connection ends meanwhile.

        The work is cancelled then, and when the gateway stops: ApiError.
        """
        self._abandonable = task = self.loop.create_task(work)
        self.api.checks.add(task)
        if self.transport.is_closing():
            task.cancel()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():  # it is this request that ends, with the gateway
                task.cancel()
                raise
            if self.transport.is_closing():
                raise ClientDisconnect from None
            raise ApiError(503, "the gateway is shutting down", headers=AGAIN) from None
        finally:
            self._abandonable = None
            self.api.checks.discard(task)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.stall is None and self._let_in:
            self.gateway.stalls.begin(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.wake()

    # A peer that does not read its answer

    @property
    def pending_max(self) -> int:
        return self.gateway.settings.limits.pending_bytes

    @property
    def pending_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def wake(self) -> None:
        if self.stall is not None and self.flow.write_paused is False:
            self.stall.end()

    def give_up(self, code: str, _text: str) -> None:
        self._reason = code
        self.gateway.counters.errors["http", code] += 1
        self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self  # a stream that is not read has to be cut off
        self._in_head = True
        self._be_patient()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._pending.append(_Pending(self.cycle))

    def on_body(self, body: bytes) -> None:
        """Count the bytes as they arrive, for whoever they are from."""
        pending = self._pending[-1] if self._pending else None
        if self.transport.is_closing():
            return
        if pending is not None and pending.cycle is self.cycle and not self.cycle.response_complete:
            if pending.budget is None:
                is_known = self.api.recognises(Request(cast(Scope, self.cycle.scope)))
                pending.budget = self.api.bodies if is_known else self.api.unknown_bodies
            if not pending.budget.take(self._host, len(body)):
                self._refuse(_too_many_bodies(pending.budget))
                return
            pending.body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        if self._pending:
            self._give_back(self._pending.popleft())
        super().on_response_complete()

    def trust(self) -> None:
        """It is known who sends the request that is worked on: it gets the time and the room of those."""
        if self._patience is not None and not self._reserved:
            self._patience.cancel()
            self._patience = self.loop.call_at(self._patience_from_s + HTTP_REQUEST_S, self._too_slow)
        pending = self._pending[0] if self._pending else None
        if pending is None or pending.budget is not self.api.unknown_bodies:
            return
        if not self.api.bodies.take(self._host, pending.body_bytes):
            raise _too_many_bodies(self.api.bodies)
        self.api.unknown_bodies.give_back(self._host, pending.body_bytes)
        pending.budget = self.api.bodies

    def on_message_complete(self) -> None:
        self._stop_waiting()
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Also uvicorn's own: bytes that are not HTTP."""
        self._refuse(ApiError(400, msg, "bad_http"))

    def timeout_keep_alive_handler(self) -> None:
        self._reason = "idle"
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(HTTP_DRAIN_S, self.transport.abort)

    @property
    def _host(self) -> str:
        return host_of(self.address)

    def _give_back(self, pending: _Pending) -> None:
        if pending.budget is not None:
            pending.budget.give_back(self._host, pending.body_bytes)
            pending.budget = None

    def _be_patient(self, for_s: float | None = None) -> None:
        if self._patience is None:
            for_s = min(HTTP_REQUEST_S, HTTP_UNKNOWN_REQUEST_S) if for_s is None else for_s
            self._patience_from_s = self.loop.time()
            self._patience = self.loop.call_later(for_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        self._patience = None
        self._reason = "request_timeout"
        self.gateway.counters.errors["http", "request_timeout"] += 1
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Answer below the application, which never sees the request."""
        if self.transport.is_closing():
            return
        self._reason = error.code
        self.gateway.counters.errors["http", error.code] += 1
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if is_answering or len(self._pending) > 1:
            self.transport.abort()  # in the middle of another answer, or before it
            return
        if self._pending:
            self._pending[0].cycle.disconnected = True  # the application is to say no more
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
