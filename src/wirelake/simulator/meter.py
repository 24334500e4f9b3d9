"""A meter on apostol: reports its status and readings, and answers the transparent data that it is sent."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from wirelake.clients.apostol import ApostolDevice, Data, DeviceError, DeviceRequest
from wirelake.clients.faults import Faults
from wirelake.errors import AnswerError
from wirelake.protocols.apostol.commands import Reading
from wirelake.protocols.apostol.opcodes import REQUEST_BIT, CommandType, ErrorCode
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.limits import (
    SIMULATOR_COMMAND_MS,
    SIMULATOR_PACKET_DATA_BYTES,
    SIMULATOR_RECEIPT_S,
    SIMULATOR_RESENDS_MAX,
)
from wirelake.simulator.member import Member
from wirelake.simulator.world import World

SETTINGS: Final = SessionSettings(
    receipt_s=SIMULATOR_RECEIPT_S,
    resends_max=SIMULATOR_RESENDS_MAX,
    packet_data_bytes=SIMULATOR_PACKET_DATA_BYTES,  # so that readings come in several packets
)
ZIPPED: Final = 0.3  # of the readings
VOLTAGE, ENERGY, FREQUENCY = 1, 2, 3


class Meter(Member):
    def __init__(self, world: World, place: FleetMember) -> None:
        super().__init__(world, place)
        host, port = world.address("apostol")
        chances = world.faults
        self._faults = Faults(
            Random(f"faults {world.seed} {place.name}"),  # noqa: S311 (repeatable, not secret)
            lose=chances.loss,
            repeat=chances.duplicate,
            delay=chances.reorder,
            corrupt=0.0 if place.stream else chances.corrupt,
        )
        self._energy_wh = 1000 * place.number
        self._device = ApostolDevice(
            host,
            port,
            place.name,
            0,
            place.key,
            transport="tcp" if place.stream else "udp",
            handler=self._answer,
            tls=world.tls if place.stream else None,
            settings=SETTINGS,
            mangle=self._faults,
        )

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        return {"status": self._status, "readings": self._readings, "command": self._command}

    async def connect(self) -> None:
        """The first report tells the gateway where this device is."""
        await self._device.open()
        self.connected()
        await self.count("status", self._device.status(1))

    async def disconnect(self) -> None:
        await self._device.close()
        for name, count in self._faults.made.items():
            self.world.report.faults[name] += count

    async def _status(self, act: Act) -> None:
        random = act.random()
        state, tariff = random.choice((1, 1, 1, 2)), random.randrange(4)
        await self.count("status", self._device.status(state, tariff=tariff))

    async def _readings(self, act: Act) -> None:
        random = act.random()
        zipped = random.random() < ZIPPED
        await self.count("readings", self._device.readings(self._measured(random), zipped=zipped))

    def _measured(self, random: Random) -> list[Reading]:
        self._energy_wh += random.randrange(50)
        measured = [Reading(VOLTAGE, random.gauss(230, 3)), Reading(ENERGY, self._energy_wh, 4)]
        measured.append(Reading(FREQUENCY, random.gauss(50, 0.02)))
        return measured + [Reading(kind, random.randrange(65_536)) for kind in range(10, 10 + random.randrange(20))]

    async def _command(self, act: Act) -> None:
        """The gateway is asked to ask this device, which echoes."""
        await self.count("command", self._echoed(act.random().randbytes(16)))

    async def _echoed(self, data: bytes) -> None:
        body = {"type": CommandType.TRANSPARENT | REQUEST_BIT, "data": data.hex(), "wait_ms": SIMULATOR_COMMAND_MS}
        answer = await self.world.ask("POST", f"/api/devices/{self.place.name}/commands", body)
        if answer.get("data") != data.hex():
            raise AnswerError("unexpected response of the device", 0)

    async def _answer(self, request: DeviceRequest) -> Data:
        self.counts("command").received += 1
        if request.command_type & ~REQUEST_BIT != CommandType.TRANSPARENT:
            raise DeviceError(ErrorCode.UNKNOWN_COMMAND)
        return request.data
