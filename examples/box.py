"""Run a box on magline: subscribe, print and acknowledge notifications; publish; call a numbered service.

    wirelake serve &
    wirelake identity add box-1 --token secret
    python examples/box.py --user box-1 --token secret @boxes
    python examples/box.py --user box-1 --token secret --publish @boxes 'open up'
    python examples/box.py --user box-1 --token secret --call 17 'hello'

It prints the gateway's public key: pass it with --pin the next time to accept no other gateway. After a lost connection
it resumes its session.
"""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing, suppress

from wirelake.clients.magline import MaglineClient
from wirelake.errors import WirelakeError


async def listen(client: MaglineClient, count: int | None) -> None:
    """Print notifications. Each is acked when the next is requested, so that a failure delivers it again."""
    shown = 0
    async with aclosing(client.notifications()) as notifications:
        async for notification in notifications:
            print(f"{notification.topic} {notification.id} {notification.text}", flush=True)
            shown += 1
            if shown == count:
                await client.ack(notification.id)
                return


async def run(options: argparse.Namespace) -> None:
    pinned = bytes.fromhex(options.pin) if options.pin else None
    async with MaglineClient(options.host, options.port, options.user, options.token, pinned=pinned) as client:
        if options.publish:
            topic, content = options.publish
            print(await client.publish(topic, content))
            return
        if options.call:
            number, text = options.call
            print((await client.call(int(number), text.encode())).decode(errors="replace"))
            return
        print(f"the gateway's key is {client.server_public.hex()}", flush=True)
        await client.subscribe(*options.topics)
        print(f"listening to {' '.join(options.topics)}", flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await listen(client, options.count)


def main() -> None:
    parser = argparse.ArgumentParser(description="A box on magline.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="durable if it starts with @, else live")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9757)
    parser.add_argument("--user", required=True, help="name of an identity")
    parser.add_argument("--token", default=os.environ.get("TOKEN", ""), help="default: the environment variable TOKEN")
    parser.add_argument("--pin", metavar="HEX", help="public key of the gateway, as printed before")
    parser.add_argument("--publish", nargs=2, metavar=("TOPIC", "CONTENT"), help="publish, print the id, and exit")
    parser.add_argument("--call", nargs=2, metavar=("NUMBER", "TEXT"), help="call the service magline/NUMBER, and exit")
    parser.add_argument("--count", type=int, help="stop after this many notifications")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"box: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
