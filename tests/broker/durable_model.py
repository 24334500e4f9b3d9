"""What durable topics must do, in dicts and lists: the model that the simulation holds the broker against."""

from itertools import count

from msgspec import Struct, field

from broker.peers import UNSAYABLE, Told
from wirelake.limits import BROKER_IMPLICIT_ACK_TICK_S, BROKER_RUNS_PER_PAUSE
from wirelake.state.topics import TopicStore

RESEND_S = 30.0
RESEND_LATEST_S = 2 * RESEND_S + RESEND_S / BROKER_RUNS_PER_PAUSE  # in a steady flow, the second time
IMPLICIT_ACK_S = 20.0
IMPLICIT_ACK_LATEST_S = IMPLICIT_ACK_S * (1 + 1 / BROKER_RUNS_PER_PAUSE) + 4 * BROKER_IMPLICIT_ACK_TICK_S
KEEP_MS = 100_000


class Published(Struct):
    id: str
    content: bytes
    at_ms: int


class Subscribed(Struct):
    """One identity in one topic."""

    start: int
    acked: set[int] = field(default_factory=set)


class Fed(Struct):
    """One session in one topic."""

    begun: int  # flushed when it came
    missed: set[int]  # what it must get of the time before
    highest: int = 0
    got: dict[int, float] = field(default_factory=dict)  # position → when last
    drained: dict[int, tuple[int, float]] = field(default_factory=dict)  # position → when it left the machine


class Session(Struct):
    id: str
    identity: str
    sends_acks: bool
    pulls_backlog: bool
    fed: dict[str, Fed] = field(default_factory=dict)
    slow: bool = False
    slow_s: float = -1e9  # when it last was
    stalled: bool = False  # what is written to it stays in the machine
    spoke: int = 0  # when it last sent something, in the order of events


class DurableModel:
    def __init__(self, topics: TopicStore) -> None:
        self.topics = topics  # asked for its floor only: what is removed, is
        self.now_s = 0.0
        self.published: dict[str, list[Published]] = {}
        self.decided: dict[str, int] = {}
        self.flushed: dict[str, int] = {}
        self.subscribed: dict[tuple[str, str], Subscribed] = {}
        self.sessions: dict[str, Session] = {}
        self._order = count(1)  # of events: two may happen at the same time

    # What is done

    def publish(self, topic: str, id: str, content: bytes, at_ms: int) -> None:  # noqa: A002 the field's name
        self.published.setdefault(topic, []).append(Published(id, content, at_ms))

    def decide(self) -> None:
        self.decided = {topic: len(all_) for topic, all_ in self.published.items()}

    def flush(self) -> None:
        self.flushed = dict(self.decided)

    def subscribe(self, session: Session, topic: str) -> None:
        self.subscribed.setdefault((session.identity, topic), Subscribed(len(self.published.get(topic, []))))
        self.attach(session, topic)

    def attach(self, session: Session, topic: str) -> None:
        if topic in session.fed:
            return
        begun = self.flushed.get(topic, 0)
        missed: set[int] = set()
        if not session.pulls_backlog:
            missed = {position for position in self.pending(session.identity, topic) if position <= begun}
        session.fed[topic] = Fed(begun, missed)

    def unsubscribe(self, session: Session, topic: str) -> None:
        self.subscribed.pop((session.identity, topic), None)
        for other in self.sessions.values():
            if other.identity == session.identity:
                other.fed.pop(topic, None)

    def ack(self, identity: str, topic: str, position: int) -> None:
        subscribed = self.subscribed.get((identity, topic))
        if subscribed is not None and position > max(subscribed.start, self.topics.floor(topic)):
            subscribed.acked.add(position)

    def acked_through(self, identity: str, topic: str, through: int) -> None:
        """The broker acked for a peer without acks: was that right?"""
        subscribed = self.subscribed[identity, topic]
        of_identity = [each for each in self.sessions.values() if each.identity == identity and not each.sends_acks]
        for position in self.sayable(identity, topic):
            if position <= through:
                assert any(self._has(session, topic, position) for session in of_identity), (
                    f"{topic} {position} is acked for {identity}, which may not have it"
                )
        subscribed.acked |= set(range(subscribed.start + 1, through + 1))

    def speak(self, session: Session) -> None:
        session.spoke = next(self._order)

    def unstall(self, session: Session) -> None:
        session.stalled = False
        for fed in session.fed.values():
            self._drain(fed)

    def told(self, session: Session, told: Told) -> None:
        """A notification came to a session: was that right?"""
        topic = told.topic
        position = next(
            place for place, published in enumerate(self.published[topic], 1) if published.id == told.id
        )  # an unknown id ends here
        assert told.content == self.published[topic][position - 1].content
        assert topic in session.fed, f"{session.id} is told of {topic}, to which it is not subscribed"
        fed, subscribed = session.fed[topic], self.subscribed[session.identity, topic]
        if position in fed.got:
            assert session.sends_acks, f"{topic} {position} twice to {session.id}, which has no acks"
            assert position not in subscribed.acked, f"{topic} {position} again to {session.id} after its ack"
            assert self.now_s - fed.got[position] >= RESEND_S - 1e-6, f"{topic} {position} again too early"
        else:
            self._first(session, fed, subscribed, topic, position)
        fed.got[position] = self.now_s
        if not session.stalled:
            self._drain(fed)

    # What must be

    def pending(self, identity: str, topic: str) -> list[int]:
        subscribed = self.subscribed[identity, topic]
        first = max(subscribed.start, self.topics.floor(topic)) + 1
        last = len(self.published.get(topic, []))
        return [position for position in range(first, last + 1) if position not in subscribed.acked]

    def sayable(self, identity: str, topic: str) -> list[int]:
        """What a protocol has no room for is passed over, and acked with the rest where there are no acks."""
        waiting = self.pending(identity, topic)
        return [position for position in waiting if self.published[topic][position - 1].content != UNSAYABLE]

    def check_nothing_is_missing(self) -> None:
        """Once all is flushed and every fast reader has caught up."""
        for session in self.sessions.values():
            for topic, fed in session.fed.items():
                if not session.slow:
                    flushed = self.flushed.get(topic, 0)
                    self._may_lack(session, fed, topic, [*sorted(fed.missed), *range(fed.begun + 1, flushed + 1)])

    def check_nothing_is_forgotten(self) -> None:
        """What was not acked is sent again, in time."""
        for session in self.sessions.values():
            if not session.sends_acks or session.slow:
                continue
            for topic, fed in session.fed.items():
                waiting = set(self.pending(session.identity, topic))
                for position, at_s in fed.got.items():
                    waited_s = self.now_s - max(at_s, session.slow_s)
                    assert position not in waiting or waited_s <= RESEND_LATEST_S, f"{topic} {position} is forgotten"

    def check_all_is_acked(self) -> None:
        """For those without acks that are still there, when their time is over."""
        for session in self.sessions.values():
            for topic in session.fed:
                if not session.sends_acks:
                    waiting = self.sayable(session.identity, topic)
                    assert waiting == [], f"{topic} {waiting} is never acked for {session.id}"

    def check_backlogs(self) -> None:
        for identity, topic in self.subscribed:
            waiting = [each.position for each in self.topics.backlog(identity, [topic]) if each.content != UNSAYABLE]
            expected = self.sayable(identity, topic)
            assert waiting == expected, f"the backlog of {identity} in {topic}: {waiting}, not {expected}"

    def _first(self, session: Session, fed: Fed, subscribed: Subscribed, topic: str, position: int) -> None:
        assert position > fed.highest, f"{topic} {position} after {fed.highest}: out of order"
        assert position <= self.decided.get(topic, 0), f"{topic} {position} before it is durable"
        if position <= fed.begun:
            assert position in fed.missed, f"{topic} {position} was settled before {session.id} came"
            assert position not in subscribed.acked, f"{topic} {position} is acked and offered again"
        skipped = [each for each in sorted(fed.missed) if fed.highest < each < position]
        skipped += range(max(fed.highest, fed.begun) + 1, position)
        self._may_lack(session, fed, topic, skipped)
        fed.highest = position

    def _may_lack(self, session: Session, fed: Fed, topic: str, expected: list[int]) -> None:
        subscribed, floor = self.subscribed[session.identity, topic], self.topics.floor(topic)
        for position in expected:
            removed = position <= floor or self.published[topic][position - 1].content == UNSAYABLE
            settled = position <= fed.begun and position in subscribed.acked
            assert position in fed.got or removed or settled, f"{topic} {position} never came to {session.id}"

    def _drain(self, fed: Fed) -> None:
        for position in fed.got.keys() - fed.drained.keys():
            fed.drained[position] = (next(self._order), self.now_s)

    def _has(self, session: Session, topic: str, position: int) -> bool:
        fed = session.fed.get(topic)
        if fed is None or position not in fed.drained:
            return False
        place, at_s = fed.drained[position]
        return place < session.spoke or self.now_s - at_s >= IMPLICIT_ACK_S - 1e-6
