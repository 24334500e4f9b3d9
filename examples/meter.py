"""Run a meter on apostol: report status and readings every second, and respond to requests.

    wirelake serve &
    wirelake device add meter-1
    python examples/meter.py --serial meter-1
    wirelake send meter-1 130 68656c6c6f

With --key it seals its reports. A line is printed once a report is on the gateway's disk.
"""

import argparse
import asyncio
import math
import sys
import time
from contextlib import suppress

from wirelake.clients.apostol import ApostolDevice, Data, DeviceError, DeviceRequest
from wirelake.errors import LateError, WirelakeError
from wirelake.protocols.apostol.commands import Reading, Status
from wirelake.protocols.apostol.constants import REQUEST_BIT, CommandType, ErrorCode

VOLTAGE, ENERGY = 1, 2  # types of this meter's readings


class Meter:
    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.reports = 0

    def status(self) -> Status:
        return Status(state=1, tariff=0, configured_at=0, time_sync=0, synced_at=0)

    def readings(self) -> list[Reading]:
        up_s = time.monotonic() - self.started_s
        return [Reading(VOLTAGE, 230 + 5 * math.sin(up_s)), Reading(ENERGY, int(up_s * 1000), 4)]

    async def answer(self, request: DeviceRequest) -> Data:
        """Return the status or the readings, or echo transparent data."""
        print(f"request {request.command_type:#04x} {request.data.hex()}", flush=True)
        match request.command_type & ~REQUEST_BIT:
            case CommandType.STATUS:
                return self.status()
            case CommandType.TRANSPARENT:
                return request.data
            case CommandType.READINGS:
                return self.readings()
        raise DeviceError(ErrorCode.UNKNOWN_COMMAND)


async def report(device: ApostolDevice, meter: Meter, every_s: float | None) -> None:
    """Report once, or every `every_s` seconds."""
    while True:
        try:
            await device.report(CommandType.STATUS, meter.status())
            await device.report(CommandType.READINGS, meter.readings())
        except LateError as error:
            if every_s is None:
                raise
            print(f"not confirmed: {error}", flush=True)
        else:
            meter.reports += 1
            print(f"report {meter.reports} is on disk", flush=True)
        if every_s is None:
            return
        await asyncio.sleep(every_s)


async def run(options: argparse.Namespace) -> None:
    meter = Meter()
    device = ApostolDevice(
        options.host,
        options.port,
        options.serial,
        options.type,
        bytes.fromhex(options.key) if options.key else None,
        transport=options.transport,
        handler=meter.answer,
    )
    async with device:
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await report(device, meter, None if options.once else options.every)
    if not meter.reports:
        sys.exit(
            f"meter: no report was confirmed. Is a gateway at {options.host}:{options.port}, and does it know "
            f"{options.serial} (wirelake device add {options.serial})?"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="A meter on apostol.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7332)
    parser.add_argument("--serial", required=True)
    parser.add_argument("--type", type=int, default=0, help="0 IoT, 1 Android, 2 iOS")
    parser.add_argument("--key", help="16 bytes in hex")
    parser.add_argument("--transport", choices=("udp", "tcp"), default="udp")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--once", action="store_true", help="report once and exit")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"meter: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
