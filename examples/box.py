"""A box on magline: subscribes, prints what is pushed, acknowledges it; publishes; calls a numbered service.

    wirelake serve &
    wirelake identity add box-1 --token secret
    python examples/box.py --user box-1 --token secret @boxes
    python examples/box.py --user box-1 --token secret --publish @boxes 'open up'
    python examples/box.py --user box-1 --token secret --call 17 'hello'

It prints the gateway's public key; give it with --pin the next time, and no other gateway will do. A lost connection is
taken up where it was.
"""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing, suppress

from wirelake.clients.magline import MaglineClient
from wirelake.errors import WirelakeError


async def listen(client: MaglineClient, count: int | None) -> None:
    """Each is acknowledged when the next is asked for: had we failed to show it, it would come again."""
    shown = 0
    async with aclosing(client.notifications()) as coming:
        async for notification in coming:
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
    parser.add_argument("--user", required=True, help="the name of an identity")
    parser.add_argument("--token", default=os.environ.get("TOKEN", ""), help="or in TOKEN")
    parser.add_argument("--pin", metavar="HEX", help="the gateway's public key, as printed the last time")
    parser.add_argument("--publish", nargs=2, metavar=("TOPIC", "CONTENT"), help="publish, print the id, and end")
    parser.add_argument("--call", nargs=2, metavar=("NUMBER", "TEXT"), help="ask service magline/NUMBER, and end")
    parser.add_argument("--count", type=int, help="end after so many notifications")
    parser.add_argument("--seconds", type=float, help="end after so long")
    try:
        asyncio.run(run(parser.parse_args()))
    except WirelakeError as error:
        sys.exit(f"box: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
