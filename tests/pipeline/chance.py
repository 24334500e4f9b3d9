"""Generate random histories: gateways that start and are killed, sessions of all protocols, repeating devices."""

import json
from random import Random
from typing import Any

from pipeline.histories import SECOND, T0, Record, deliver, encoded, frame, ids, numbered, record
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.apostol.commands import DeviceCommand, Reading, ServerCommand, Status
from wirelake.protocols.apostol.constants import ANSWER, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.frame import Sender

KEY = bytes(range(16))
KEYS = {"dev0": KEY, "dev1": bytes(16)}
_PROTOCOLS = ("comet", "redis", "esnp", "sisnet", "magline", "http")
_FIELDS = [["time", "I", 8, 1], ["newp", "F", 8, 1]]


class History:
    """Generate the records of one node in order. `at` may step back a little."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.records: list[Record] = []
        self._now = T0 + chance.randrange(3600) * SECOND
        self._sessions: dict[str, str] = {}  # id → protocol
        self._questions: dict[str, list[Message]] = {}
        self._number = 0
        self._positions = dict.fromkeys(("@a", "@b"), 0)
        self._packets: list[tuple[str, Packet]] = []  # that may still come, again
        self._counted: dict[tuple[int, str, str], int] = {}
        self.start()

    def add(self, row: Record) -> None:
        self.records.append(row)
        what = {("frame", "in"): "in", ("frame", "out"): "out", ("quarantine", "in"): "quarantined"}
        name = what.get((row["event"], row["direction"]))
        if name:
            place = (row["at"] // (3600 * SECOND) * 3600, row["protocol"], name)
            self._counted[place] = self._counted.get(place, 0) + 1

    def at(self) -> int:
        """Return a time, mostly later than the last one. A clock that is set back does not go back far."""
        chance = self.chance
        self._now += chance.choice((0, 1, 1000, 50_000, SECOND, 5 * SECOND, 20 * SECOND))
        return self._now - (chance.randrange(8 * SECOND) if chance.random() < 0.05 else 0)

    def step(self) -> None:
        steps = [self.connect, self.leave, self.command, self.publish, self.ack, self.ack_through, self.expire]
        steps += [self.garbage, self.records_set, self.counters, *[self.ask, self.answer] * 2, *[self.packet] * 3]
        self.chance.choice(steps)()
        if self.chance.random() < 0.01:
            self.start()
        if self.chance.random() < 0.02:
            self._now += self.chance.randrange(4000) * SECOND

    def start(self) -> None:
        self._sessions, self._questions, self._counted = {}, {}, {}
        self.add(record("counters", self.at(), note={"start": True, "hours": {}}))

    def counters(self) -> None:
        hours: dict[str, dict[str, dict[str, int]]] = {}
        for (hour, protocol, what), count in self._counted.items():
            hours.setdefault(str(hour), {}).setdefault(protocol, {})[what] = count
        self._counted = {}
        self.add(record("counters", self.at(), note={"hours": hours}))

    def connect(self) -> None:
        self._number += 1
        session, protocol = f"s{self._number}", self.chance.choice(_PROTOCOLS)
        self._sessions[session] = protocol
        if protocol != "http":
            self.add(record("open", self.at(), protocol=protocol, session=session, peer="127.0.0.1:9"))
            if self.chance.random() < 0.7:
                who = f"id{self.chance.randrange(4)}"
                self.add(
                    record("login", self.at(), protocol=protocol, session=session, identity=who, peer="127.0.0.1:9")
                )

    def leave(self) -> None:
        if self._sessions:
            session = self.chance.choice(sorted(self._sessions))
            protocol = self._sessions.pop(session)
            self._questions.pop(session, None)
            note = {
                "reason": "peer_closed",
                "text": "",
                "frames_in": 3,
                "frames_out": 2,
                "bytes_in": 30,
                "bytes_out": 9,
            }
            if protocol != "http":
                self.add(record("close", self.at(), protocol=protocol, session=session, identity="id1", note=note))

    def ask(self) -> None:
        if not self._sessions:
            return
        session = self.chance.choice(sorted(self._sessions))
        protocol = self._sessions[session]
        if protocol == "http":
            note = {"method": "POST", "path": "/api/services/clock/now"}
            self.add(frame("http", "in", b"{}", self.at(), session, note=note))
            self._questions.setdefault(session, []).append(Message(kind=Kind.REQUEST))
            return
        number = str(self.chance.randrange(1, 5))
        message = self.chance.choice(_QUESTIONS[protocol])(number)
        self.add(frame(protocol, "in", encoded(protocol, message, Sender.CLIENT), self.at(), session))
        self._questions.setdefault(session, []).append(message)

    def answer(self) -> None:
        if not self._questions:
            return
        chance = self.chance
        session = chance.choice(sorted(self._questions))
        protocol, questions = self._sessions[session], self._questions[session]
        ordered = protocol in ("comet", "redis", "http")
        question = questions[0 if ordered else chance.randrange(len(questions))]
        more = chance.choice((0, 0, 1)) if protocol in ("sisnet", "esnp") else 0
        if not more:
            questions.remove(question)
            if not questions:
                del self._questions[session]
        if protocol == "http":
            note = {"method": "POST", "path": "/api/services/clock/now", "status": chance.choice((200, 503))}
            self.add(frame("http", "out", b'{"error": {"message": "busy"}}', self.at(), session, note=note))
            return
        failure = Failure("no", 3) if chance.random() < 0.2 and not more else None
        response = Message(kind=Kind.RESPONSE, correlation=question.correlation, failure=failure, more=more)
        self.add(frame(protocol, "out", encoded(protocol, response, Sender.SERVER), self.at(), session))

    def records_set(self) -> None:
        of_sisnet = [session for session, protocol in self._sessions.items() if protocol == "sisnet"]
        if not of_sisnet:
            return
        chance, session = self.chance, self.chance.choice(of_sisnet)
        fields = chance.choice((_FIELDS, _FIELDS[::-1]))
        packed = bytes(range(16))
        texts = (
            b'1:{"cmd":"dict","argv":{"info":{"fields":%b}}}' % json.dumps(fields).encode(),
            b'1:{"service":"sisdb","command":"create","ask":{"key":"k","sdb":"info","fields":%b}}'
            % json.dumps(fields).encode(),
            b"2:set:sh1:info:" + packed,
            b'3:{"cmd":"sisdb.set","key":"k","sdb":"info","argv":[{"time":%d,"newp":1.5}]}' % chance.randrange(9),
            b'4:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"info","data":[[1,2.5],[2,3]]}}',
            b'5:{"service":"sisdb","command":"set","ask":{"key":"k","sdb":"other","data":[[1,2.5]]}}',
        )
        self.add(frame("sisnet", "in", chance.choice(texts), self.at(), session, identity="id1"))

    def garbage(self) -> None:
        if self._sessions:
            session = self.chance.choice(sorted(self._sessions))
            protocol = self._sessions[session]
            note = {"code": "short", "offset": 1, "text": "cut off"}
            columns: dict[str, Any] = {"protocol": protocol, "session": session, "direction": "in"}
            self.add(record("quarantine", self.at(), frame=b"\xff", note=note, **columns))
            if protocol != "http":
                self.add(frame(protocol, "in", b"\x00\x02\xee\xee", self.at(), session))

    # Devices

    def command(self) -> None:
        chance = self.chance
        serial, number = f"dev{chance.randrange(3)}", chance.randrange(3)
        to_device = chance.random() < 0.3
        params = (TO_DEVICE if to_device else 0) | (ANSWER if chance.random() < 0.2 else 0)
        params |= chance.choice((0, 0, ZIPPED, SEALED, ZIPPED | SEALED))
        if to_device:
            body = ServerCommand(0x82, bytes(chance.randrange(256) for _ in range(chance.randrange(20)))).encode()
        else:
            body = chance.choice(_COMMANDS)(chance).encode()
        if chance.random() < 0.1:
            body = body[:3]
        packets = build_packets(body, params, 6, serial, number, chance.choice((4, 8, 64)), (KEY, bytes(12)))
        self._packets += [("out" if to_device else "in", packet) for packet in packets]

    def packet(self) -> None:
        chance = self.chance
        if not self._packets:
            self.command()
        place = chance.randrange(min(len(self._packets), 6))
        direction, packet = self._packets[place]
        if chance.random() < 0.8:
            del self._packets[place]
        del self._packets[40:]
        session = {"session": f"d-{packet.serial}", "identity": packet.serial}
        self.add(frame("apostol", direction, packet.encode(), self.at(), **session))
        if chance.random() < 0.3:
            self.add(frame("apostol", "out", receipt_for(packet).encode(), self.at(), **session))

    # Notifications

    def publish(self) -> None:
        chance, topic = self.chance, self.chance.choice(sorted(self._positions))
        first = max(1, self._positions[topic] + chance.choice((1, 1, 1, 0)))
        last = first + chance.randrange(3)
        self._positions[topic] = max(last, self._positions[topic])
        to = [(f"x{chance.randrange(5)}", f"id{chance.randrange(4)}") for _ in range(chance.randrange(1, 5))]
        self.add(deliver(topic, first, last, to, self.at()))

    def ack(self) -> None:
        chance, topic = self.chance, self.chance.choice(sorted(self._positions))
        acked = [
            f"{ids(topic)}{chance.randrange(1, self._positions[topic] + 2):x}" for _ in range(chance.randrange(1, 4))
        ]
        note = {"identity": f"id{chance.randrange(4)}", "acked": [*acked, "rubbish", "e-zz"]}
        self.add(record("ack", self.at(), note=note))

    def ack_through(self) -> None:
        chance, topic = self.chance, self.chance.choice(sorted(self._positions))
        note = {"topic": topic, "ids": ids(topic), "identity": f"id{chance.randrange(4)}"}
        self.add(record("ack", self.at(), note=note | {"through": self._positions[topic]}))

    def expire(self) -> None:
        chance, topic = self.chance, self.chance.choice(sorted(self._positions))
        if chance.random() < 0.5 and self._positions[topic]:
            last = chance.randrange(1, self._positions[topic] + 1)
            self.add(record("expire", self.at(), note={"topic": topic, "first": 1, "last": last}))


def history(seed: int, steps: int) -> list[Record]:
    found = History(Random(seed))
    for _ in range(steps):
        found.step()
    return numbered(found.records)


def _asking(op: Op, **fields: Any) -> Any:
    return lambda number: control(op, correlation=number, fields=fields)


def _login(number: str) -> Message:
    return control(Op.LOGIN, correlation=number, credentials=Credentials("u", "t"))


def _serving(service: str, op: str, **rest: Any) -> Any:
    return lambda number: Message(kind=Kind.REQUEST, correlation=number, target=Operation(service, op), **rest)


def _publishing(number: str) -> Message:
    return Message(kind=Kind.NOTIFICATION, correlation=number, target=Topic("@a"), payload=b"hi")


_TOPICS = {"topics": ["@a", "@b"]}
_QUESTIONS: dict[str, tuple[Any, ...]] = {
    "comet": (_login, _asking(Op.PING), _asking(Op.SUBSCRIBE, **_TOPICS), _asking(Op.ACK, ids=["e-1-1"])),
    "redis": (_login, _asking(Op.PING), _serving("redis", "get", fields={"args": [b"k"]}), _publishing),
    "esnp": (_login, _asking(Op.PING), _serving("clock", "now"), _publishing),
    "sisnet": (_login, _asking(Op.PING), _serving("clock", "now"), _publishing),
    "magline": (_login, _asking(Op.SUBSCRIBE, **_TOPICS), _serving("magline/17", "call"), _publishing),
}
ODD = Reading(3, b"odd!!")
_COMMANDS = (
    lambda chance: DeviceCommand(chance.choice((0, 1, 1_700_000_000)), 1, 0, Status(1, 2, 3, 4, 5)),
    lambda chance: DeviceCommand(
        1_700_000_000, 4, 0, (Reading(1, chance.randrange(9)), Reading(2, 2.5), Reading(3, b"x" * 5))
    ),
    lambda chance: DeviceCommand(5, 2, 0, bytes(chance.randrange(30))),
    lambda chance: DeviceCommand(5, 2, chance.randrange(5), b""),
)
