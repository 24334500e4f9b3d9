"""Handle the messages that sessions receive, independently of their protocol.

A response that promises something durable is sent once it is.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from wirelake.broker.access import AccessPolicy, everybody_is_member
from wirelake.broker.consumer import as_message
from wirelake.broker.delivery import Notifier, Record, SlowConsumers
from wirelake.broker.devices import Devices
from wirelake.broker.peer import InlineJobRunner, Job, JobRunner, Peer, PeerObserver, Requester
from wirelake.broker.request_fields import (
    backlog_limits,
    check_topic,
    group_in,
    is_topic,
    names_in,
    service_in,
    texts_in,
)
from wirelake.broker.services import ANSWERED, REQUEST_ERRORS, ROUTED, Hop, Services, failed, failed_with
from wirelake.broker.topics_durable import DurableTopics
from wirelake.broker.topics_live import LiveTopics
from wirelake.cleanup import clean_up
from wirelake.commit import Commit, CommitQueue
from wirelake.errors import InputError
from wirelake.limits import (
    BROKER_CALL_MS_MAX,
    BROKER_CALL_S,
    BROKER_IMPLICIT_ACK_S,
    BROKER_RESEND_S,
)
from wirelake.message import (
    FETCH_FORMAT,
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
from wirelake.protocols.batches import PublishBatch
from wirelake.protocols.session import Closing
from wirelake.roles import MEMBER, Action
from wirelake.state.notifications import BacklogLimits, StoredNotification
from wirelake.state.store import StateStore
from wirelake.state.topics import PublishRequest

RETAIN: Final = "retain"  # header of a notification
RECEIVED: Final = "received"

RecordPublished = Callable[[Sequence[StoredNotification], bool], None]  # in their order; whether they are retained
OnCommand = Callable[[Requester, str, Message], object]  # who sends it, the serial of the device, the command
Builtin = Callable[[Peer, Message, float], None]  # serves a request itself: requester, request, now_s


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
        jobs: JobRunner | None = None,
        fetch: Builtin | None = None,
        on_hop: Hop | None = None,
        on_release: Callable[[], None] | None = None,
        on_command: OnCommand | None = None,
        access: AccessPolicy | None = None,
    ) -> None:
        """Record deliveries with `record`, and publishes with `record_published` (one by one, with `record`, if None).

        `jobs` runs long requests, `fetch` serves requests to fetch by HTTP, `on_hop` is called for each step of a
        traced request, `on_release` when notifications became durable, and `flush` can send them, `on_command` before
        a command goes to a device. `access` decides who may do what; by default, everybody is a member.
        """
        self.notifier = Notifier()
        self.slow_consumers = SlowConsumers(conflate=conflate)
        self.live = LiveTopics(self.notifier, self.slow_consumers)
        self.durable = DurableTopics(
            state.topics,
            record,
            self.notifier,
            resend_s=resend_s,
            implicit_ack_s=implicit_ack_s,
            on_release=on_release,
        )
        self.services = Services(self.notifier, on_hop)
        self.jobs: JobRunner = InlineJobRunner() if jobs is None else jobs  # a runner without jobs may be falsy
        self.call_s = call_s  # for a response, if the request names no time of its own
        self.access = access or AccessPolicy(everybody_is_member)
        self.devices = Devices(devices_topic, self.publish, self._publish_many, self.access)
        self._state = state
        self._record = record
        self._record_published = record_published or self._record_each
        self._fetch = fetch
        self.on_command: OnCommand = on_command or (lambda _requester, _serial, _message: None)
        self._builtin: dict[str, Builtin] = {}
        self._observers: list[PeerObserver] = []
        self._responses: CommitQueue[tuple[Peer, Message]] = CommitQueue(self._on_commit)

    # Registration

    @property
    def builtin(self) -> Mapping[str, Builtin]:
        """Return the services that the gateway itself serves, by name."""
        return MappingProxyType(self._builtin)

    def register_builtin(self, service: str, builtin: Builtin) -> None:
        """Serve a service in the gateway itself. No peer can provide one of this name."""
        self._builtin[service] = builtin

    def unregister_builtin(self, service: str) -> None:
        self._builtin.pop(service, None)

    def add_observer(self, observer: PeerObserver) -> None:
        """Notify a component when peers close or drain."""
        self._observers.append(observer)

    # Peers

    def on_login(self, peer: Peer) -> None:
        """Take note of a login: commands may go there. Attach a peer that pulls its backlog to its subscriptions."""
        self.devices.on_login(peer)
        if peer.pulls_backlog:
            for name in self._permitted_topics(peer.identity):
                self.durable.attach(peer, name)

    def topics_of(self, peer: Peer) -> list[str]:
        """Return the topics that the peer is subscribed to, durable and live."""
        return [*self.durable.lag(peer), *self.live.names_of(peer)]

    def rejoin(self, peer: Peer, topic: str) -> None:
        """Subscribe a resumed session again to a topic that it had before its connection was lost, if it still may."""
        if not self.access.allows(peer.identity, Action.SUBSCRIBE, topic):
            return
        if Topic(topic).is_durable:
            self.durable.attach(peer, topic)
        else:
            self.live.subscribe(peer, topic)

    def on_close(self, peer: Peer) -> None:
        """Forget a closed peer everywhere, whatever fails on the way."""
        self.devices.detach(peer)
        clean_up(
            f"session {peer.id}",
            partial(self.live.leave, peer),
            partial(self.durable.leave, peer),
            partial(self.services.leave, peer),
            *[partial(observer.on_close, peer) for observer in self._observers],
        )

    def on_drain(self, peer: Peer) -> None:
        """Go on sending to a peer that is no longer congested."""
        self.live.on_drain(peer)
        self.durable.on_drain(peer)
        for observer in self._observers:
            observer.on_drain(peer)

    def handle(self, peer: Peer, message: Message, now_s: float, now_ms: int) -> None:
        """Handle a message of a peer. An error of the request or of the disk becomes the response."""
        if message.traced:
            self.services.hop(peer, message.correlation, RECEIVED, "")
        try:
            self._handle(peer, message, now_s, now_ms)
        except REQUEST_ERRORS as error:
            peer.send(failed_with(error, message.correlation))

    # Time

    @property
    def waiting(self) -> bool:
        """Tell whether `flush` has something to do."""
        return self.live.waiting or self.durable.waiting

    def flush(self, now_s: float) -> None:
        """Write what is buffered. Call this once a turn of the event loop, if `waiting`."""
        if self.live.waiting:
            self.live.flush()
        if self.durable.waiting:
            self.durable.flush(now_s)

    @property
    def due_s(self) -> float | None:
        """Return when `tick` next has something to do."""
        return min((due for due in (self.durable.due_s, self.services.due_s) if due is not None), default=None)

    def tick(self, now_s: float) -> None:
        self.durable.tick(now_s)
        self.services.tick(now_s)

    # Publishing

    def publish(self, topic: str, message: Message, publisher: str, now_ms: int) -> tuple[Message, Commit | None]:
        """Publish a message. Return the notification as it will be delivered, and its commit (None for a live topic).

        For a live topic, `fields` of the notification has the number of receivers. With the header `retain`, a durable
        topic retains it as its last value, for those who subscribe later.
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
        stored, commit = self.durable.publish(topic, content, now_ms, message.type, publisher, retain=retain)
        self._record_published([stored], retain)
        return as_message(stored), commit

    def publish_batch(self, peer: Peer, correlation: str, batch: PublishBatch, now_ms: int) -> None:
        """Publish many notifications on one durable topic, with one response for all of them."""
        try:
            self.access.authorize(peer, Action.PUBLISH, batch.topic, len(batch.frames))
            stored, commit = self.durable.publish_many([(batch.topic, batch.contents(), peer.identity)], now_ms)
            self._record_published(stored, False)
        except REQUEST_ERRORS as error:
            peer.send(failed_with(error, correlation))
        else:
            receivers = len(self._state.topics.subscribers(batch.topic))
            self.after(
                commit, peer, Message(kind=Kind.RESPONSE, correlation=correlation, fields={"receivers": receivers})
            )

    @property
    def devices_topic(self) -> str:
        """Return the topic below which reports of devices are published, or ""."""
        return self.devices.topic

    def _publish_many(self, requests: Sequence[PublishRequest], now_ms: int) -> Commit | None:
        """Publish on durable topics with one commit, leaving out those whose name is not valid."""
        valid = [request for request in requests if is_topic(request[0])]
        if not valid:
            return None
        stored, commit = self.durable.publish_many(valid, now_ms)
        self._record_published(stored, False)
        return commit

    def _record_each(self, notifications: Sequence[StoredNotification], retain: bool) -> None:
        for stored in notifications:
            note = {"id": stored.id, "position": stored.position, "type": stored.type, "by": stored.publisher}
            self._record("publish", stored.topic, stored.content, {**note, "retain": True} if retain else note)

    # Responses

    def after(self, commit: Commit | None, peer: Peer, response: Message) -> None:
        """Send a response once the commit is durable, or a failure if it fails."""
        if commit is None:
            self._respond(peer, response)
        else:
            self._responses.add(commit, (peer, response))

    def _on_commit(self, commit: Commit, responses: list[tuple[Peer, Message]]) -> None:
        error = commit.error
        if error is not None:
            self.durable.reconcile()
        for peer, response in responses:
            if response.kind is Kind.NOTIFICATION:
                if error is None:
                    self.notifier.send(peer, response)
            elif error is not None:
                peer.send(failed(response.correlation, str(error), FailureCode.STORAGE))
            else:
                self._respond(peer, response)

    def _respond(self, peer: Peer, response: Message) -> None:
        """Send a response of the gateway itself."""
        if response.traced:
            self.services.hop(peer, response.correlation, ANSWERED, "")
        peer.send(response)

    # Requests

    def _handle(self, peer: Peer, message: Message, now_s: float, now_ms: int) -> None:
        kind = message.kind
        if kind is Kind.RESPONSE:
            self.services.on_answer(peer, message, now_s)
        elif kind is Kind.NOTIFICATION:
            self._publish(peer, message, now_ms)
        elif kind is Kind.TELEMETRY:
            self.devices.publish_report(peer, message, now_ms)
        elif (op := control_op(message)) is not None:
            self._control(peer, message, op)
        elif kind is Kind.REQUEST or isinstance(message.target, Operation | Device):
            self._request(peer, message, now_s)
        elif kind is Kind.CONTROL:
            raise InputError(f"{message.name or 'this'} is not an operation of the gateway")
        elif message.correlation:
            self._respond(peer, answered(message))  # an event that only has to be confirmed

    def _publish(self, peer: Peer, message: Message, now_ms: int) -> None:
        if not isinstance(message.target, Topic):
            raise InputError("the message does not name which topic to publish on")
        self.access.authorize(peer, Action.PUBLISH, message.target.name)
        notification, commit = self.publish(message.target.name, message, peer.identity, now_ms)
        if message.correlation:
            subscribers = len(self._state.topics.subscribers(message.target.name))
            durable = {"id": notification.id, "ts": notification.at_ms, "receivers": subscribers}
            fields = notification.fields or durable
            self.after(commit, peer, answered(message, fields=fields))

    def _control(self, peer: Peer, message: Message, op: Op) -> None:
        match op:
            case Op.SUBSCRIBE:
                self._subscribe(peer, message)
            case Op.UNSUBSCRIBE:
                self._unsubscribe(peer, message)
            case Op.ACK:
                commit = self.durable.on_ack(peer.identity, texts_in(message, "ids"))
                self.after(commit, peer, answered(message))
            case Op.TOPICS:
                self._respond(peer, answered(message, fields={"topics": self._state.topics.topics_of(peer.identity)}))
            case Op.BACKLOG:
                self.jobs.start(peer, message, self._send_backlog(peer, message, backlog_limits(message)))
            case Op.REGISTER:
                self._register(peer, service_in(message), group_in(message))
                self._respond(peer, answered(message))
            case Op.UNREGISTER:
                self.services.unregister(peer, service_in(message), group_in(message))
                self._respond(peer, answered(message))
            case Op.LOGOUT:
                peer.send(answered(message))
                peer.close(Closing("logout"))
            case _:
                self._respond(peer, answered(message))

    def _send_backlog(self, peer: Peer, message: Message, limits: BacklogLimits) -> Job:
        """Read in steps: an identity may have thousands of topics, and their notifications are on disk."""
        is_limited = not self.access.rights_of(peer).allows_all(Action.SUBSCRIBE)
        names = self._permitted_topics(peer.identity) if is_limited else None
        backlog = yield from self._state.topics.read_backlog_in_steps(peer.identity, limits, names)
        parts = tuple(as_message(notification) for notification in backlog.rows)
        self._respond(peer, answered(message, name="message_list", parts=parts))
        self.durable.on_backlog(peer, backlog)

    def _subscribe(self, peer: Peer, message: Message) -> None:
        topics, patterns = names_in(message, "topics"), names_in(message, "patterns")
        for name in topics:
            self.access.authorize(peer, Action.SUBSCRIBE, name)
        for glob in patterns:
            self.access.authorize_all(peer, Action.SUBSCRIBE, glob)
        commit = None
        retained = []
        for name in topics:
            if Topic(name).is_durable:
                is_new = peer.identity not in self._state.topics.subscribers(name)
                if is_new:
                    retained.append(self._state.topics.retained(name))
                commit = self._state.topics.subscribe(peer.identity, name)
                if is_new:
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
        topics = names_in(message, "topics")
        for name in topics:
            if Topic(name).is_durable:
                was_subscribed = peer.identity in self._state.topics.subscribers(name)
                commit = self._state.topics.unsubscribe(peer.identity, name)
                if was_subscribed:
                    self._record("unsubscribe", name, b"", {"identity": peer.identity})
                self.durable.on_unsubscribe(peer.identity, name)
            else:
                self.live.unsubscribe(peer, name)
        for glob in names_in(message, "patterns"):
            self.live.unsubscribe_pattern(peer, glob)
        self.after(commit, peer, answered(message))

    def _permitted_topics(self, identity: str) -> list[str]:
        """Return the durable topics that an identity is subscribed to, as far as its roles allow it now."""
        rights = self.access.rights(identity)
        return [name for name in self._state.topics.topics_of(identity) if rights.allows(Action.SUBSCRIBE, name)]

    def _register(self, peer: Peer, service: str, group: str) -> None:
        """Let a peer provide a service. One that another identity provides needs a role that says so."""
        if service in self._builtin:
            raise InputError(f"the service {service} is the gateway's own")
        rights = self.access.rights_of(peer)
        others = self.services.providers(service) - {peer.identity}
        is_allowed = rights.allows(Action.PROVIDE, service)
        if others:  # anybody may provide what nobody else does; this takes a role that says so
            is_allowed = rights.allows_besides(MEMBER, Action.PROVIDE, service)
        if not is_allowed:
            raise self.access.denied(peer, Action.PROVIDE, service)
        self.services.register(peer, service, group)

    def command(
        self,
        requester: Peer,
        message: Message,
        serial: str,
        now_s: float,
        timeout_s: float,
        *,
        is_broadcast: bool = False,
    ) -> None:
        """Send a command to the session of a device, whatever protocol it speaks, or respond why that cannot be.

        One that is part of a broadcast is not reported to `on_command`: the broadcast is.
        """
        self.access.authorize(requester, Action.COMMAND, serial)
        device = self.devices.find(serial)
        if device is None:
            text, code = f"device {serial[:64]!r} is offline", FailureCode.NOT_FOUND
        elif not device.takes_commands:
            text = f"device {serial[:64]!r} is connected by {device.protocol}, and its session takes no commands"
            code = FailureCode.UNENCODABLE
        else:
            if not is_broadcast:
                self.on_command(requester, serial, message)
            self.services.call(requester, message, device, now_s, timeout_s)
            return
        requester.send(failed(message.correlation, text, code))

    def _request(self, peer: Peer, message: Message, now_s: float) -> None:
        timeout_s = self.timeout_s(message)
        if isinstance(message.target, Device):
            self.command(peer, message, message.target.serial, now_s, timeout_s)
            return
        target = message.target if isinstance(message.target, Operation) else Operation("")
        builtin = self._fetch if message.headers.get("fmt") == FETCH_FORMAT else self._builtin.get(target.service)
        if target.group:
            builtin = None  # built-in services are in no group
        if builtin is not None:
            if message.traced:
                self.services.hop(peer, message.correlation, ROUTED, "")
            builtin(peer, message, now_s)
            return
        self.access.authorize(peer, Action.CALL, f"{target.service}/{target.op}")
        if message.kind is Kind.EVENT:
            self.services.send_one_way(message)
        else:
            self.services.request(peer, message, now_s, timeout_s)

    def timeout_s(self, message: Message) -> float:
        """Return how long the response may take."""
        timeout_ms = message.headers.get("timeout_ms")
        if not isinstance(timeout_ms, int | float) or timeout_ms <= 0:
            return self.call_s
        return min(timeout_ms, BROKER_CALL_MS_MAX) / 1000


def answered(message: Message, **rest: object) -> Message:
    """Return a response to the message, with these fields of `Message`."""
    rest.setdefault("traced", message.traced)
    return Message(kind=Kind.RESPONSE, correlation=message.correlation, **rest)  # type: ignore[arg-type]
