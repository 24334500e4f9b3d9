"""A connection of the HTTP door: uvicorn's, with the limits that every door of the gateway has."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from wirelake.config import Address
from wirelake.gateway.http.errors import ApiError
from wirelake.limits import HTTP_DRAIN_S, HTTP_HEAD_BYTES_MAX, HTTP_REQUEST_S

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

T = TypeVar("T")


class HttpConnection(HttpToolsProtocol):
    """A request has to come within its time and its size; a peer has to take its answer."""

    gateway: ClassVar["Gateway"]
    address = ""
    _let_in = False
    _reason = "peer_closed"
    _head_bytes = 0
    _in_head = True
    _patience: asyncio.TimerHandle | None = None
    _abandonable: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        gateway = self.gateway
        self.address = str(Address(*self.client)) if self.client else ""
        refusal = gateway.admission.enter(self.address)
        if refusal:
            gateway.counters.refused["http", refusal] += 1
            transport.abort()
            return
        self._let_in = True
        gateway.counters.accepted["http"] += 1
        gateway.counters.connections["http"] += 1
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        if self._abandonable is not None:
            self._abandonable.cancel()
        if self._let_in:
            self._let_in = False
            self.gateway.admission.leave(self.address)
            self.gateway.counters.connections["http"] -= 1
            self.gateway.counters.closed["http", "lost" if exc else self._reason] += 1

    def data_received(self, data: bytes) -> None:
        if not self._let_in:
            return
        if self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._be_patient()
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HTTP_HEAD_BYTES_MAX:
            self._refuse(ApiError(431, f"the head is over the limit of {HTTP_HEAD_BYTES_MAX} bytes"))

    async def while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work for the request under way; ClientDisconnect if the connection ends meanwhile."""
        self._abandonable = task = self.loop.create_task(work)
        if self.transport.is_closing():
            task.cancel()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():  # it is this request that ends, with the gateway
                task.cancel()
                raise
            raise ClientDisconnect from None
        finally:
            self._abandonable = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self  # a stream that is not read has to be cut off
        self._in_head = True
        self._be_patient()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

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

    def _be_patient(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(HTTP_REQUEST_S, self._too_slow)

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
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # in the middle of another answer
            return
        body = error.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[error.status_code] + head + body)
        self.transport.close()
