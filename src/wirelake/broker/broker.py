"""Takes the messages that sessions hand up and does what they ask, whatever protocol asked.

Answers that promise something durable are given when it is: the broker keeps them by commit, with one callback for all.
"""

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import ValidationError, convert
from msgspec.structs import replace

from wirelake.broker.consumer import as_message
from wirelake.broker.delivery_log import Record
from wirelake.broker.jobs import AtOnce, Job, Jobs
from wirelake.broker.notifier import Notifier
from wirelake.broker.peer import Peer, PeerObserver
from wirelake.broker.services import ANSWERED, ROUTED, Services, failed
from wirelake.broker.topics_durable import DurableTopics
from wirelake.broker.topics_live import LiveTopics
from wirelake.cleanup import clean_up
from wirelake.commit import Commit
from wirelake.errors import EncodeError, InputError, StateError, StorageError, TranslationError
from wirelake.limits import (
    BROKER_BACKLOG_BYTES,
    BROKER_BACKLOG_ROWS,
    BROKER_CALL_MS_MAX,
    BROKER_CALL_S,
    BROKER_IMPLICIT_ACK_S,
    BROKER_RESEND_S,
    BROKER_TOPIC_CHARS_MAX,
    BROKER_TOPICS_PER_REQUEST_MAX,
)
from wirelake.message import (
    BROADCAST,
    EVERY_DEVICE,
    FETCH_FORMAT,
    TOPIC,
    Device,
    FailureCode,
    Kind,
    Message,
    Op,
    Operation,
    Topic,
    content_of,
    control_op,
)
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.session import Closing
from wirelake.state.notifications import BacklogLimits, StoredNotification
from wirelake.state.store import StateStore
from wirelake.state.topics import PublishRequest

_log = logging.getLogger(__name__)

_TOPIC: Final = re.compile(TOPIC)
RETAIN: Final = "retain"  # header of a notification
RECEIVED: Final = "received"

RecordPublished = Callable[[Sequence[StoredNotification], bool], None]  # in their order; whether the last value is kept
Builtin = Callable[[Peer, Message, float], None]  # a service of the gateway's own


class Broker:
    def __init__(
        self,
        state: StateStore,
        record: Record,
        *,
        conflate: bool = False,
        devices_topic: str = "",
        resend_s: float = BROKER_RESEND_S,
        implicit_ack_s: float = BROKER_IMPLICIT_ACK_S,
        call_s: float = BROKER_CALL_S,
        record_published: RecordPublished | None = None,
    ) -> None:
        self.notifier = Notifier()
        self.live = LiveTopics(self.notifier, conflate=conflate)
        self.durable = DurableTopics(state.topics, record, self.notifier, resend_s, implicit_ack_s)
        self.services = Services(self.notifier)
        self.builtin: dict[str, Builtin] = {}
        self.jobs: Jobs = AtOnce()
        self.fetch: Builtin | None = None  # serves what is to be fetched by HTTP, whatever its service
        self.observers: list[PeerObserver] = []  # services of the gateway's own that remember peers
        self.devices: dict[str, Peer] = {}  # serial → its session
        self._state = state
        self._record = record
        self._record_published = record_published or self._record_each
        self.call_s = call_s  # for an answer, where the request names no time of its own
        self.devices_topic = devices_topic  # telemetry of a device is published on this and its serial; empty: not
        self._answers: dict[Commit, list[tuple[Peer, Message]]] = {}

    def on_login(self, peer: Peer) -> None:
        """The peer's login was accepted: its durable subscriptions are its identity's."""
        if peer.pulls_backlog:
            for name in self._state.topics.topics_of(peer.identity):
                self.durable.attach(peer, name)

    def topics_of(self, peer: Peer) -> list[str]:
        """What its session is subscribed to, durable and live."""
        return [*self.durable.lag(peer), *self.live.names_of(peer)]

    def rejoin(self, peer: Peer, topic: str) -> None:
        """The session was subscribed to this before its connection was lost."""
        if Topic(topic).is_durable:
            self.durable.attach(peer, topic)
        else:
            self.live.subscribe(peer, topic)

    def on_close(self, peer: Peer) -> None:
        """The peer is gone: forget it everywhere, whatever fails on the way."""
        if self.devices.get(peer.identity) is peer:
            del self.devices[peer.identity]
        clean_up(
            f"session {peer.id}",
            partial(self.live.leave, peer),
            partial(self.durable.leave, peer),
            partial(self.services.leave, peer),
            *[partial(watcher.on_close, peer) for watcher in self.observers],
        )

    def handle(self, peer: Peer, message: Message, now_s: float, now_ms: int) -> None:
        """What a session handed up. A fault of the asker's, or of the disk, is its answer."""
        if message.traced:
            self.services.hop(peer, message.correlation, RECEIVED, "")
        try:
            self._handle(peer, message, now_s, now_ms)
        except (InputError, EncodeError, TranslationError, StateError) as error:
            peer.send(failed(message.correlation, str(error), FailureCode.BAD_REQUEST))
        except StorageError as error:
            peer.send(failed(message.correlation, str(error), FailureCode.STORAGE))

    @property
    def waiting(self) -> bool:
        return self.live.waiting or self.durable.waiting

    def flush(self, now_s: float) -> None:
        """Once a turn of the event loop, if `waiting`."""
        if self.live.waiting:
            self.live.flush()
        if self.durable.waiting:
            self.durable.flush(now_s)

    def on_drain(self, peer: Peer) -> None:
        self.live.on_drain(peer)
        self.durable.on_drain(peer)
        for watcher in self.observers:
            watcher.on_drain(peer)

    @property
    def due_s(self) -> float | None:
        return min((due for due in (self.durable.due_s, self.services.due_s) if due is not None), default=None)

    def tick(self, now_s: float) -> None:
        self.durable.tick(now_s)
        self.services.tick(now_s)

    def publish(self, topic: str, message: Message, publisher: str, now_ms: int) -> tuple[Message, Commit | None]:
        """The notification as it will be delivered, and when it is durable (None for a live name).

        A live name's answer has the number of receivers in `fields`. With the header `retain` a durable topic keeps it
        as its last value, for those who subscribe later.
        """
        check_topic(topic)
        content = content_of(message)
        if not Topic(topic).is_durable:
            notification = Message(
                kind=Kind.NOTIFICATION,
                source=publisher,
                target=Topic(topic),
                payload=content,
                type=message.type,
                at_ms=now_ms,
            )
            reached = self.live.publish(topic, notification)
            return replace(notification, fields={"receivers": reached}), None
        retain = message.headers.get(RETAIN) is True
        kept, commit = self.durable.publish(topic, content, now_ms, message.type, publisher, retain=retain)
        self._record_published([kept], retain)
        return as_message(kept), commit

    def publish_batch(self, peer: Peer, correlation: str, bundle: PublishBatch, now_ms: int) -> None:
        """Many on one durable topic; the answer is for each of them."""
        try:
            kept, commit = self.durable.publish_many([(bundle.topic, bundle.contents(), peer.identity)], now_ms)
            self._record_published(kept, False)
        except InputError as error:
            peer.send(failed(correlation, str(error), FailureCode.BAD_REQUEST))
        except StorageError as error:
            peer.send(failed(correlation, str(error), FailureCode.STORAGE))
        else:
            receivers = len(self._state.topics.subscribers(bundle.topic))
            self.after(
                commit, peer, Message(kind=Kind.RESPONSE, correlation=correlation, fields={"receivers": receivers})
            )

    def _record_each(self, notifications: Sequence[StoredNotification], retain: bool) -> None:
        for kept in notifications:
            note = {"id": kept.id, "position": kept.position, "type": kept.type, "by": kept.publisher}
            self._record("publish", kept.topic, kept.content, {**note, "retain": True} if retain else note)

    def after(self, commit: Commit | None, peer: Peer, answer: Message) -> None:
        """Say this once that is durable, or that it failed."""
        if commit is None:
            self._answer(peer, answer)
            return
        answers = self._answers.get(commit)
        if answers is not None:
            answers.append((peer, answer))
        else:
            self._answers[commit] = [(peer, answer)]
            commit.add_done_callback(self._decided)  # at once, if there is nothing to wait for

    def _decided(self, commit: Commit) -> None:
        if commit.error is not None:
            self.durable.reconcile()
        for peer, answer in self._answers.pop(commit):
            if answer.kind is Kind.NOTIFICATION:
                if commit.error is None:
                    self.notifier.send(peer, answer)
            elif commit.error is not None:
                peer.send(failed(answer.correlation, str(commit.error), FailureCode.STORAGE))
            else:
                self._answer(peer, answer)

    def _answer(self, peer: Peer, answer: Message) -> None:
        """Of the gateway itself."""
        if answer.traced:
            self.services.hop(peer, answer.correlation, ANSWERED, "")
        peer.send(answer)

    def _handle(self, peer: Peer, message: Message, now_s: float, now_ms: int) -> None:
        kind = message.kind
        if kind is Kind.RESPONSE:
            self.services.on_answer(peer, message, now_s)
        elif kind is Kind.NOTIFICATION:
            self._publish(peer, message, now_ms)
        elif kind is Kind.TELEMETRY:
            self.publish_report(peer.identity, message, now_ms)
        elif (op := control_op(message)) is not None:
            self._control(peer, message, op)
        elif kind is Kind.REQUEST or isinstance(message.target, Operation | Device):
            self._request(peer, message, now_s)
        elif kind is Kind.CONTROL:
            raise InputError(f"{message.name or 'this'} is nothing that can be asked of the gateway")
        elif message.correlation:
            self._answer(peer, answered(message))  # an event that only wants to be known

    def _publish(self, peer: Peer, message: Message, now_ms: int) -> None:
        if not isinstance(message.target, Topic):
            raise InputError("nothing says which topic to publish on")
        notification, commit = self.publish(message.target.name, message, peer.identity, now_ms)
        if message.correlation:
            subscribers = len(self._state.topics.subscribers(message.target.name))
            durable = {"id": notification.id, "ts": notification.at_ms, "receivers": subscribers}
            fields = notification.fields or durable
            self.after(commit, peer, answered(message, fields=fields))

    def publish_report(self, serial: str, message: Message, now_ms: int) -> Commit | None:
        """Publish what a device reports; return the commit, if there is one. StorageError if that is refused."""
        if not self.devices_topic or not serial:
            return None
        if message.headers.get(BROADCAST) is True:
            return self._publish_broadcast(serial, message, now_ms)
        try:
            _, commit = self.publish(f"{self.devices_topic}/{serial}", _as_report(message), serial, now_ms)
        except InputError as error:  # a serial that cannot be part of a name
            _log.debug("a report of %r cannot be published: %s", serial, error)
            return None
        return commit

    def _publish_broadcast(self, serial: str, message: Message, now_ms: int) -> Commit | None:
        """Publish it on the device's own topic and on the one of broadcasts: on both, or StorageError is raised."""
        report = _as_report(message)
        report = replace(report, fields={**report.fields, "serial": serial, BROADCAST: True})
        names = [f"{self.devices_topic}/{serial}", f"{self.devices_topic}/{EVERY_DEVICE}"]
        if not Topic(self.devices_topic).is_durable:
            for name in names:
                with suppress(InputError):  # a serial that cannot be part of a name
                    self.publish(name, report, serial, now_ms)
            return None
        content = content_of(report)
        return self._publish_runs([(name, [content], serial) for name in names], now_ms)

    def publish_reports(self, reports: Sequence[tuple[str, Message]], now_ms: int) -> Commit | None:
        """Do the same for many devices at once, by their serials, where their topics are durable.

        All of them are published, or StorageError is raised.
        """
        return self._publish_runs(
            [
                (f"{self.devices_topic}/{serial}", [content_of(_as_report(message))], serial)
                for serial, message in reports
            ],
            now_ms,
        )

    def _publish_runs(self, runs: Sequence[PublishRequest], now_ms: int) -> Commit | None:
        """Publish all whose topic can be one."""
        good = [run for run in runs if _is_topic(run[0])]
        if not good:
            return None
        kept, commit = self.durable.publish_many(good, now_ms)
        self._record_published(kept, False)
        return commit

    def _control(self, peer: Peer, message: Message, op: Op) -> None:
        match op:
            case Op.SUBSCRIBE:
                self._subscribe(peer, message)
            case Op.UNSUBSCRIBE:
                self._unsubscribe(peer, message)
            case Op.ACK:
                commit = self.durable.on_ack(peer.identity, _texts(message, "ids"))
                self.after(commit, peer, answered(message))
            case Op.TOPICS:
                self._answer(peer, answered(message, fields={"topics": self._state.topics.topics_of(peer.identity)}))
            case Op.BACKLOG:
                self.jobs.start(peer, message, self._backlog(peer, message, _room(message)))
            case Op.REGISTER:
                self.services.register(peer, self._free(_service(message)), _group(message))
                self._answer(peer, answered(message))
            case Op.UNREGISTER:
                self.services.unregister(peer, _service(message), _group(message))
                self._answer(peer, answered(message))
            case Op.LOGOUT:
                peer.send(answered(message))
                peer.close(Closing("logout"))
            case _:
                self._answer(peer, answered(message))

    def _backlog(self, peer: Peer, message: Message, room: BacklogLimits) -> Job:
        """An identity may have thousands of topics, and what waits in each is on disk."""
        waiting = yield from self._state.topics.read_backlog_in_steps(peer.identity, room)
        parts = tuple(as_message(notification) for notification in waiting.rows)
        self._answer(peer, answered(message, name="message_list", parts=parts))
        self.durable.backlog(peer, waiting)

    def _subscribe(self, peer: Peer, message: Message) -> None:
        topics, patterns = _names(message, "topics"), _names(message, "patterns")
        commit = None
        retained = []
        for name in topics:
            if Topic(name).is_durable:
                new = peer.identity not in self._state.topics.subscribers(name)
                if new:
                    retained.append(self._state.topics.retained(name))
                commit = self._state.topics.subscribe(peer.identity, name)
                if new:
                    start, ids = self._state.topics.head(name), self._state.topics.id_prefix(name)
                    self._record("subscribe", name, b"", {"identity": peer.identity, "ids": ids, "start": start})
                self.durable.attach(peer, name)
            else:
                self.live.subscribe(peer, name)
        for glob in patterns:
            self.live.subscribe_pattern(peer, glob)
        self.after(commit, peer, answered(message))
        for last in retained:
            if last is not None:
                self.after(commit, peer, as_message(last))

    def _unsubscribe(self, peer: Peer, message: Message) -> None:
        commit = None
        topics = _names(message, "topics")
        for name in topics:
            if Topic(name).is_durable:
                subscribed = peer.identity in self._state.topics.subscribers(name)
                commit = self._state.topics.unsubscribe(peer.identity, name)
                if subscribed:
                    self._record("unsubscribe", name, b"", {"identity": peer.identity})
                self.durable.on_unsubscribe(peer.identity, name)
            else:
                self.live.unsubscribe(peer, name)
        for glob in _names(message, "patterns"):
            self.live.unsubscribe_pattern(peer, glob)
        self.after(commit, peer, answered(message))

    def _free(self, service: str) -> str:
        if service in self.builtin:
            raise InputError(f"the service {service} is the gateway's own")
        return service

    def _request(self, peer: Peer, message: Message, now_s: float) -> None:
        timeout_s = self.timeout_s(message)
        if isinstance(message.target, Device):
            device = self.devices.get(message.target.serial)
            if device is None:
                text = f"device {message.target.serial} was not heard yet"
                peer.send(failed(message.correlation, text, FailureCode.NOT_FOUND))
                return
            self.services.call(peer, message, device, now_s, timeout_s)
            return
        target = message.target if isinstance(message.target, Operation) else Operation("")
        builtin = self.fetch if message.headers.get("fmt") == FETCH_FORMAT else self.builtin.get(target.service)
        if target.group:
            builtin = None  # what the gateway itself serves is in no group
        if builtin is not None:
            if message.traced:
                self.services.hop(peer, message.correlation, ROUTED, "")
            builtin(peer, message, now_s)
        elif message.kind is Kind.EVENT:
            self.services.send_one_way(message)
        else:
            self.services.request(peer, message, now_s, timeout_s)

    def timeout_s(self, message: Message) -> float:
        """How long its answer may take."""
        asked = message.headers.get("timeout_ms")
        if not isinstance(asked, int | float) or asked <= 0:
            return self.call_s
        return min(asked, BROKER_CALL_MS_MAX) / 1000


def _as_report(message: Message) -> Message:
    """A device's telemetry as it is published: all of it as fields."""
    data = {"data": message.payload} if message.payload else {}
    return replace(message, payload=b"", fields=message.fields | data)


def answered(message: Message, **rest: object) -> Message:
    rest.setdefault("traced", message.traced)
    return Message(kind=Kind.RESPONSE, correlation=message.correlation, **rest)  # type: ignore[arg-type]


def _is_topic(name: str) -> bool:
    try:
        check_topic(name)
    except InputError:  # a device's serial cannot be part of a name
        return False
    return True


def check_topic(name: str) -> None:
    if not 0 < len(name) <= BROKER_TOPIC_CHARS_MAX:
        raise InputError(f"a topic's name has 1 to {BROKER_TOPIC_CHARS_MAX} characters")
    if _TOPIC.fullmatch(name) is None:
        raise InputError("a topic's name has printable characters only")


def _names(message: Message, field: str) -> list[str]:
    names = _texts(message, field)
    if len(names) > BROKER_TOPICS_PER_REQUEST_MAX:
        raise InputError(f"{len(names)} {field} at once: at most {BROKER_TOPICS_PER_REQUEST_MAX}")
    for name in names:
        check_topic(name)
    return names


def _texts(message: Message, field: str) -> list[str]:
    texts = message.fields.get(field, [])
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{field} is a list of texts")
    return list(texts)


def _room(message: Message) -> BacklogLimits:
    """What whoever asks for a backlog has room for, within our own bounds."""
    try:
        room = convert(message.fields, BacklogLimits)
    except ValidationError as error:
        raise InputError(f"no such room for a backlog: {error}") from error
    rows_max, bytes_max = min(room.rows_max, BROKER_BACKLOG_ROWS), min(room.bytes_max, BROKER_BACKLOG_BYTES)
    return replace(room, rows_max=rows_max, bytes_max=bytes_max)


def _service(message: Message) -> str:
    name = message.fields.get("service")
    if not isinstance(name, str) or not 0 < len(name) <= BROKER_TOPIC_CHARS_MAX:
        raise InputError("register needs the name of a service")
    return name


def _group(message: Message) -> str:
    name = message.fields.get("group", "")
    if not isinstance(name, str) or len(name) > BROKER_TOPIC_CHARS_MAX:
        raise InputError(f"group is a text of at most {BROKER_TOPIC_CHARS_MAX} characters")
    return name
