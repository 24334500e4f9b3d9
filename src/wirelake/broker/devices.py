"""Know which session serves which device, and publish what devices report.

A device is any client that reports: the sender of a telemetry message, by the name that the message gives as its
source, else by the identity of its session. Commands for a device go to the session that reported last, or else to one
that logged in under the name of the device.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.broker.access import AccessPolicy
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import InputError, UnknownProtocolError
from wirelake.limits import BROKER_DEVICES_PER_PEER_MAX, BROKER_REPORTING_DEVICES_MAX, DEVICE_READINGS_MAX
from wirelake.message import BROADCAST, EVERY_DEVICE, UNITS, Message, Topic, content_of
from wirelake.protocols import registry
from wirelake.protocols.readings import TYPED
from wirelake.roles import Action
from wirelake.state.topics import PublishRequest

_log = logging.getLogger(__name__)

Publish = Callable[[str, Message, str, int], tuple[Message, Commit | None]]  # topic, message, publisher, now_ms
PublishMany = Callable[[Sequence[PublishRequest], int], Commit | None]  # topics that are no valid ones are left out


class LatestReport(Struct):
    """The newest values that a device reported since the gateway started, of all of its messages."""

    protocol: str
    is_typed: bool  # the protocol numbers readings
    at_ms: int = 0  # of the last report
    fields: dict[str, Any] = field(default_factory=dict)
    typed: dict[int, dict[str, Any]] = field(default_factory=dict)  # readings that have numbers, by number
    units: dict[str, Any] = field(default_factory=dict)

    def add(self, message: Message, now_ms: int) -> None:
        self.at_ms = now_ms
        if self.is_typed:
            typed = self.typed
            try:
                for each in message.fields.get(TYPED, ()):
                    typed[each["type"]] = each
            except (KeyError, TypeError) as error:
                _log.debug("%s reports readings without a type: %s", self.protocol, error)
            if len(typed) > DEVICE_READINGS_MAX:
                self.typed = {}
        else:
            numbers = {name: value for name, value in message.fields.items() if isinstance(value, int | float)}
            units = message.headers.get(UNITS)
            if len(self.fields) + len(numbers) > DEVICE_READINGS_MAX and not numbers.keys() <= self.fields.keys():
                self.fields, self.units = {}, {}
            self.fields.update(islice(numbers.items(), DEVICE_READINGS_MAX))
            if isinstance(units, Mapping):
                self.units.update((name, units[name]) for name in numbers if name in units)


class Devices(Mapping[str, Peer]):
    """The sessions of connected devices, by the name of the device."""

    def __init__(self, topic: str, publish: Publish, publish_many: PublishMany, access: AccessPolicy) -> None:
        """Publish reports on `topic`, followed by a slash and the serial; not at all if it is empty.

        Who reports for another device needs the right to publish on the topic of that device.
        """
        self.topic = topic
        self.latest: dict[str, LatestReport] = {}
        self._publish = publish
        self._publish_many = publish_many
        self._access = access
        self._by_serial: dict[str, Peer] = {}
        self._of_peer: dict[str, set[str]] = {}  # session → the devices that it serves
        self._logged_in: dict[str, Peer] = {}  # identity → its last session that takes commands

    def __getitem__(self, serial: str) -> Peer:
        return self._by_serial[serial]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_serial)

    def __len__(self) -> int:
        return len(self._by_serial)

    def find(self, serial: str) -> Peer | None:
        """Return the session to send a command for this device to: it serves the device, or logged in as it."""
        return self._by_serial.get(serial) or self._logged_in.get(serial)

    def attach(self, peer: Peer, serial: str = "") -> None:
        """Let this session serve the device, by default the one of its identity, instead of any earlier session.

        A session that logged in as the device, or alone takes commands, is not replaced by one that does not.
        """
        serial = serial or peer.identity
        current = self._by_serial.get(serial)
        if current is peer or (serial in self._logged_in and peer.identity != serial):
            return
        if current is not None:
            is_intruder = current.identity == serial != peer.identity
            if is_intruder or (current.takes_commands and not peer.takes_commands):
                return
            self._release(current, serial)
        served = self._of_peer.setdefault(peer.id, set())
        if len(served) < BROKER_DEVICES_PER_PEER_MAX:
            served.add(serial)
            self._by_serial[serial] = peer

    def on_login(self, peer: Peer) -> None:
        """Take note of a session that logged in: commands for a device of this name may go there."""
        if peer.takes_commands:
            self._logged_in[peer.identity] = peer
            current = self._by_serial.get(peer.identity)
            if current is not None and current.identity != peer.identity:
                self._release(current, peer.identity)

    def forget(self, serial: str) -> None:
        """Forget what a device reported: it was removed."""
        self.latest.pop(serial, None)

    def detach(self, peer: Peer) -> None:
        """Forget a session that is closed, except for devices that another one serves by now."""
        for serial in self._of_peer.pop(peer.id, ()):
            del self._by_serial[serial]
        logged_in = self._logged_in.get(peer.identity)
        if logged_in is not None and logged_in.id == peer.id:
            del self._logged_in[peer.identity]

    def _release(self, peer: Peer, serial: str) -> None:
        served = self._of_peer[peer.id]
        served.discard(serial)
        if not served:
            del self._of_peer[peer.id]
        del self._by_serial[serial]

    def publish_report(self, peer: Peer, message: Message, now_ms: int) -> Commit | None:
        """Publish what a device reports. Return the commit, if there is one.

        Raise StorageError if it is refused, and AccessDeniedError if the peer may not speak for the device.
        """
        serial = message.source or peer.identity
        if not serial:
            return None
        if serial != peer.identity:
            self._access.authorize(peer, Action.PUBLISH, f"{self.topic}/{serial}")
        self.attach(peer, serial)
        self._add_latest(serial, peer.protocol, message, now_ms)
        if not self.topic:
            return None
        if message.headers.get(BROADCAST) is True:
            return self._publish_broadcast(serial, message, now_ms)
        try:
            _, commit = self._publish(f"{self.topic}/{serial}", _as_report(message), peer.identity or serial, now_ms)
        except InputError as error:  # the serial cannot be part of a topic's name
            _log.debug("a report of device %r cannot be published: %s", serial, error)
            return None
        return commit

    def publish_reports(self, reports: Sequence[tuple[Peer, Message]], now_ms: int) -> Commit | None:
        """Publish the reports of many devices, each with a session of its own, on durable topics.

        All of them are published, or StorageError is raised.
        """
        known = self.latest
        for peer, message in reports:
            latest = known.get(peer.identity)
            if latest is not None and latest.protocol == peer.protocol:
                latest.add(message, now_ms)
            else:
                self._add_latest(peer.identity, peer.protocol, message, now_ms)
        return self._publish_many(
            [
                (f"{self.topic}/{peer.identity}", [content_of(_as_report(message))], peer.identity)
                for peer, message in reports
            ],
            now_ms,
        )

    def _add_latest(self, serial: str, protocol: str, message: Message, now_ms: int) -> None:
        latest = self.latest.get(serial)
        if latest is None or latest.protocol != protocol:
            if latest is None and len(self.latest) >= BROKER_REPORTING_DEVICES_MAX:
                del self.latest[next(iter(self.latest))]
            latest = self.latest[serial] = LatestReport(protocol, _numbers_readings(protocol))
        latest.add(message, now_ms)

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


def _numbers_readings(protocol: str) -> bool:
    try:
        return registry.get(protocol).device_codes is not None
    except UnknownProtocolError:
        return False


def _as_report(message: Message) -> Message:
    """Return a device's telemetry as it is published: all of it as fields."""
    data = {"data": message.payload} if message.payload else {}
    return replace(message, payload=b"", fields=message.fields | data)
