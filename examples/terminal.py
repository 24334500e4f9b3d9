"""Run a terminal on sisnet, by WebSocket or TCP: listen to topics, call a service, provide one.

    wirelake serve &
    wirelake identity add desk --token secret
    python examples/terminal.py --user desk --token secret --serve adder @news &
    wirelake publish @news 'hello'
    wirelake request adder/add '{"numbers": [1, 2, 3]}'
    python examples/terminal.py --user desk --token secret --ask adder/add '{"numbers": [4, 5]}'

It reconnects automatically and restores its topics and its service.
"""

import argparse
import asyncio
import json
import os
import sys
from contextlib import aclosing, suppress
from typing import Any

from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import WirelakeError


async def add(request: ServiceRequest) -> dict[str, Any]:
    """Handle a request to the service, from a client of any protocol."""
    numbers = request.value.get("numbers") if isinstance(request.value, dict) else None
    if request.op != "add" or not isinstance(numbers, list):
        raise ServiceError('expected add {"numbers": [1, 2]}', 400)
    print(f"adding {numbers}", flush=True)
    return {"sum": sum(numbers)}


async def listen(client: SisnetClient, count: int | None) -> None:
    shown = 0
    async with aclosing(client.notifications()) as notifications:
        async for notification in notifications:
            print(f"{notification.topic} {notification.id} {notification.text}", flush=True)
            shown += 1
            if shown == count:
                return


async def run(options: argparse.Namespace) -> None:
    async with SisnetClient(options.url, options.user, options.token) as client:
        if options.ask:
            service, _, op = options.ask[0].rpartition("/")
            print(json.dumps(await client.ask(service, op, json.loads(options.ask[1]))))
            return
        if options.serve:
            await client.register(options.serve, add)
        await client.subscribe(*options.topics)
        print(f"listening to {' '.join(options.topics) or 'nothing'}", flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await listen(client, options.count)


def main() -> None:
    parser = argparse.ArgumentParser(description="A terminal on sisnet.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="durable if it starts with @, else live")
    parser.add_argument("--url", default="ws://127.0.0.1:7329", help="or wss://, tcp://, tls://")
    parser.add_argument("--user", required=True, help="name of an identity")
    parser.add_argument("--token", default=os.environ.get("TOKEN", ""), help="default: the environment variable TOKEN")
    parser.add_argument("--serve", metavar="NAME", help="provide a service of this name that adds numbers")
    parser.add_argument("--ask", nargs=2, metavar=("SERVICE/OP", "JSON"), help="call a service and exit")
    parser.add_argument("--count", type=int, help="stop after this many notifications")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"terminal: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
