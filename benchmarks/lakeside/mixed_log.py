"""A log of everything that a busy gateway records: devices, notifications and their acks, calls, sessions.

A third of the records are packets of devices with their receipts, a third are notifications on their way to four
subscribers each, a third are calls in four protocols; HTTP requests, logins and counters are few. The records are
written by the gateway's own recorder, at a rate of 20,000 a second by their own clock.
"""

import random
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, json

from wirelake.gateway.recorder import Recorder
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.redis import frames as redis
from wirelake.protocols.registry import get
from wirelake.state.notifications import StoredNotification

STEP_US = 50  # between two records
DEVICES = 2000
SESSIONS = 64  # of each protocol
TOPICS = 16
RECIPIENTS = 4  # of a notification
START_US = 1_700_000_000_000_000
_ROUND_REPORTS = 100  # commands of devices; every fifth has three packets
_ROUND_PUBLISHES = 20
_ROUND_CALLS = 40  # of each of four protocols
_ROUND_REQUESTS = 5  # by HTTP
_COUNTERS_ROUNDS = 200
_WAIT_ROUNDS = 50  # for the disk
_COMMIT_S = 60.0


class _Session(Struct):
    id: str
    protocol: str
    identity: str
    address: str = "10.0.0.1:4711"


class MixedLog:
    """Append rounds of about a thousand records."""

    def __init__(self, folder: Path) -> None:
        self._log = SegmentLog(folder / "log", LogSettings(fsync=False, keep_days=None))
        self._now_us = START_US
        self._recorder = Recorder(self._log, self._clock)
        self._chance = random.Random(1)
        self._rounds = self._calls = self._opened = self._reports = 0
        self._positions = [0] * TOPICS
        self._sessions = {name: [self._open(name) for _ in range(SESSIONS)] for name in ("comet", "apostol", *_CALLS)}
        self._devices = [_Session(f"meter-{n:06}", "apostol", f"meter-{n:06}") for n in range(DEVICES)]

    @property
    def records(self) -> int:
        return self._log.next_seq

    def append(self, records: int) -> None:
        """Append rounds until there are so many records."""
        while self.records < records:
            self._round()

    def close(self) -> None:
        self._recorder.counters().wait(_COMMIT_S)
        self._log.close()

    def _clock(self) -> int:
        return self._now_us

    def _step(self, records: int) -> None:
        self._now_us += STEP_US * records

    def _round(self) -> None:
        if self._rounds % _COUNTERS_ROUNDS == 0:
            self._recorder.counters().wait(_COMMIT_S)
        steps: list[Callable[[], None]] = [self._report] * _ROUND_REPORTS + [self._publish] * _ROUND_PUBLISHES
        steps += [lambda name=name: self._call(name) for name in _CALLS] * _ROUND_CALLS
        steps += [self._request] * _ROUND_REQUESTS
        self._chance.shuffle(steps)
        for step in steps:
            step()
        name = self._chance.choice(list(_CALLS))
        closed = self._sessions[name].pop(0)
        self._recorder.event(closed, "close", {"reason": "bye", "frames_in": 9, "frames_out": 9, "bytes_in": 900})
        self._sessions[name].append(self._open(name))
        self._rounds += 1
        if self._rounds % _WAIT_ROUNDS == 0:
            self._recorder.event(closed, "refuse", {}).wait(_COMMIT_S)

    def _open(self, protocol: str) -> _Session:
        self._opened += 1
        session = _Session(f"{self._opened:016x}", protocol, "")
        self._recorder.event(session, "open", {})
        session.identity = f"{protocol}-{self._opened % 97}"
        self._recorder.event(session, "login", {})
        self._step(2)
        return session

    def _report(self) -> None:
        """A device in turn, which numbers its commands."""
        device = self._devices[self._reports % DEVICES]
        packets = _packets(device.id, self._reports // DEVICES)
        self._reports += 1
        self._recorder.frames(device, "in", [each.encode() for each in packets])
        self._recorder.frames(device, "out", [receipt_for(each).encode() for each in packets])
        self._step(2 * len(packets))

    def _publish(self) -> None:
        """A notification from a client of redis to clients of comet, which ack it."""
        number = self._chance.randrange(TOPICS)
        topic, prefix = f"quotes/{number}", f"3f9a2c-{number}-"
        publisher, content = self._sessions["redis"][number], b"x" * 60
        self._recorder.frames(publisher, "in", [redis.Command((b"PUBLISH", topic.encode(), content)).encode()])
        self._positions[number] += 1
        position = self._positions[number]
        note_id = f"{prefix}{position:x}"
        stored = StoredNotification(note_id, topic, position, self._now_us // 1000, 0, publisher.identity, content)
        self._recorder.published([stored])
        self._recorder.frames(publisher, "out", [redis.Integer(RECIPIENTS).encode()])
        comets = self._sessions["comet"]
        peers = [comets[(number * RECIPIENTS + each) % SESSIONS] for each in range(RECIPIENTS)]
        recipients = json.encode([(peer.id, peer.identity, peer.protocol) for peer in peers])
        note = {"ids": prefix, "first": position, "last": position, "attempt": 1}
        self._recorder.topic("deliver", topic, recipients, note)
        frame = comet.Message(0, note_id, content, self._now_us // 1000).encode()
        for peer in peers:
            self._recorder.frames(peer, "out", [frame])
        self._step(4 + RECIPIENTS)
        for peer in peers:
            self._recorder.frames(peer, "in", [comet.MessageAck((note_id,)).encode()])
            self._recorder.topic("ack", "", b"", {"identity": peer.identity, "acked": [note_id]})
            self._recorder.frames(peer, "out", [comet.Ok().encode()])
            self._step(3)

    def _call(self, protocol: str) -> None:
        self._calls += 1
        request, response = _CALLS[protocol](self._calls)
        session = self._chance.choice(self._sessions[protocol])
        self._recorder.frames(session, "in", [request])
        self._step(1)
        self._recorder.frames(session, "out", [response])
        self._step(1)

    def _request(self) -> None:
        self._opened += 1
        session = _Session(f"{self._opened:016x}", "http", "console")
        note = {"method": "POST", "path": "/api/services/billing/pay"}
        self._recorder.event(session, "frame", note, "in", b'{"meter":17,"amount":21.5}')
        self._recorder.event(session, "frame", {**note, "status": 200}, "out", b'{"paid":true}')
        self._step(2)


def _packets(serial: str, number: int) -> list[Packet]:
    """The packets of a report: one or three."""
    readings = tuple(Reading(kind, 21.5 + number / 7, 8) for kind in range(1, 4))
    body = DeviceCommand(1_700_000_000 + number, 4, 0, readings).encode()
    return build_packets(body, 0, 6, serial, number % 256, 14 if (number + ord(serial[-1])) % 5 == 0 else 64)


def _translated(protocol: str) -> Callable[[int], tuple[bytes, bytes]]:
    def pair(number: int) -> tuple[bytes, bytes]:
        fields = {"meter": number, "amount": 21.5, "currency": "EUR"}
        target, correlation = Operation("billing", "pay"), str(number + 1)
        request = Message(kind=Kind.REQUEST, target=target, correlation=correlation, fields=fields)
        answered = {"paid": True, "balance": number * 1.5}
        response = Message(kind=Kind.RESPONSE, correlation=correlation, fields=answered)
        codec = get(protocol)
        return (
            codec.from_message(request, Sender.CLIENT).encode(),
            codec.from_message(response, Sender.SERVER).encode(),
        )

    return pair


def _magline(number: int) -> tuple[bytes, bytes]:
    request = magline.Req(17, magline.OPENED, b"hello " * 5, seq=number + 1)
    return request.encode(), magline.Rep(17, magline.OPENED, b"world " * 5, seq=number + 1).encode()


def _redis(number: int) -> tuple[bytes, bytes]:
    if number % 2:
        return redis.Command((b"SET", b"meter:%d" % number, b"%d" % (number * 7))).encode(), b"+OK\r\n"
    return redis.Command((b"GET", b"meter:%d" % number)).encode(), redis.BulkString(b"%d" % (number * 7)).encode()


_CALLS: dict[str, Callable[[int], tuple[bytes, bytes]]] = {
    "esnp": _translated("esnp"),
    "sisnet": _translated("sisnet"),
    "magline": _magline,
    "redis": _redis,
}


def write_mixed_log(data: Path, records: int) -> None:
    """Write a log of about so many records."""
    log = MixedLog(data)
    log.append(records)
    log.close()
