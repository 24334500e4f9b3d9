"""Random operations of several identities whose roles change, beside a model. The seed is in the test's name.

Nobody gets a notification or a request of a target that its roles do not allow at that time, and a durable subscription
that is forbidden for a while loses nothing.
"""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec import convert

from broker.peers import COMET, ESNP, MAGLINE, REDIS, FakePeer, Habits, Told, asking, notification, response
from wirelake.broker.access import AccessPolicy
from wirelake.broker.broker import Broker
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.message import Failure, FailureCode, Kind, Message, Op, Operation
from wirelake.roles import Action, Role
from wirelake.state.store import StateStore
from wirelake.state.tokens import TokenHash

SEEDS = 60
STEPS = 150
IDENTITIES = ("ann", "bob", "cat")
HABITS = (COMET, MAGLINE, ESNP, REDIS)
DURABLE = ("@news", "@news/a", "@news/a/b", "@inbox/ann", "@inbox/bob")
LIVE = ("x", "y/1", "y/2")
GLOBS = ("y/*", "*", "x")
SERVICES = ("echo", "sums")
OPS = ("do", "undo")
PATTERNS = {
    Action.SUBSCRIBE: ("@news", "@news/*", "@news/**", "@inbox/{identity}", "x", "y/*", "y/**", "**"),
    Action.PUBLISH: ("@news/**", "@inbox/*", "*", "**"),
    Action.CALL: ("echo/*", "sums/do", "**"),
    Action.PROVIDE: ("echo", "*", "**"),
}
NOBODY = TokenHash(b"", b"", 0, 0, 0)
PEERS_MAX = 8


def matches(pattern: str, target: str, identity: str) -> bool:
    """Match without regular expressions: patterns here end with a wildcard, or have none."""
    pattern = pattern.replace("{identity}", identity)
    if pattern.endswith("**"):
        return target.startswith(pattern[:-2])
    if pattern.endswith("*"):
        return target.startswith(pattern[:-1]) and "/" not in target[len(pattern) - 1 :]
    return target == pattern


class ModelPeer(FakePeer):
    """Check whatever arrives against the rights of this moment."""

    def __init__(self, id: str, habits: Habits, identity: str, world: "World") -> None:  # noqa: A002 the field's name
        super().__init__(id, habits, identity)
        self._world = world

    def note(self, told: Told) -> None:
        super().note(told)
        self._world.check(self, Action.SUBSCRIBE, told.topic)
        self._world.received[self.identity].add(told.content)

    def send(self, message: Message) -> None:
        super().send(message)
        if message.kind is Kind.REQUEST:
            assert isinstance(message.target, Operation)
            self._world.check(self, Action.PROVIDE, message.target.service)
            assert message.payload in self._world.permitted_calls, f"{self.id} is asked what nobody may ask"


class World:
    def __init__(self, seed: int, store: StateStore) -> None:
        self.random = random.Random(seed)
        self.store = store
        self.roles: dict[str, Role] = {}
        self.received: dict[str, set[bytes]] = {name: set() for name in IDENTITIES}
        self.expected: dict[str, set[bytes]] = {name: set() for name in IDENTITIES}  # of durable subscriptions
        self.subscribed: dict[str, set[str]] = {name: set() for name in IDENTITIES}  # to durable topics
        self.permitted_calls: set[bytes] = set()
        self.peers: dict[str, ModelPeer] = {}
        self.history: list[str] = []
        self.refusals = 0
        self.now_s = 1000.0
        self.count = 0
        for name in IDENTITIES:
            store.identities.add(name, NOBODY, 1)
        access = AccessPolicy(store.identities.roles_of)
        self.broker = Broker(store, lambda *_: None, access=access)
        self.enforcement = RoleEnforcement(self.broker, store.identities, lambda: self.peers.values(), lambda _: ())

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            operations, weights = zip(*self._operations(), strict=True)
            chosen: Callable[[], None] = self.random.choices(operations, weights)[0]
            chosen()
            if self.random.random() < 0.5:
                await self._settle()
            if self.random.random() < 0.5:
                self._reap()
        await self._come_to_rest()

    def _operations(self) -> list[tuple[Callable[[], None], float]]:
        operations: list[tuple[Callable[[], None], float]] = [
            (self.log_in, 3 if len(self.peers) < PEERS_MAX else 0),
            (self.assign, 3),
            (self.change_role, 2),
            (self.publish_as_gateway, 4),
        ]
        if any(peer.ended is None for peer in self.peers.values()):
            operations += [(self.subscribe, 6), (self.psubscribe, 3), (self.publish, 8), (self.register, 4)]
            operations += [(self.call, 6), (self.fetch, 3), (self.leave, 1)]
        return operations

    # The model

    def allows(self, identity: str, action: Action, target: str) -> bool:
        return any(matches(pattern, target, identity) for pattern in self._patterns(identity, action))

    def _patterns(self, identity: str, action: Action) -> Iterable[str]:
        names = self.store.identities.roles_of(identity)
        if not names:
            return ("**",)  # a member
        return [pattern for name in names if name in self.roles for pattern in self.roles[name].patterns(action)]

    def check(self, peer: FakePeer, action: Action, target: str) -> None:
        assert self.allows(peer.identity, action, target), f"{peer.id} of {peer.identity} may not {action} {target}"

    # Operations

    def log_in(self) -> None:
        self._log_in(self.random.choice(IDENTITIES), self.random.choice(HABITS))

    def _log_in(self, identity: str, habits: Habits) -> ModelPeer:
        peer = ModelPeer(self._new("p"), habits, identity, self)
        self.history.append(f"{peer.id} is {identity} by {habits.protocol}")
        self.peers[peer.id] = peer
        self.broker.on_login(peer)
        return peer

    def leave(self) -> None:
        self._forget(self._peer())

    def assign(self) -> None:
        identity = self.random.choice(IDENTITIES)
        names = self.random.sample(sorted(self.roles), min(len(self.roles), self.random.randint(0, 2)))
        self.history.append(f"{identity} gets {names}")
        self.enforcement.assign(identity, names)

    def change_role(self) -> None:
        """Change a role of the settings, or remove it: who has it then has nothing from it."""
        name = self.random.choice(("r1", "r2", "r3"))
        if name in self.roles and self.random.random() < 0.2:
            self.roles = {other: role for other, role in self.roles.items() if other != name}
        else:
            chosen = {
                str(action): tuple(self.random.sample(patterns, self.random.randint(0, 2)))
                for action, patterns in PATTERNS.items()
            }
            self.roles = {**self.roles, name: convert(chosen, Role)}
        self.history.append(f"{name} is {self.roles.get(name)}")
        self.enforcement.apply(self.roles)

    def subscribe(self) -> None:
        peer, topics = self._peer(), self.random.sample(DURABLE + LIVE, self.random.randint(1, 2))
        refused = next((name for name in topics if not self.allows(peer.identity, Action.SUBSCRIBE, name)), None)
        self._ask(peer, asking(Op.SUBSCRIBE, self._new("c"), topics=topics), Action.SUBSCRIBE, refused)
        if refused is None:
            self.subscribed[peer.identity].update(name for name in topics if name.startswith("@"))

    def psubscribe(self) -> None:
        peer, glob = self._peer(), self.random.choice(GLOBS)
        covering = {"y/*": {"y/**", "**"}, "*": {"**"}, "x": {"x", "**"}}[glob]
        is_allowed = bool(covering & set(self._patterns(peer.identity, Action.SUBSCRIBE)))
        message = asking(Op.SUBSCRIBE, self._new("c"), patterns=[glob])
        self._ask(peer, message, Action.SUBSCRIBE, None if is_allowed else glob)

    def publish(self) -> None:
        peer, topic = self._peer(), self.random.choice(DURABLE + LIVE)
        content, correlation = self._new("n").encode(), self._new("c")
        is_allowed = self.allows(peer.identity, Action.PUBLISH, topic)
        message = notification(topic, content, correlation)
        self._ask(peer, message, Action.PUBLISH, None if is_allowed else topic)
        if is_allowed:
            self._expect(topic, content)

    def publish_as_gateway(self) -> None:
        topic, content = self.random.choice(DURABLE + LIVE), self._new("n").encode()
        self.history.append(f"{topic} gets {content.decode()}")
        self.broker.publish(topic, notification(topic, content), "", self._now_ms)
        self._expect(topic, content)

    def _expect(self, topic: str, content: bytes) -> None:
        for identity, topics in self.subscribed.items():
            if topic in topics:
                self.expected[identity].add(content)

    def register(self) -> None:
        peer, service = self._peer(), self.random.choice(SERVICES)
        is_allowed = self.allows(peer.identity, Action.PROVIDE, service)
        others = self.broker.services.providers(service) - {peer.identity}
        if others and not self.store.identities.roles_of(peer.identity):
            is_allowed = False  # a member takes over nothing
        message = asking(Op.REGISTER, self._new("c"), service=service)
        self._ask(peer, message, Action.PROVIDE, None if is_allowed else service)

    def call(self) -> None:
        peer, service, op = self._peer(), self.random.choice(SERVICES), self.random.choice(OPS)
        payload, correlation = self._new("q").encode(), self._new("c")
        is_allowed = self.allows(peer.identity, Action.CALL, f"{service}/{op}")
        if is_allowed:
            self.permitted_calls.add(payload)
        message = Message(kind=Kind.REQUEST, target=Operation(service, op), correlation=correlation, payload=payload)
        self._ask(peer, message, Action.CALL, None if is_allowed else f"{service}/{op}")
        for provider in self.peers.values():
            for asked in provider.asked():
                self.broker.handle(provider, response(asked), self.now_s, self._now_ms)
            provider.heard.clear()

    def fetch(self) -> None:
        peer, correlation = self._peer(), self._new("c")
        self.store.barrier().wait(30)
        self.broker.handle(peer, asking(Op.BACKLOG, correlation), self.now_s, self._now_ms)
        (answer,) = peer.answers(correlation)
        self._read_backlog(peer, answer)

    def _read_backlog(self, peer: ModelPeer, answer: Message) -> None:
        for part in answer.parts:
            assert part.target is not None
            self.check(peer, Action.SUBSCRIBE, part.target.name)  # type: ignore[union-attr]
            self.received[peer.identity].add(part.payload)
        if answer.parts and self.random.random() < 0.5:
            ids = [part.id for part in answer.parts]
            self.broker.handle(peer, asking(Op.ACK, self._new("c"), ids=ids), self.now_s, self._now_ms)

    # Time

    async def _settle(self) -> None:
        """Let the event loop hear of what is on disk, and flush."""
        await self.store.barrier()
        for _ in range(100):
            self.broker.flush(self.now_s)
            if not self.broker.waiting:
                break
        self.now_s += self.random.choice((0.01, 1.0, 31.0))
        self.broker.tick(self.now_s)
        self.broker.flush(self.now_s)

    async def _come_to_rest(self) -> None:
        """Everybody may do everything again, and gets what it missed."""
        self.history.append("rest")
        await self._settle()
        for peer in list(self.peers.values()):
            self._forget(peer)
        for identity in IDENTITIES:
            self.enforcement.assign(identity, ())
            peer = self._log_in(identity, COMET)
            await self._settle()
            for _ in range(100):
                self.broker.handle(peer, asking(Op.BACKLOG, correlation := self._new("c")), self.now_s, self._now_ms)
                (answer,) = peer.answers(correlation)
                self.received[identity].update(part.payload for part in answer.parts)
                if not answer.parts:
                    break
                ids = [part.id for part in answer.parts]
                self.broker.handle(peer, asking(Op.ACK, self._new("c"), ids=ids), self.now_s, self._now_ms)
                await self._settle()
            missing = self.expected[identity] - self.received[identity]
            assert not missing, f"{identity} never got {sorted(missing)}"
        assert self.refusals, "the world is too permissive to test anything"

    # Small things

    def _ask(self, peer: ModelPeer, message: Message, action: Action, refused: str | None) -> None:
        """Handle a request; it is refused exactly if the model says so, with the text that names the target."""
        self.history.append(f"{peer.id}: {action} {message.target or message.fields}, refused: {refused}")
        self.broker.handle(peer, message, self.now_s, self._now_ms)
        failures = [answer.failure for answer in peer.answers(message.correlation)]
        denied = [failure for failure in failures if failure and failure.code == FailureCode.ACCESS_DENIED]
        if refused is None:
            assert not denied
        else:
            assert denied == [Failure(f"access denied: {action} {refused}", FailureCode.ACCESS_DENIED)]
            self.refusals += 1

    def _peer(self) -> ModelPeer:
        return self.random.choice([peer for peer in self.peers.values() if peer.ended is None])

    def _reap(self) -> None:
        """Forget those that were closed; a connection ends some time after it was told to."""
        for peer in [peer for peer in self.peers.values() if peer.ended is not None]:
            assert peer.ended is not None
            assert peer.ended.code == "access_denied"
            self._forget(peer)

    def _forget(self, peer: ModelPeer) -> None:
        self.history.append(f"{peer.id} goes")
        del self.peers[peer.id]
        self.broker.on_close(peer)

    @property
    def _now_ms(self) -> int:
        return int(self.now_s * 1000)

    def _new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nobody_gets_what_its_roles_do_not_allow(seed: int, tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.database.write_connection.execute("PRAGMA synchronous = OFF")
    world = World(seed, store)
    try:
        await world.run(STEPS)
    except AssertionError as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.history[-60:]))
        raise
    finally:
        store.close()
