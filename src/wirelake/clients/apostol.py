"""Connect a device over apostol: send reports until their receipts arrive, and respond to requests."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from msgspec import Struct
from msgspec.structs import asdict

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, resolve_options
from wirelake.clients.driver import ClientDriver
from wirelake.clients.faults import Mangle
from wirelake.clients.transport import ClientTransport, DatagramTransport, Reconnector, StreamTransport
from wirelake.errors import AnswerError, InputError, LateError, ProtocolError, StateError, TranslationError
from wirelake.limits import CLIENT_ANSWERS_WAITING_MAX, CLIENT_CLOSE_S, CLIENT_SERVED_MAX
from wirelake.message import BROADCAST, Failure, Kind, Message
from wirelake.protocols.apostol.client import ClientSession
from wirelake.protocols.apostol.commands import Reading, Status
from wirelake.protocols.apostol.constants import REQUEST_BIT, CommandType, ErrorCode
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Closing

_log = logging.getLogger(__name__)

Data = bytes | Status | Sequence[Reading]


class DeviceRequest(Struct, frozen=True):
    """Describe a request of the gateway to a device. The response has the type without its highest bit."""

    command_type: int  # 128 and up
    data: bytes
    broadcast: bool = False  # to all devices; the gateway collects the responses
    sealed: bool = False


class DeviceError(AnswerError):
    """Raise it in a handler: the device responds with this error (1 to 4)."""

    def __init__(self, code: int = ErrorCode.UNSPECIFIED, text: str = "") -> None:
        super().__init__(text, code)


Handler = Callable[[DeviceRequest], Awaitable[Data]]


async def refuse_all(request: DeviceRequest) -> Data:  # noqa: ARG001 (a Handler)
    """Refuse every request: the default handler."""
    raise DeviceError(ErrorCode.UNKNOWN_COMMAND)


class ApostolDevice:
    """Report to a gateway as a device. Use it with `async with`.

    The session outlives its connections: packets without a receipt are sent again. `key` (16 bytes) opens sealed
    commands, and seals reports unless you pass `sealed=False`. `handler` responds to requests. `mangle` may lose,
    repeat and reorder the packets that the device sends, and over UDP those that it receives: see `faults.py`. `time_s`
    is the device's own clock, for the time in its reports. `answer_s` and `inbox_max` have no effect on a device.
    """

    def __init__(
        self,
        host: str,
        port: int,
        serial: str,
        device_type: int = 0,
        key: bytes | None = None,
        *,
        transport: Literal["udp", "tcp"] = "udp",
        handler: Handler = refuse_all,
        settings: SessionSettings = SessionSettings(),
        mangle: Mangle | None = None,
        time_s: Callable[[], float] = time.time,
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        if transport == "udp" and options.tls is not None:
            raise InputError("apostol over UDP has no TLS: seal the commands, or use TCP")
        self.serial = serial
        self.handler = handler
        self.unreadable = 0  # datagrams, or connections, with bytes that are no packet
        self.troubles: list[Message] = []  # the last commands to this device that failed, with the reason
        self._host = host
        self._port = port
        self._carrier = Carrier.TCP if transport == "tcp" else Carrier.UDP
        self._options = options
        self._time_s = time_s
        self._mangle = mangle
        self._reconnector = Reconnector(
            host, port, options.tls, options.new_backoff(), options.clock, lambda: StreamTransport(self._on_data)
        )
        self._session = ClientSession(options.clock(), options.random, serial, device_type, key, settings)
        self._driver: ClientDriver | None = None
        self._transport: ClientTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._number = 0
        self._serving: set[asyncio.Task[None]] = set()

    # For users

    @property
    def connected(self) -> bool:
        """Return whether there is a connection (TCP), or whether the device is open (UDP)."""
        return self._transport is not None

    async def open(self) -> None:
        """Open the device. Over TCP, LateError if there is no connection in time; UDP needs no gateway yet."""
        if self._driver is not None:
            raise StateError("a device can be opened only once")
        self._driver = ClientDriver(
            PROTOCOL,
            self._carrier,
            self._session,
            self._options.clock,
            write=self._write,
            on_message=self._on_message,
            on_close=self._on_session_closed,
            on_unreadable=self._on_unreadable,
        )
        if self._carrier is Carrier.UDP:
            loop = asyncio.get_running_loop()
            _, self._transport = await loop.create_datagram_endpoint(
                lambda: DatagramTransport(self._on_data), remote_addr=(self._host, self._port)
            )
            return
        connect_s = self._options.connect_s
        self._task = asyncio.create_task(self._reconnector.run(self._serve))
        try:
            async with asyncio.timeout(connect_s):
                await self._connected.wait()
        except TimeoutError as error:
            raise LateError(f"not connected within {connect_s:g} s: {self._reconnector.last_error}") from error
        finally:
            if not self._connected.is_set():
                await self.close()

    async def close(self) -> None:
        """Close the device; reports without all their receipts fail. A second call does nothing."""
        if self._driver is None:
            return
        closing = Closing("normal", "the device was closed")
        self._on_session_closed(closing)
        self._driver.close(closing)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        if isinstance(transport, StreamTransport):
            await asyncio.wait([transport.ended], timeout=CLIENT_CLOSE_S)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def report(
        self,
        command_type: int,
        data: Data = b"",
        *,
        error: int = 0,
        zipped: bool = False,
        sealed: bool | None = None,
        device_time: int | None = None,
        broadcast: bool = False,
    ) -> None:
        """Report, and return once the gateway has every packet on disk. LateError if it did not confirm all repeats.

        `sealed` None seals if there is a key. `device_time` None is now, by the device's clock. `broadcast` sends the
        report to all subscribers, without the serial: the gateway identifies the device by its address, which it
        knows from an earlier report.
        """
        if self._driver is None or self._driver.closing is not None:
            raise StateError("the device is not open")
        if len(self._receipts) >= CLIENT_ANSWERS_WAITING_MAX:
            raise StateError(
                f"{CLIENT_ANSWERS_WAITING_MAX} reports are waiting for receipts (CLIENT_ANSWERS_WAITING_MAX)"
            )
        self._number += 1
        correlation = str(self._number)
        time_s = int(self._time_s()) if device_time is None else device_time
        fields = {"command_type": command_type, "error": error, "device_time": time_s}
        headers: dict[str, Any] = {"zipped": zipped, BROADCAST: broadcast}
        if sealed is not None:
            headers["sealed"] = sealed
        message = _with_data(Message(kind=Kind.TELEMETRY, correlation=correlation, headers=headers), fields, data)
        receipt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receipts[correlation] = receipt
        try:
            self._driver.send(message)
            await receipt
        finally:
            del self._receipts[correlation]

    async def status(
        self,
        state: int,
        *,
        tariff: int = 0,
        configured_at: int = 0,
        time_sync: int = 0,
        synced_at: int = 0,
        sealed: bool | None = None,
    ) -> None:
        """Report a status (command 1)."""
        status = Status(state, tariff, configured_at, time_sync, synced_at)
        await self.report(CommandType.STATUS, status, sealed=sealed)

    async def readings(
        self,
        readings: dict[int, int | float | bytes] | Sequence[Reading],
        *,
        zipped: bool = False,
        sealed: bool | None = None,
    ) -> None:
        """Report readings (command 4): values by type, each in the smallest size that holds it."""
        if isinstance(readings, dict):
            readings = [Reading(kind, value) for kind, value in readings.items()]
        await self.report(CommandType.READINGS, readings, zipped=zipped, sealed=sealed)

    # Internal

    async def _serve(self, transport: StreamTransport) -> None:
        if self._driver is not None:
            self._driver.restart()
        self._transport = transport
        self._connected.set()
        try:
            await transport.ended
        finally:
            self._transport = None

    def _write(self, packets: list[bytes]) -> None:
        if self._mangle is not None:
            packets = [sent for packet in packets for sent in self._mangle(packet, Sender.CLIENT)]
        if self._transport is not None and packets:  # else they get no receipt, and the session resends them
            self._transport.write(packets)

    def _on_data(self, data: bytes) -> None:
        if self._driver is None or self._driver.closing is not None or self._transport is None:
            return
        if self._mangle is None or self._carrier is Carrier.TCP:
            self._driver.receive(data)
            return
        for arrived in self._mangle(data, Sender.SERVER):
            self._driver.receive(arrived)

    def _on_unreadable(self, error: ProtocolError) -> None:
        """Drop the rest of a datagram, or close the TCP connection; the session goes on."""
        self.unreadable += 1
        if isinstance(self._transport, StreamTransport):
            self._transport.close(str(error))

    def _on_session_closed(self, closing: Closing) -> None:
        for receipt in self._receipts.values():
            if not receipt.done():
                receipt.set_exception(StateError(closing.text))

    def _on_message(self, message: Message) -> None:
        if message.kind is Kind.RESPONSE:
            self._on_receipt(message)
        elif "state" in message.fields:
            _log.info("device %s: command failed: %s", self.serial, message.fields)
            self.troubles = [*self.troubles[-CLIENT_SERVED_MAX:], message]
        elif len(self._serving) < CLIENT_SERVED_MAX:
            task = asyncio.create_task(self._handle(message))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        else:
            self._respond(message, b"", ErrorCode.UNSPECIFIED)

    def _on_receipt(self, message: Message) -> None:
        receipt = self._receipts.get(message.correlation)
        if receipt is None or receipt.done():
            return
        if message.failure is None:
            receipt.set_result(None)
        else:
            receipt.set_exception(LateError(message.failure.text))

    async def _handle(self, message: Message) -> None:
        broadcast = message.kind is Kind.EVENT
        request = DeviceRequest(
            message.fields["command_type"], message.payload, broadcast, bool(message.headers.get("sealed"))
        )
        data: Data = b""
        error = 0
        try:
            data = await self.handler(request)
        except DeviceError as refused:
            error = refused.code
        except Exception:  # noqa: BLE001 the gateway must get a response whatever the handler raises
            _log.exception("device %s: request handler failed", self.serial)
            error = ErrorCode.UNSPECIFIED
        self._respond(message, data, error)

    def _respond(self, request: Message, data: Data, error: int) -> None:
        if self._driver is None or self._driver.closing is not None:
            return
        command_type = request.fields["command_type"] & ~REQUEST_BIT
        fields = {"command_type": command_type, "error": error, "device_time": int(self._time_s())}
        answer = Message(kind=Kind.RESPONSE, correlation=request.correlation)
        try:
            self._driver.send(_with_data(answer, fields, data))
        except (TranslationError, StateError) as fault:
            _log.error("device %s: cannot send the response to command %d: %s", self.serial, command_type, fault)
            failure = Failure("unspecified", ErrorCode.UNSPECIFIED)
            self._driver.send(_with_data(answer, {**fields, "error": failure.code}, b""))


def _with_data(message: Message, fields: dict[str, Any], data: Data) -> Message:
    """Return the message with its data; known contents become fields, so that the session can check them."""
    payload = b""
    if isinstance(data, bytes):
        payload = data
    elif isinstance(data, Status):
        fields = {**fields, "status": asdict(data)}
    else:
        fields = {**fields, "readings": [asdict(reading) for reading in data]}
    return Message(
        kind=message.kind, correlation=message.correlation, headers=message.headers, fields=fields, payload=payload
    )
