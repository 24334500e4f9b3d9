"""Frames of our own protocols, as they were on the wire between our clients and a gateway."""

import random
from collections.abc import Iterator
from pathlib import Path

from capture.recording import LOGIN, Conversing, Recording, record_conversation
from gateway.running_gateway import HOST, Running

from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier
from wirelake.workbench.evidence import Sample

ROUNDS = 40
METER_ROUNDS = 90  # of three reports: the number of commands wraps, which shows that it is one byte
_WORDS = ["calm", "grey", "sea", "under", "a", "slow", "bright", "moon", "while", "small", "boats", "come", "home"]


def _phrases() -> Iterator[str]:
    """Yield texts of many lengths, the same in every run."""
    dice = random.Random(7)
    while True:
        yield " ".join(dice.choices(_WORDS, k=dice.randrange(1, 60)))


async def _comet(port: int, running: Running) -> None:
    phrases = _phrases()
    async with CometClient(HOST, port, *LOGIN) as client:
        for number in range(ROUNDS):
            await client.subscribe(f"@news/{number}")
            await running.publish(f"@news/{number}", next(phrases), type=number % 5)
            await client.ack((await client.next_notification(60)).id)
            await client.report_environ(extra=[next(phrases)[:30]])
            await client.topics()
            await client.unsubscribe(f"@news/{number}")


async def _magline(port: int, _: Running) -> None:
    phrases = _phrases()
    async with MaglineClient(HOST, port, *LOGIN) as client:
        for number in range(ROUNDS):
            await client.publish("@news", next(phrases))
            if number % 4 == 0:
                await client.ping()


async def _esnp(port: int, _: Running) -> None:
    phrases = _phrases()
    async with EsnpClient(HOST, port, *LOGIN) as client:
        for _round in range(ROUNDS):
            await client.publish("@news", next(phrases))


async def _apostol(port: int, _: Running) -> None:
    dice = random.Random(7)
    async with ApostolDevice(HOST, port, "meter-1", 6, transport="tcp") as meter:
        for number in range(METER_ROUNDS):
            await meter.status(number % 4, tariff=number % 3)
            await meter.readings({kind: dice.random() * 100 for kind in range(dice.randrange(1, 9))})
            await meter.report(2, dice.randbytes(dice.randrange(1, 60)))


CONVERSATIONS: dict[str, Conversing] = {"comet": _comet, "magline": _magline, "esnp": _esnp, "apostol": _apostol}


async def recorded(name: str, folder: Path) -> Recording:
    return (await record_conversation(name, CONVERSATIONS[name], False, folder))[0]


def samples_of(name: str, recording: Recording) -> list[Sample]:
    """Return the frames of both ends, cut by the codec."""
    found = []
    for sender in Sender:
        frames = registry.get(name).splitter(sender, Carrier.TCP).receive(recording.sent(sender))
        found += [Sample(frame, sender.value) for frame in frames]
    return found


def segments_of(recording: Recording) -> list[Sample]:
    """Return what was read from the sockets, which knows nothing of frames."""
    return [Sample(chunk.data, chunk.sender.value) for chunk in recording.chunks]


def beacon_samples(count: int = 60) -> list[Sample]:
    """Return readings as beacons send them: `BE | u8 n | station[n] | i16 tenths of a degree`."""
    dice = random.Random(3)
    found = []
    for _ in range(count):
        station = "".join(dice.choices(_WORDS, k=dice.randrange(1, 5))).title().encode()
        tenths = dice.randrange(-300, 400).to_bytes(2, signed=True)
        found.append(Sample(bytes((0xBE, len(station))) + station + tenths))
    return found
