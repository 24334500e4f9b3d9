"""Random operations on topics beside a model of plain dicts and sets, with restarts in between."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wirelake.state.notifications import StoredNotification
from wirelake.state.store import StateStore
from wirelake.state.subscriptions import DeliveryCounts

WAIT_S = 30
KEEP_MS = 10
names = st.sampled_from(["ann", "bob", "cat"])
topics = st.sampled_from(["@a", "@b"])
contents = st.lists(st.binary(max_size=3), min_size=1, max_size=5)


class Waiting:
    """One identity's notifications of one topic, each in one state."""

    def __init__(self) -> None:
        self.pending: dict[int, StoredNotification] = {}
        self.acked = 0
        self.expired = 0


class TopicsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = StateStore(Path(self.folder.name) / "state.db")
        self.held = ExitStack()
        self.is_held = False
        self.now_ms = 0
        self.published: dict[str, list[StoredNotification]] = {"@a": [], "@b": []}
        self.subscriptions: dict[tuple[str, str], Waiting] = {}

    def teardown(self) -> None:
        self.held.close()
        self.store.close()
        self.folder.cleanup()

    @rule(topic=topics, number=st.integers(min_value=1, max_value=4))
    def publish(self, topic: str, number: int) -> None:
        for _ in range(number):
            self._published(self.store.topics.publish(topic, b"%d" % self.now_ms, self.now_ms)[0])

    @rule(runs=st.lists(st.tuples(topics, contents, st.sampled_from(["", "ann"])), max_size=3))
    def publish_together(self, runs: list[tuple[str, list[bytes], str]]) -> None:
        notifications, _ = self.store.topics.publish_many(runs, self.now_ms)
        wanted = [(topic, content, publisher) for topic, several, publisher in runs for content in several]
        assert [(each.topic, each.content, each.publisher) for each in notifications] == wanted
        for notification in notifications:
            self._published(notification)

    def _published(self, notification: StoredNotification) -> None:
        topic = notification.topic
        assert notification.position == len(self.published[topic]) + 1
        self.published[topic].append(notification)
        for (_, subscribed), waiting in self.subscriptions.items():
            if subscribed == topic:
                waiting.pending[notification.position] = notification

    @rule(name=names, topic=topics)
    def subscribe(self, name: str, topic: str) -> None:
        self.store.topics.subscribe(name, topic)
        self.subscriptions.setdefault((name, topic), Waiting())

    @rule(name=names, topic=topics)
    def unsubscribe(self, name: str, topic: str) -> None:
        self.store.topics.unsubscribe(name, topic)
        self.subscriptions.pop((name, topic), None)

    @rule(name=names, picks=st.lists(st.tuples(topics, st.integers(min_value=0, max_value=40)), max_size=6))
    def ack(self, name: str, picks: list[tuple[str, int]]) -> None:
        chosen = [(topic, self.published[topic][i]) for topic, i in picks if i < len(self.published[topic])]
        self.store.topics.ack(name, [notification.id for _, notification in chosen])
        for topic, notification in chosen:
            waiting = self.subscriptions.get((name, topic))
            if waiting is not None and waiting.pending.pop(notification.position, None) is not None:
                waiting.acked += 1

    @rule(name=names, topic=topics, position=st.integers(min_value=0, max_value=40))
    def ack_through(self, name: str, topic: str, position: int) -> None:
        self.store.topics.ack_through(name, topic, position)
        waiting = self.subscriptions.get((name, topic))
        for passed in [] if waiting is None else [passed for passed in waiting.pending if passed <= position]:
            assert waiting is not None
            del waiting.pending[passed]
            waiting.acked += 1

    @rule(later_ms=st.integers(min_value=1, max_value=KEEP_MS))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms

    @rule(rows_max=st.integers(min_value=1, max_value=5))
    def sweep(self, rows_max: int) -> None:
        for part in self.store.topics.sweep(self.now_ms, KEEP_MS, rows_max).expired:
            for position in range(part.first, part.last + 1):
                assert self.published[part.topic][position - 1].at_ms <= self.now_ms - KEEP_MS
        # Whatever is below the floor now and was still pending has expired, and only that.
        for (_, topic), waiting in self.subscriptions.items():
            floor = self.store.topics.floor(topic)
            for position in [position for position in waiting.pending if position <= floor]:
                assert waiting.pending.pop(position).at_ms <= self.now_ms - KEEP_MS
                waiting.expired += 1

    @precondition(lambda self: self.subscriptions)
    @rule()
    def sweep_to_the_end(self) -> None:
        self.let_the_writer_go()
        before = None
        while before != (before := [self.store.topics.floor(topic) for topic in self.published]):
            for _ in range(len(self.published)):
                self.sweep(5)
                self.let_the_writer_go()
        for waiting in self.subscriptions.values():
            assert all(each.at_ms > self.now_ms - KEEP_MS for each in waiting.pending.values())

    @rule()
    def hold_the_writer(self) -> None:
        """What follows gathers in one batch, and the disk stays behind memory."""
        self.held.enter_context(self.store.writer.transaction())
        self.is_held = True

    @rule()
    def let_the_writer_go(self) -> None:
        self.held.close()
        self.is_held = False
        self.store.barrier().wait(WAIT_S)

    @rule()
    def restart(self) -> None:
        self.let_the_writer_go()
        path = self.store.database.path
        self.store.close()
        self.store = StateStore(path)

    @invariant()
    def every_delivery_is_in_the_state_it_should_be(self) -> None:
        for (name, topic), waiting in self.subscriptions.items():
            expected = DeliveryCounts(waiting.acked, waiting.expired, len(waiting.pending))
            assert self.store.topics.delivery_counts(name, topic) == expected

    @precondition(lambda self: not self.is_held)
    @invariant()
    def the_backlog_is_what_is_pending(self) -> None:
        self.store.barrier().wait(WAIT_S)
        for (name, topic), waiting in self.subscriptions.items():
            assert self.store.topics.backlog(name, [topic]) == sorted(
                waiting.pending.values(), key=lambda each: each.position
            )

    @precondition(lambda self: not self.is_held)
    @invariant()
    def disk_holds_what_is_above_the_floor(self) -> None:
        self.store.barrier().wait(WAIT_S)
        for topic, published in self.published.items():
            kept = self.store.topics.read_after(topic, 0)
            assert kept == published[self.store.topics.floor(topic) :]


TestTopics = TopicsModel.TestCase
TestTopics.settings = settings(max_examples=60, stateful_step_count=40)
