"""A device: reports to the gateway until its receipts come, and answers what the gateway asks."""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import asdict

from wirelake.backoff import Backoff
from wirelake.clients.caller import Caller
from wirelake.clients.faults import Mangle
from wirelake.clients.session_pump import SessionPump
from wirelake.clients.transport import ClientTransport, DatagramTransport, StreamTransport
from wirelake.errors import AnswerError, InputError, LateError, ProtocolError, StateError, TranslationError
from wirelake.limits import CLIENT_ANSWERS_WAITING_MAX, CLIENT_CLOSE_S, CLIENT_CONNECT_S, CLIENT_SERVED_MAX
from wirelake.message import BROADCAST, Failure, Kind, Message
from wirelake.protocols.apostol.client import ClientSession
from wirelake.protocols.apostol.commands import Reading, Status
from wirelake.protocols.apostol.opcodes import REQUEST_BIT, CommandType, ErrorCode
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Closing

_log = logging.getLogger(__name__)

Data = bytes | Status | Sequence[Reading]


class DeviceRequest(Struct, frozen=True):
    """What the gateway asks of a device. The answer has the type without its highest bit."""

    command_type: int  # 128 and up
    data: bytes
    broadcast: bool = False  # for all devices; the answer goes to whoever collects them
    sealed: bool = False


class DeviceError(AnswerError):
    """Raise it in a handler: the device answers with this error (1 to 4)."""

    def __init__(self, code: int = ErrorCode.UNSPECIFIED, text: str = "") -> None:
        super().__init__(text, code)


Handler = Callable[[DeviceRequest], Awaitable[Data]]


async def refuse_all(request: DeviceRequest) -> Data:  # noqa: ARG001 (a Handler)
    """The handler of a device that can be asked nothing."""
    raise DeviceError(ErrorCode.UNKNOWN_COMMAND)


class ApostolDevice:
    """Use it with `async with`. Its session outlives its connections: what has no receipt is sent again.

    `key` (16 bytes) opens what comes sealed, and seals reports unless they say otherwise. `handler` answers requests.
    `mangle` may lose, repeat and reorder its packets, and over UDP those for it: see `faults.py`.
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
        tls: ssl.SSLContext | None = None,
        connect_s: float | None = CLIENT_CONNECT_S,
        backoff: Backoff | None = None,
        mangle: Mangle | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_s: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`time_s` is the device's own clock, which its reports bear."""
        if transport == "udp" and tls is not None:
            raise InputError("apostol over UDP has no TLS: seal the commands, or use TCP")
        self.serial = serial
        self.handler = handler
        self.unreadable = 0  # datagrams, or connections, with bytes that are no packet
        self.troubles: list[Message] = []  # the last commands to this device that came to nothing, with the reason
        self._host = host
        self._port = port
        self._carrier = Carrier.TCP if transport == "tcp" else Carrier.UDP
        self._connect_s = connect_s
        self._clock = clock
        self._time_s = time_s
        self._mangle = mangle
        self._caller = Caller(host, port, tls, backoff or Backoff(), clock)
        self._session = ClientSession(clock(), random, serial, device_type, key, settings)
        self._pump: SessionPump | None = None
        self._line: ClientTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._number = 0
        self._serving: set[asyncio.Task[None]] = set()

    # For users

    @property
    def connected(self) -> bool:
        """TCP: whether there is a connection. UDP: whether it is open."""
        return self._line is not None

    async def open(self) -> None:
        """UDP needs nobody at the other end. TCP: LateError if no connection comes about in time."""
        if self._pump is not None:
            raise StateError("a device can be opened only once")
        self._pump = SessionPump(
            PROTOCOL,
            self._carrier,
            self._session,
            self._clock,
            write=self._write,
            heard=self._heard,
            ended=self._ended,
            unreadable=self._bad,
        )
        if self._carrier is Carrier.UDP:
            loop = asyncio.get_running_loop()
            _, line = await loop.create_datagram_endpoint(DatagramTransport, remote_addr=(self._host, self._port))
            self._use(line)
            return
        self._task = asyncio.create_task(self._caller.run(self._serve))
        try:
            async with asyncio.timeout(self._connect_s):
                await self._connected.wait()
        except TimeoutError as error:
            raise LateError(f"not connected within {self._connect_s:g} s: {self._caller.trouble}") from error
        finally:
            if not self._connected.is_set():
                await self.close()

    async def close(self) -> None:
        """Reports without all their receipts fail. May be called twice."""
        if self._pump is None:
            return
        closing = Closing("normal", "the device was closed")
        self._ended(closing)
        self._pump.end(closing)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        line, self._line = self._line, None
        if line is not None:
            line.close()
        if isinstance(line, StreamTransport):
            await asyncio.wait([line.ended], timeout=CLIENT_CLOSE_S)
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
        """Returns once the gateway has every packet on disk; LateError if it did not say so after all repeats.

        `sealed` None: if there is a key. `device_time` None: now, by the device's clock. `broadcast`: to everybody, so
        without the serial; the gateway knows the device by its address, and so has to have heard from it before.
        """
        if self._pump is None or self._pump.closing is not None:
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
            self._pump.say(message)
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

    # Inside

    async def _serve(self, line: StreamTransport) -> None:
        if self._pump is not None:
            self._pump.restart()
        self._use(line)
        try:
            await line.ended
        finally:
            self._line = None

    def _use(self, line: DatagramTransport | StreamTransport) -> None:
        line.receive = self._received
        self._line = line
        self._connected.set()

    def _write(self, packets: list[bytes]) -> None:
        if self._mangle is not None:
            packets = [sent for packet in packets for sent in self._mangle(packet, Sender.CLIENT)]
        if self._line is not None and packets:  # else they are lost, and sent again without their receipts
            self._line.write(packets)

    def _received(self, data: bytes) -> None:
        if self._pump is None or self._pump.closing is not None:
            return
        if self._mangle is None or self._carrier is Carrier.TCP:
            self._pump.receive(data)
            return
        for arrived in self._mangle(data, Sender.SERVER):
            self._pump.receive(arrived)

    def _bad(self, error: ProtocolError) -> None:
        """UDP: the rest of the datagram is dropped. TCP: this connection is over, the session is not."""
        self.unreadable += 1
        if isinstance(self._line, StreamTransport):
            self._line.close(str(error))

    def _ended(self, closing: Closing) -> None:
        for receipt in self._receipts.values():
            if not receipt.done():
                receipt.set_exception(StateError(closing.text))

    def _heard(self, message: Message) -> None:
        if message.kind is Kind.RESPONSE:
            self._receipted(message)
        elif "state" in message.fields:
            _log.info("device %s: command failed: %s", self.serial, message.fields)
            self.troubles = [*self.troubles[-CLIENT_SERVED_MAX:], message]
        elif len(self._serving) < CLIENT_SERVED_MAX:
            task = asyncio.create_task(self._answer(message))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        else:
            self._say_answer(message, b"", ErrorCode.UNSPECIFIED)

    def _receipted(self, message: Message) -> None:
        receipt = self._receipts.get(message.correlation)
        if receipt is None or receipt.done():
            return
        if message.failure is None:
            receipt.set_result(None)
        else:
            receipt.set_exception(LateError(message.failure.text))

    async def _answer(self, message: Message) -> None:
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
        except Exception:  # noqa: BLE001 a fault of the handler's is an answer too
            _log.exception("device %s: request handler failed", self.serial)
            error = ErrorCode.UNSPECIFIED
        self._say_answer(message, data, error)

    def _say_answer(self, request: Message, data: Data, error: int) -> None:
        if self._pump is None or self._pump.closing is not None:
            return
        command_type = request.fields["command_type"] & ~REQUEST_BIT
        fields = {"command_type": command_type, "error": error, "device_time": int(self._time_s())}
        answer = Message(kind=Kind.RESPONSE, correlation=request.correlation)
        try:
            self._pump.say(_with_data(answer, fields, data))
        except (TranslationError, StateError) as fault:
            _log.error("device %s: cannot send the response to command %d: %s", self.serial, command_type, fault)
            failure = Failure("unspecified", ErrorCode.UNSPECIFIED)
            self._pump.say(_with_data(answer, {**fields, "error": failure.code}, b""))


def _with_data(message: Message, fields: dict[str, Any], data: Data) -> Message:
    """Known contents travel as fields, so that the session can check them."""
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
