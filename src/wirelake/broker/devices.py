"""Know which session serves which device, and publish what devices report."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError
from wirelake.message import BROADCAST, EVERY_DEVICE, Message, Topic, content_of
from wirelake.state.topics import PublishRequest

_log = logging.getLogger(__name__)

Publish = Callable[[str, Message, str, int], tuple[Message, Commit | None]]  # topic, message, publisher, now_ms
PublishMany = Callable[[Sequence[PublishRequest], int], Commit | None]  # topics that are no valid ones are left out


class Devices(Mapping[str, Peer]):
    """The sessions of connected devices by serial."""

    def __init__(self, topic: str, publish: Publish, publish_many: PublishMany) -> None:
        """Publish reports on `topic`, followed by a slash and the serial; not at all if it is empty."""
        self.topic = topic
        self._publish = publish
        self._publish_many = publish_many
        self._by_serial: dict[str, Peer] = {}

    def __getitem__(self, serial: str) -> Peer:
        return self._by_serial[serial]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_serial)

    def __len__(self) -> int:
        return len(self._by_serial)

    def attach(self, peer: Peer) -> None:
        """Let this session serve the device, instead of any earlier one."""
        self._by_serial[peer.identity] = peer

    def detach(self, peer: Peer) -> None:
        """Forget a session that is closed, unless another one serves the device by now."""
        if self._by_serial.get(peer.identity) is peer:
            del self._by_serial[peer.identity]

    def publish_report(self, serial: str, message: Message, now_ms: int) -> Commit | None:
        """Publish what a device reports. Return the commit, if there is one. Raise StorageError if it is refused."""
        if not self.topic or not serial:
            return None
        if message.headers.get(BROADCAST) is True:
            return self._publish_broadcast(serial, message, now_ms)
        try:
            _, commit = self._publish(f"{self.topic}/{serial}", _as_report(message), serial, now_ms)
        except InputError as error:  # the serial cannot be part of a topic's name
            _log.debug("a report of device %r cannot be published: %s", serial, error)
            return None
        return commit

    def publish_reports(self, reports: Sequence[tuple[str, Message]], now_ms: int) -> Commit | None:
        """Publish the reports of many devices, given by serial, on durable topics.

        All of them are published, or StorageError is raised.
        """
        return self._publish_many(
            [(f"{self.topic}/{serial}", [content_of(_as_report(message))], serial) for serial, message in reports],
            now_ms,
        )

    def _publish_broadcast(self, serial: str, message: Message, now_ms: int) -> Commit | None:
        """Publish on the device's own topic and on the one of broadcasts: on both, or StorageError is raised."""
        report = _as_report(message)
        report = replace(report, fields={**report.fields, "serial": serial, BROADCAST: True})
        names = [f"{self.topic}/{serial}", f"{self.topic}/{EVERY_DEVICE}"]
        if not Topic(self.topic).is_durable:
            for name in names:
                with suppress(InputError):  # the serial cannot be part of a topic's name
                    self._publish(name, report, serial, now_ms)
            return None
        content = content_of(report)
        return self._publish_many([(name, [content], serial) for name in names], now_ms)


def _as_report(message: Message) -> Message:
    """Return a device's telemetry as it is published: all of it as fields."""
    data = {"data": message.payload} if message.payload else {}
    return replace(message, payload=b"", fields=message.fields | data)
