"""A world of peers, topics and services with a clock of its own, driven by a seed, beside models of plain dicts.

Commits are decided by the state's own thread; the world lets the event loop hear of them only in `decide`, so that what
happens depends on the seed alone.
"""

import asyncio
import random
from collections.abc import Callable

from broker.durable_model import IMPLICIT_ACK_LATEST_S, IMPLICIT_ACK_S, KEEP_MS, RESEND_S, DurableModel, Session
from broker.live_model import LiveModel
from broker.peers import (
    COMET,
    ESNP,
    MAGLINE,
    REDIS,
    SEALED_COMET,
    UNSAYABLE,
    FakePeer,
    Habits,
    Told,
    asking,
    notification,
    request,
)
from broker.service_model import ServiceModel
from wirelake.broker.access import AccessPolicy
from wirelake.broker.broker import Broker
from wirelake.message import Kind, Message, Op
from wirelake.roles import Role
from wirelake.state.store import StateStore

HABITS = (COMET, SEALED_COMET, MAGLINE, ESNP, REDIS)
IDENTITIES = ("ann", "bob", "cat")
TOPICS = ("@a", "@b/c", "@d")
NAMES = ("x", "y.1", "y.2")
PATTERNS = ("y.*", "?", "*")
SERVICES = ("echo", "sums")
PEERS_MAX = 7
TICKS_MAX = 10_000
WAIT_S = 30


class SimulatedPeer(FakePeer):
    def __init__(self, id: str, habits: Habits, identity: str, world: "World") -> None:  # noqa: A002 the field's name
        super().__init__(id, habits, identity)
        self.session = Session(id, identity, habits.sends_acks, habits.pulls_backlog)
        self.gone = False
        self._world = world

    def note(self, told: Told) -> None:
        assert not self.gone, f"{self.id} is told something after it went"
        super().note(told)
        if told.topic.startswith("@"):
            self._world.durable.told(self.session, told)

    def send(self, message: Message) -> None:
        assert not (self.gone and message.correlation.startswith("q")), f"{self.id} asked, went, and is answered"
        super().send(message)


class World:
    def __init__(self, seed: int, store: StateStore) -> None:
        self.random = random.Random(seed)
        self.store = store
        conflate = self.random.random() < 0.5
        self.broker = Broker(
            store,
            self._record,
            conflate=conflate,
            resend_s=RESEND_S,
            implicit_ack_s=IMPLICIT_ACK_S,
            on_release=self._wake,
            access=AccessPolicy(lambda _: ("member", "provider"), {"provider": Role(provide=("**",))}),
        )
        self.durable = DurableModel(store.topics)
        self.live = LiveModel(conflate=conflate)
        self.services = ServiceModel()
        self.peers: dict[str, SimulatedPeer] = {}
        self.records: list[tuple[str, str, dict[str, object]]] = []
        self.now_s = 1000.0
        self.count = 0
        self.woken = False
        self.flushing = self.random.uniform(0.2, 0.9)  # how often there is a turn of the event loop between operations
        self.asked: list[tuple[SimulatedPeer, str]] = []  # what waits for an answer from the broker itself
        self.history: list[str] = []

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            operation, weight = zip(*self._operations(), strict=True)
            chosen: Callable[[], None] = self.random.choices(operation, weight)[0]
            self.history.append(f"{self.now_s:.2f} {chosen.__name__}")
            chosen()
            if self.random.random() < 0.4:
                await self.decide()
            if self.random.random() < self.flushing:
                self.flush()
            self.reap()
            self.services.check()
        await self.come_to_rest()

    def _operations(self) -> list[tuple[Callable[[], None], float]]:
        operations: list[tuple[Callable[[], None], float]] = [(self.connect, 4 if len(self.peers) < PEERS_MAX else 0)]
        operations += [(self.time_passes, 6), (self.sweep, 1), (self.publish, 12), (self.publish_live, 6)]
        if self.peers:
            operations += [(self.subscribe, 5), (self.unsubscribe, 1), (self.ack, 6), (self.fetch, 2), (self.leave, 2)]
            operations += [(self.slow_down, 2), (self.drain, 3), (self.subscribe_live, 4), (self.unsubscribe_live, 2)]
            operations += [(self.register, 2), (self.unregister, 0.5), (self.ask, 4), (self.answer, 4)]
            operations += [(self.change_form, 0.5), (self.speak, 3), (self.stall, 2), (self.unstall, 2)]
        return operations

    # Peers

    def connect(self) -> None:
        peer = SimulatedPeer(self._new("p"), self.random.choice(HABITS), self.random.choice(IDENTITIES), self)
        self.note(f"{peer.id} is {peer.identity} by {peer.protocol}")
        self.peers[peer.id] = self.live.peers[peer.id] = peer
        self.durable.sessions[peer.id] = peer.session
        self.broker.on_login(peer)
        if peer.pulls_backlog:
            for identity, topic in self.durable.subscribed:
                if identity == peer.identity:
                    self.durable.attach(peer.session, topic)

    def leave(self) -> None:
        self._gone(self._peer())

    def reap(self) -> None:
        """Those that the broker ended."""
        for peer in [peer for peer in self.peers.values() if peer.ended is not None]:
            assert peer.is_congested
            self.live.flush()
            self.broker.live.flush()
            self._gone(peer)

    def _gone(self, peer: SimulatedPeer) -> None:
        self.note(f"{peer.id} goes")
        del self.peers[peer.id]
        self.live.left(peer)
        self.broker.on_close(peer)
        del self.durable.sessions[peer.id]
        self.services.left(peer)
        peer.gone = True

    def speak(self) -> None:
        """Something that needs no answer."""
        peer = self._peer()
        self.note(f"{peer.id} speaks")
        self._speaks(peer)

    def _speaks(self, peer: SimulatedPeer) -> None:
        peer.bytes_in += 1
        self.durable.speak(peer.session)

    def stall(self) -> None:
        """Its network takes nothing more, but the buffers do."""
        peer = self._peer()
        self.note(f"{peer.id} stalls")
        peer.stalled = peer.session.stalled = True

    def unstall(self) -> None:
        self._unstall(self._peer())

    def _unstall(self, peer: SimulatedPeer) -> None:
        peer.stalled = False
        peer.bytes_drained = peer.bytes_written
        self.durable.now_s = self.now_s
        self.durable.unstall(peer.session)

    def slow_down(self) -> None:
        peer = self._peer()
        peer.is_congested = peer.session.slow = True

    def drain(self) -> None:
        for peer in self.random.sample(list(self.peers.values()), self.random.randint(0, len(self.peers))):
            if peer.is_congested:
                self._drain(peer)

    def _drain(self, peer: SimulatedPeer) -> None:
        self.note(f"{peer.id} drains")
        peer.is_congested = peer.session.slow = False
        peer.session.slow_s = self.now_s
        self.broker.on_drain(peer)
        self.live.drained(peer)

    def change_form(self) -> None:
        """A peer agrees on a key: from now on its bytes are its own."""
        self._peer().encoding_key = None

    # Durable topics

    def subscribe(self) -> None:
        peer, topics = self._peer(), self.random.sample(TOPICS, self.random.randint(1, 2))
        self.note(f"{peer.id} subscribes to {topics}")
        for topic in topics:
            self.durable.subscribe(peer.session, topic)
        self._ask_broker(peer, Op.SUBSCRIBE, topics=topics)

    def unsubscribe(self) -> None:
        peer, topic = self._peer(), self.random.choice(TOPICS)
        self.note(f"{peer.id} unsubscribes from {topic}")
        self.durable.unsubscribe(peer.session, topic)
        self._ask_broker(peer, Op.UNSUBSCRIBE, topics=[topic])

    def publish(self) -> None:
        topic = self.random.choice(TOPICS)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            content = UNSAYABLE if self.random.random() < 0.03 else self._new("n").encode()
            told, commit = self.broker.publish(topic, notification(topic, content), "erp", self._now_ms)
            assert commit is not None
            self.durable.publish(topic, told.id, content, self._now_ms)
            self.note(f"{topic} {len(self.durable.published[topic])}")

    def ack(self) -> None:
        """Some of what waits, in any order, with ids that mean nothing."""
        peer = self._peer()
        waiting = [
            (topic, position)
            for identity, topic in self.durable.subscribed
            if identity == peer.identity
            for position in self.durable.pending(identity, topic)
            if position <= self.durable.flushed.get(topic, 0)
        ]
        chosen = waiting if self.random.random() < 0.3 else self.random.sample(waiting, min(len(waiting), 3))
        self.note(f"{peer.id} acks {chosen}")
        for topic, position in chosen:
            self.durable.ack(peer.identity, topic, position)
        ids = [self.durable.published[topic][position - 1].id for topic, position in chosen]
        self._ask_broker(peer, Op.ACK, ids=[*ids, "unknown", "0-1-1"])

    def fetch(self) -> None:
        peer, correlation = self._peer(), self._new("f")
        self.store.barrier().wait(WAIT_S)
        self._handle(peer, asking(Op.BACKLOG, correlation))
        (answer,) = peer.answers(correlation)
        for identity, topic in self.durable.subscribed:
            if identity == peer.identity:
                ids = [self.durable.published[topic][at - 1].id for at in self.durable.sayable(identity, topic)]
                offered = [part.id for part in answer.parts if part.id in ids]
                assert offered == ids, f"{peer.id} is not offered what waits in {topic}"
        assert all(part.id.count("-") == 2 for part in answer.parts)

    def sweep(self) -> None:
        self.store.barrier().wait(WAIT_S)
        before = {topic: self.store.topics.floor(topic) for topic in TOPICS}
        self.store.topics.sweep(self._now_ms, KEEP_MS, 5)
        for topic in TOPICS:
            for position in range(before[topic] + 1, self.store.topics.floor(topic) + 1):
                published = self.durable.published[topic][position - 1]
                over = published.at_ms <= self._now_ms - KEEP_MS or published.content == UNSAYABLE
                assert over or all(
                    position in each.acked or position <= each.start
                    for (_, subscribed), each in self.durable.subscribed.items()
                    if subscribed == topic
                ), f"{topic} {position} is removed, but someone waits for it"

    # Live names

    def subscribe_live(self) -> None:
        peer, pattern = self._peer(), self.random.random() < 0.4
        name = self.random.choice(PATTERNS if pattern else NAMES)
        self.note(f"{peer.id} subscribes to {name}")
        self._ask_broker(peer, Op.SUBSCRIBE, **{"patterns" if pattern else "topics": [name]})
        self.live.subscribe(peer, name, pattern=pattern)

    def unsubscribe_live(self) -> None:
        joined = [(peer, *place) for place, peers in self.live.joined.items() for peer in peers]
        peer_id, name, pattern = self.random.choice(joined or [(self._peer().id, "x", False)])
        self.note(f"{peer_id} unsubscribes from {name}")
        peer = self.peers[peer_id]
        self._ask_broker(peer, Op.UNSUBSCRIBE, **{"patterns" if pattern else "topics": [name]})
        self.live.unsubscribe(peer, name, pattern=pattern)

    def publish_live(self) -> None:
        name = self.random.choice(NAMES)
        for _ in range(self.random.choice((1, 3))):
            content = UNSAYABLE if self.random.random() < 0.03 else self._new("v").encode()
            told, commit = self.broker.publish(name, notification(name, content), "erp", self._now_ms)
            assert commit is None
            assert told.fields == {"receivers": self.live.publish(name, content)}
            self.note(f"{name} {content.decode()}")

    # Services

    def register(self) -> None:
        peer, service = self._peer(), self.random.choice(SERVICES)
        self._ask_broker(peer, Op.REGISTER, service=service)
        self.services.providers.setdefault(service, {})[peer.id] = peer

    def unregister(self) -> None:
        peer, service = self._peer(), self.random.choice(SERVICES)
        self._ask_broker(peer, Op.UNREGISTER, service=service)
        self.services.providers.get(service, {}).pop(peer.id, None)

    def ask(self) -> None:
        peer, service, correlation = self._peer(), self.random.choice(SERVICES), self._new("q")
        timeout_ms = self.random.choice((100, 5000, 20_000))
        before = {other.id: len(other.asked()) for other in self.peers.values()}
        self._handle(peer, request(service, correlation, headers={"timeout_ms": timeout_ms}))
        self.services.asked(peer, service, correlation, self.now_s, timeout_ms / 1000, before)

    def answer(self) -> None:
        """An answer to an open request, a part of one, or one that nobody asked for."""
        waiting = self.services.open()
        if not waiting:
            self._handle(self._peer(), Message(kind=Kind.RESPONSE, correlation="12345"))
            return
        call = self.random.choice(waiting)
        assert call.provider is not None
        stranger = self._peer()
        if stranger is not call.provider:
            self._handle(stranger, Message(kind=Kind.RESPONSE, correlation=call.number, payload=b"not mine"))
        more = self.random.random() < 0.3
        payload = UNSAYABLE if not more and self.random.random() < 0.1 else b"answer"
        self._handle(call.provider, Message(kind=Kind.RESPONSE, correlation=call.number, payload=payload, more=more))
        self.services.answered(call, more=more, now_s=self.now_s)

    # Time

    def time_passes(self) -> None:
        """The broker is called whenever it asked to be, and then at the end."""
        self._pass(self.random.choice((0.01, 0.1, 0.3, 2.0, 20.0, 40.0, 200.0)))

    def _pass(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        for _ in range(TICKS_MAX):
            due_s = self.broker.due_s
            if due_s is None or due_s > until_s:
                break
            self.now_s = max(self.now_s, due_s)
            self._tick()
        else:
            raise AssertionError("the broker wants to be called without end")
        self.now_s = until_s
        self._tick()

    def _tick(self) -> None:
        self.durable.now_s = self.now_s
        self.broker.tick(self.now_s)
        self.services.ticked(self.now_s)
        self.durable.check_nothing_is_forgotten()

    async def decide(self) -> None:
        """The event loop hears of what is on disk."""
        published = {topic: len(all_) for topic, all_ in self.durable.published.items()}
        self.woken = False
        await self.store.barrier()
        for _ in range(3):
            await asyncio.sleep(0)
        assert self.woken or published == self.durable.decided, "nobody was told that there is something to flush"
        self.durable.decide()
        for peer, correlation in self.asked:
            (answer,) = peer.answers(correlation)
            assert answer.failure is None
        self.asked = []

    def flush(self) -> None:
        self.durable.now_s = self.now_s
        self.broker.flush(self.now_s)
        self.live.flush()
        self.live.check()
        self.durable.flush()

    async def come_to_rest(self) -> None:
        """Everybody reads, everything is flushed: then nothing may be missing."""
        self.history.append("rest")
        await self.decide()
        self.flush()
        self.reap()
        for peer in list(self.peers.values()):
            if peer.is_congested:
                self._drain(peer)
        for _ in range(100):
            self.flush()
            if not self.broker.waiting:
                break
        assert not self.broker.waiting, "the broker is never done"
        await self.decide()
        self.durable.check_nothing_is_missing()
        self.durable.check_backlogs()
        self.live.check()
        self.services.check()
        for peer in self.peers.values():
            self._unstall(peer)
        self._pass(IMPLICIT_ACK_LATEST_S)
        self.durable.check_all_is_acked()
        await self.decide()
        self.durable.check_backlogs()

    # Small things

    def note(self, text: str) -> None:
        self.history[-1:] = [f"{self.history[-1]}: {text}"] if self.history else [text]

    @property
    def _now_ms(self) -> int:
        return int(self.now_s * 1000)

    def _peer(self) -> SimulatedPeer:
        return self.random.choice(list(self.peers.values()))

    def _new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _handle(self, peer: FakePeer, message: Message) -> None:
        """A peer asks: bytes of its came, which counts like any others."""
        self.durable.now_s = self.now_s
        if isinstance(peer, SimulatedPeer):
            self._speaks(peer)
        self.broker.handle(peer, message, self.now_s, self._now_ms)

    def _ask_broker(self, peer: SimulatedPeer, op: Op, **fields: object) -> None:
        correlation = self._new("c")
        self.asked.append((peer, correlation))
        self._handle(peer, asking(op, correlation, **fields))

    def _record(self, event: str, topic: str, data: bytes, note: dict[str, object]) -> None:
        self.records.append((event, topic, note))
        if event == "ack" and "through" in note:
            through = note["through"]
            assert isinstance(through, int)
            self.durable.acked_through(str(note["identity"]), topic, through)

    def _wake(self) -> None:
        self.woken = True
