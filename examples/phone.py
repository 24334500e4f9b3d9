"""Run a phone on comet: subscribe, print and acknowledge notifications.

    wirelake serve &
    wirelake identity add alice --token secret
    python examples/phone.py --client alice --token secret @news
    wirelake publish @news 'hello'

It reconnects automatically; what was published while it was away comes first.
"""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from wirelake.clients.comet import CometClient
from wirelake.clients.notification import Notification
from wirelake.errors import WirelakeError


def show(notification: Notification) -> None:
    at = datetime.fromtimestamp(notification.at_ms / 1000, UTC)
    print(f"{at:%H:%M:%S} {notification.id} {notification.text}", flush=True)


async def listen(client: CometClient, count: int | None) -> None:
    """Print notifications. Each is acked when the next is requested, so that a failure delivers it again."""
    shown = 0
    async with aclosing(client.notifications()) as notifications:
        async for notification in notifications:
            show(notification)
            shown += 1
            if shown == count:
                await client.ack(notification.id)
                return


async def run(options: argparse.Namespace) -> None:
    client = CometClient(options.host, options.port, options.client, options.token, secret_bytes=options.seal)
    async with client:
        await client.subscribe(*options.topics)
        print(f"subscribed to {' '.join(await client.topics())}", flush=True)
        await client.report_environ(network_type=1, phone_type="example")
        if options.once:
            async for notification in client.drain_backlog():
                show(notification)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await listen(client, options.count)


def main() -> None:
    parser = argparse.ArgumentParser(description="A phone on comet.")
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="starts with @")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7334)
    parser.add_argument("--client", required=True, help="name of an identity")
    parser.add_argument("--token", default=os.environ.get("TOKEN", ""), help="default: the environment variable TOKEN")
    parser.add_argument(
        "--seal", type=int, choices=(0, 16, 32), default=0, help="bytes of the key that encrypts content"
    )
    parser.add_argument("--once", action="store_true", help="print the backlog and exit")
    parser.add_argument("--count", type=int, help="stop after this many notifications")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"phone: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
