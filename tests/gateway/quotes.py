"""A service inside a gateway, to stand behind another: it counts what it is asked, and answers when it is told to."""

import asyncio

from gateway.running import Running, until
from wirelake.broker.peer import Peer
from wirelake.message import Failure, Kind, Message, Operation


class Quotes:
    """`get` is answered at once, `hold` when `answer` is called, `parts` in three packets; `sub` is pushed to."""

    def __init__(self, running: Running, service: str = "quotes") -> None:
        self.asked: list[Message] = []
        self.subscribed: list[tuple[Peer, Message]] = []
        self._held: list[tuple[Peer, Message]] = []
        running.gateway.broker.builtin[service] = self

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        self.asked.append(message)
        target = message.target
        assert isinstance(target, Operation)
        match target.op:
            case "get":
                peer.send(_answer(message, fields={"key": message.fields.get("key"), "price": 7}))
            case "fail":
                peer.send(_answer(message, failure=Failure("no such key", -1)))
            case "bytes":
                peer.send(_answer(message, payload=b"\x00\xff\x80"))
            case "parts":
                for more in (2, 1, 0):
                    peer.send(_answer(message, fields={"part": 3 - more}, more=more))
            case "sub":
                self.subscribed.append((peer, message))
                peer.send(_answer(message))
            case "unsub":
                self.subscribed = [
                    each for each in self.subscribed if (each[0].id, each[1].fields) != (peer.id, message.fields)
                ]
                peer.send(_answer(message))
            case _:
                self._held.append((peer, message))

    def ops(self, op: str) -> int:
        return sum(isinstance(each.target, Operation) and each.target.op == op for each in self.asked)

    async def wait_for(self, op: str, count: int) -> None:
        await until(lambda: self.ops(op) >= count)
        await asyncio.sleep(0)

    def answer(self, *, more: int = 0, **fields: object) -> None:
        """To all that is held."""
        for peer, message in self._held:
            peer.send(_answer(message, fields=fields, more=more))
        if not more:
            self._held.clear()

    def push(self, *row: object) -> None:
        for peer, message in self.subscribed:
            peer.send(Message(kind=Kind.NOTIFICATION, correlation=message.correlation, fields={"msg": [list(row)]}))


def _answer(message: Message, **rest: object) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=message.correlation, **rest)  # type: ignore[arg-type]
