"""Run a station on esnp: provide a service, call one, trace a request, listen to topics.

    wirelake serve &
    wirelake identity add station-1 --token secret
    python examples/station.py --user station-1 --token secret --serve adder @news &
    python examples/station.py --user station-1 --token secret --ask adder/add '{"numbers": [1, 2, 3]}'
    python examples/station.py --user station-1 --token secret --trace adder/add '{"numbers": [4, 5]}'
    python examples/station.py --user station-1 --token secret --ask 'devices/command?o=1234' '{"type": 130}'
    wirelake publish @news 'hello'

It reconnects automatically and restores its topics and its service.
"""

import argparse
import asyncio
import json
import os
import sys
from contextlib import aclosing, suppress
from typing import Any

from wirelake.clients.esnp import EsnpClient
from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.errors import WirelakeError


async def add(request: ServiceRequest) -> dict[str, Any]:
    """Handle a request to the service, from a client of any protocol."""
    numbers = request.value.get("numbers") if isinstance(request.value, dict) else None
    if request.op != "add" or not isinstance(numbers, list):
        raise ServiceError('expected add {"numbers": [1, 2]}', 400)
    return {"sum": sum(numbers)}


async def listen(client: EsnpClient, count: int | None) -> None:
    shown = 0
    async with aclosing(client.notifications()) as notifications:
        async for notification in notifications:
            print(f"{notification.topic} {notification.id} {notification.text}", flush=True)
            shown += 1
            if shown == count:
                return


async def run(options: argparse.Namespace) -> None:
    async with EsnpClient(options.host, options.port, options.user, options.token) as client:
        if options.ask:
            address, value = options.ask
            print(json.dumps(await client.ask(address, json.loads(value))))
            return
        if options.trace:
            address, value = options.trace
            answer, hops = await client.trace(address, json.loads(value))
            for hop in hops:
                print(f"{hop.at_ms} {hop.hop} {hop.node}")
            print(json.dumps(answer))
            return
        if options.serve:
            await client.register(options.serve, add)
        await client.subscribe(*options.topics)
        print(f"listening to {' '.join(options.topics) or 'nothing'}", flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await listen(client, options.count)


def main() -> None:
    parser = argparse.ArgumentParser(description="A station on esnp.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="durable if it starts with @, else live")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1080)
    parser.add_argument("--user", required=True, help="name of an identity")
    parser.add_argument("--token", default=os.environ.get("TOKEN", ""), help="default: the environment variable TOKEN")
    parser.add_argument("--serve", metavar="NAME", help="provide a service of this name that adds numbers")
    parser.add_argument("--ask", nargs=2, metavar=("ADDRESS", "JSON"), help="call a service and exit")
    parser.add_argument("--trace", nargs=2, metavar=("ADDRESS", "JSON"), help="call, print every hop, and exit")
    parser.add_argument("--count", type=int, help="stop after this many notifications")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"station: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
