"""What clients have in common that publish and subscribe, live names included: magline, sisnet and esnp."""

from wirelake.clients.stream import StreamClient
from wirelake.message import Kind, Message, Op, Topic, control


class TopicClient(StreamClient):
    async def subscribe(self, *topics: str) -> None:
        """Durable topics (`@…`) bring what was missed; live names bring what is published from now on."""
        if topics:
            await self.request(control(Op.SUBSCRIBE, fields={"topics": list(topics)}))
            self._topics.update(dict.fromkeys(topics))

    async def unsubscribe(self, *topics: str) -> None:
        if topics:
            for name in topics:
                self._topics.pop(name, None)
            await self.request(control(Op.UNSUBSCRIBE, fields={"topics": list(topics)}))

    # For a protocol's client

    async def _publish(self, topic: str, content: bytes | str, number: int = 0) -> str:
        """`number` is the notification's own type."""
        payload = content.encode() if isinstance(content, str) else content
        message = Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=payload, type=number)
        return str((await self.request(message)).fields.get("id", ""))

    async def _subscribe_again(self) -> None:
        if self._topics:
            await self._ask(control(Op.SUBSCRIBE, fields={"topics": list(self._topics)}))
