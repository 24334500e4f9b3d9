import asyncio
import threading

import pytest

from broker.conftest import Records
from broker.peers import COMET, ESNP, UNSAYABLE, FakePeer, asking, notification, request, response
from wirelake.broker.access import AccessPolicy
from wirelake.broker.broker import Broker
from wirelake.broker.delivery import Record
from wirelake.broker.peer import Job, Peer
from wirelake.errors import StorageError
from wirelake.limits import BROKER_TOPIC_CHARS_MAX, BROKER_TOPICS_PER_REQUEST_MAX
from wirelake.message import Device, Kind, Message, Op, Topic, control
from wirelake.roles import Role
from wirelake.state.batch import Batch
from wirelake.state.store import StateStore


@pytest.fixture
def broker(store: StateStore, record: Record) -> Broker:
    return Broker(store, record, devices_topic="@devices")


async def rest(broker: Broker) -> None:
    await broker.durable.topics.ack("", [])  # nothing to do: durable when everything before is
    for _ in range(3):
        await asyncio.sleep(0)
    while broker.waiting:
        broker.flush(0.0)


def handle(broker: Broker, peer: FakePeer, message: Message, now_ms: int = 1) -> None:
    broker.handle(peer, message, 0.0, now_ms)


def failure(peer: FakePeer, correlation: str) -> tuple[str, int]:
    (answer,) = peer.answers(correlation)
    assert answer.failure is not None
    return answer.failure.text, answer.failure.code


async def test_an_answer_that_promises_something_durable_comes_when_it_is(broker: Broker) -> None:
    peer = FakePeer("1", COMET, "ann")
    handle(broker, peer, asking(Op.SUBSCRIBE, "s", topics=["@a", "@b"]))
    handle(broker, peer, notification("@a", b"hi", "p"))
    assert not peer.heard
    await rest(broker)
    assert len(peer.answers("s")) == 1
    (published,) = peer.answers("p")
    assert published.fields == {"id": peer.told[0].id, "ts": 1, "receivers": 1}


@pytest.mark.parametrize(
    "message",
    [
        asking(Op.SUBSCRIBE, "again", topics=["@a"]),
        asking(Op.UNSUBSCRIBE, "again", topics=["@never"]),
        asking(Op.ACK, "again", ids=["unknown"]),
        asking(Op.ACK, "again"),
    ],
)
async def test_what_changes_nothing_is_answered_too(broker: Broker, message: Message) -> None:
    peer = FakePeer("1", COMET, "ann")
    handle(broker, peer, asking(Op.SUBSCRIBE, "s", topics=["@a"]))
    await rest(broker)
    handle(broker, peer, message)
    await rest(broker)
    (answer,) = peer.answers("again")
    assert answer.failure is None


async def test_a_commit_that_fails_is_the_answer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = FakePeer("1", ESNP, "ann")
    is_awaited = threading.Event()

    def full(*_: object) -> None:
        is_awaited.wait(10)
        raise StorageError("the disk is full")

    monkeypatch.setattr(Batch, "execute", full)
    handle(broker, peer, asking(Op.SUBSCRIBE, "s", topics=["@a"]))
    waiting = asyncio.ensure_future(rest(broker))
    await asyncio.sleep(0)
    is_awaited.set()
    with pytest.raises(StorageError):
        await waiting
    for _ in range(3):
        await asyncio.sleep(0)
    assert failure(peer, "s")[1] == 503
    assert broker.durable.connected("@a") == 0


async def test_live_names_and_patterns_beside_durable_topics(broker: Broker) -> None:
    peer, publisher = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "bob")
    handle(broker, peer, asking(Op.SUBSCRIBE, "s", topics=["x", "@a"], patterns=["y.*"]))
    for topic in ("x", "y.1", "z", "@a"):
        handle(broker, publisher, notification(topic, topic.encode(), topic))
    await rest(broker)
    assert sorted(peer.contents()) == [b"@a", b"x", b"y.1"]
    assert [publisher.answers(name)[0].fields["receivers"] for name in ("x", "y.1", "z")] == [1, 1, 0]
    handle(broker, peer, asking(Op.UNSUBSCRIBE, "u", topics=["x", "@a"], patterns=["y.*"]))
    for topic in ("x", "y.1", "@a"):
        handle(broker, publisher, notification(topic, b"later"))
    await rest(broker)
    assert b"later" not in peer.contents()
    assert len(peer.answers("u")) == 1


async def test_an_identity_is_fed_again_when_it_logs_in_and_fetches_what_it_missed(broker: Broker) -> None:
    first = FakePeer("1", COMET, "ann")
    handle(broker, first, asking(Op.SUBSCRIBE, "s", topics=["@b", "@a"]))
    broker.on_close(first)
    for number in range(3):
        broker.publish("@a", notification("@a", b"%d" % number), "erp", number)
    await rest(broker)
    again = FakePeer("2", COMET, "ann")
    broker.on_login(again)
    handle(broker, again, asking(Op.TOPICS, "t"))
    handle(broker, again, asking(Op.BACKLOG, "b"))
    (topics,), (backlog,) = again.answers("t"), again.answers("b")
    assert topics.fields == {"topics": ["@b", "@a"]}
    assert [part.payload for part in backlog.parts] == [b"0", b"1", b"2"]
    handle(broker, again, asking(Op.ACK, "a", ids=[part.id for part in backlog.parts[:2]]))
    handle(broker, again, asking(Op.BACKLOG, "b2"))
    assert [part.payload for part in again.answers("b2")[0].parts] == [b"2"]
    broker.publish("@a", notification("@a", b"new"), "erp", 9)
    await rest(broker)
    assert again.contents() == [b"new"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (asking(Op.SUBSCRIBE, "q", topics=["@a", ""]), "1 to 256 characters"),
        (asking(Op.SUBSCRIBE, "q", topics=["x" * (BROKER_TOPIC_CHARS_MAX + 1)]), "1 to 256 characters"),
        (asking(Op.SUBSCRIBE, "q", topics=["a\nb"]), "printable"),
        (asking(Op.SUBSCRIBE, "q", topics=["x"] * (BROKER_TOPICS_PER_REQUEST_MAX + 1)), "at most 1024"),
        (asking(Op.SUBSCRIBE, "q", topics="@a"), "a list of texts"),
        (asking(Op.UNSUBSCRIBE, "q", topics=[7]), "a list of texts"),
        (asking(Op.SUBSCRIBE, "q", patterns=7), "a list of texts"),
        (asking(Op.ACK, "q", ids=[1]), "a list of texts"),
        (asking(Op.ACK, "q", ids=None), "a list of texts"),
        (asking(Op.REGISTER, "q"), "name of a service"),
        (asking(Op.REGISTER, "q", service=3), "name of a service"),
        (Message(kind=Kind.NOTIFICATION, correlation="q"), "which topic"),
        (Message(kind=Kind.NOTIFICATION, correlation="q", target=Topic("")), "1 to 256 characters"),
        (
            Message(kind=Kind.NOTIFICATION, correlation="q", target=Topic("@a"), fields={"a": 1}, payload=b"b"),
            "cannot be encoded",
        ),
    ],
)
async def test_a_fault_of_the_askers_is_its_answer(broker: Broker, message: Message, text: str) -> None:
    peer = FakePeer("1", ESNP, "ann")
    handle(broker, peer, message)
    said, code = failure(peer, "q")
    assert text in said
    assert code == 400


async def test_an_answer_that_cannot_be_said_becomes_one_that_can(broker: Broker) -> None:
    peer = FakePeer("1", ESNP, "ann")
    broker.register_builtin("own", lambda asker, message, _: asker.send(response(message, payload=UNSAYABLE)))
    handle(broker, peer, request("own", "q"))
    assert failure(peer, "q")[1] == 400


async def test_services_with_their_times(broker: Broker) -> None:
    asker, provider = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "bob")
    handle(broker, provider, asking(Op.REGISTER, "r", service="sums"))
    handle(broker, asker, request("sums", "a"))
    handle(broker, asker, request("sums", "b", headers={"timeout_ms": 100}))
    handle(broker, asker, request("sums", "c", headers={"timeout_ms": "soon"}))
    assert broker.due_s == 0.1
    broker.tick(0.1)
    assert failure(asker, "b")[1] == 504
    handle(broker, provider, response(provider.asked()[0], payload=b"7"))
    assert asker.answers("a")[0].payload == b"7"
    assert broker.due_s == 5.0
    handle(broker, provider, asking(Op.UNREGISTER, "u", service="sums"))
    handle(broker, asker, request("sums", "d"))
    assert failure(asker, "d")[1] == 404
    broker.on_close(provider)
    assert failure(asker, "c")[1] == 502


async def test_a_device_is_asked_by_its_serial(store: StateStore, record: Record) -> None:
    operators = AccessPolicy(lambda name: ["operator"] if name == "ann" else (), {"operator": Role(command=("12*",))})
    broker = Broker(store, record, access=operators)
    asker, device = FakePeer("1", ESNP, "ann"), FakePeer("2", ESNP, "1234")
    handle(broker, asker, Message(kind=Kind.REQUEST, target=Device("99"), correlation="n"))
    assert failure(asker, "n") == ("access denied: command 99", 403)
    command = Message(kind=Kind.REQUEST, target=Device("1234"), correlation="q")
    handle(broker, asker, command)
    assert failure(asker, "q")[1] == 404
    broker.devices.attach(device)
    handle(broker, asker, control(Op.PING, correlation="p"))
    handle(broker, asker, Message(kind=Kind.REQUEST, target=Device("1234"), correlation="q2"))
    handle(broker, device, response(device.asked()[0], payload=b"fine"))
    assert asker.answers("q2")[0].payload == b"fine"
    broker.on_close(device)
    assert "1234" not in broker.devices


async def test_telemetry_is_published(broker: Broker, records: Records) -> None:
    device, listener = FakePeer("1", ESNP, "1234"), FakePeer("2", ESNP, "ann")
    handle(broker, listener, asking(Op.SUBSCRIBE, "s", topics=["@devices/1234"]))
    handle(broker, device, Message(kind=Kind.TELEMETRY, fields={"state": 3}, payload=b"\x01"))
    await rest(broker)
    assert listener.contents() == [b'{"state":3,"data":"AQ=="}']
    assert [event for event, *_ in records] == ["subscribe", "publish", "deliver"]


async def test_a_long_request_goes_to_the_runner_also_if_that_has_no_jobs_yet(
    store: StateStore, record: Record
) -> None:
    runner = IdleRunner()
    broker, peer = Broker(store, record, jobs=runner), FakePeer("1", COMET, "ann")
    handle(broker, peer, asking(Op.BACKLOG, "b"))
    assert len(runner.jobs) == 1
    assert not peer.heard
    assert list(runner.jobs[0]) == []
    assert len(peer.answers("b")) == 1


class IdleRunner:
    """Counts the jobs that run, and so is false: it only takes them down."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __len__(self) -> int:
        return 0

    def start(self, _peer: Peer, _message: Message, job: Job) -> None:
        self.jobs.append(job)


async def test_saying_goodbye(broker: Broker) -> None:
    peer = FakePeer("1", ESNP, "ann")
    handle(broker, peer, asking(Op.LOGOUT, "q"))
    assert len(peer.answers("q")) == 1
    assert peer.ended is not None
    assert peer.ended.code == "logout"
