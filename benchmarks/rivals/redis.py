"""A redis command. It is text, so construct and Kaitai have no good way to declare it; the plain reader finds lines."""

from rivals.rival import Case
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.frames import Command

ARGS = (b"PUBLISH", b"prices.sh600600", b'{"time":1700000000,"newp":101.5}')


def plain(stream: bytes) -> int:
    found, position = [], 0
    while position < len(stream):
        end = stream.index(b"\r\n", position)
        count, position = int(stream[position + 1 : end]), end + 2
        args = []
        for _ in range(count):
            end = stream.index(b"\r\n", position)
            size, position = int(stream[position + 1 : end]), end + 2
            args.append(stream[position : position + size])
            position += size + 2
        found.append(args)
    return len(found)


CASE = Case(
    protocol="redis",
    sender=Sender.CLIENT,
    frame=Command(ARGS),
    fields={"command": ARGS[0], "channel": ARGS[1], "content": ARGS[2]},
    plain=plain,
)
