"""The magline door: log in, subscribe, push, ack, resume; and what the log keeps of sealed frames."""

import asyncio
import os
from pathlib import Path

from gateway.running import HOST, WAIT_S, Running, running_gateway
from wirelake.message import Credentials, Kind, Message, Op, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Step

BOX = ("box", "t0ken")
LOGIN = control(Op.LOGIN, credentials=Credentials(*BOX), correlation="in")


class Line:
    """A pure client session on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = PROTOCOL.splitter(Sender.SERVER, Carrier.TCP)
        self._heard: list[Message] = []
        self.session = ClientSession(self._now_s(), os.urandom)

    @classmethod
    async def call(cls, running: Running) -> "Line":
        return cls(*await asyncio.open_connection(HOST, running.port("magline")))

    def say(self, message: Message) -> None:
        self._take(self.session.send(message, self._now_s()))

    async def hear(self) -> Message:
        """The next message that the session hands up."""
        async with asyncio.timeout(WAIT_S):
            while not self._heard:
                data = await self._reader.read(65536)
                assert data, "the gateway closed the line"
                for raw in self._splitter.receive(data):
                    self._take(self.session.receive(PROTOCOL.decode(raw, Sender.SERVER), self._now_s()))
        return self._heard.pop(0)

    async def ask(self, message: Message) -> Message:
        self.say(message)
        return await self.hear()

    def hang_up(self) -> None:
        self._writer.close()

    def _take(self, step: Step) -> None:
        self._heard += step.messages
        self._writer.write(b"".join([frame.encode() for frame in step.frames]))

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def test_a_box_logs_in_and_is_pushed_to_and_acks(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
            line = await Line.call(running)
            assert (await line.ask(LOGIN)).failure is None
            answer = await line.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
            assert answer.failure is None
            published = await running.publish("@boxes", "open up")
            pushed = await line.hear()
            assert (pushed.kind, pushed.id, pushed.payload) == (Kind.NOTIFICATION, published, b"open up")
            assert [each.id for each in running.waiting("box")] == [published]
            await line.ask(control(Op.ACK, fields={"ids": [published]}, correlation="a"))
            assert running.waiting("box") == []
            line.hang_up()
            frames = await running.recorded("frame", 3, protocol="magline", direction="in")
            assert any(b'"topics":["@boxes"]' in row["frame"] for row in frames), "the log has the data opened"

    asyncio.run(story())


def test_a_lost_line_is_resumed_with_what_waited(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
            line = await Line.call(running)
            await line.ask(LOGIN)
            await line.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
            sid = line.session.sid
            line.hang_up()
            await running.recorded("close", 1, protocol="magline")
            await running.publish("@boxes", "while away")
            again = await Line.call(running)
            resumed = await again.ask(Message(kind=Kind.CONTROL, name="resume", fields={"sid": sid.hex()}))
            assert resumed.failure is None
            assert (await again.hear()).payload == b"while away"
            again.hang_up()
            stranger = await Line.call(running)
            unknown = Message(kind=Kind.CONTROL, name="resume", fields={"sid": os.urandom(16).hex()})
            refused = await stranger.ask(unknown)
            assert refused.failure is not None
            assert refused.failure.code == 5
            stranger.hang_up()

    asyncio.run(story())
