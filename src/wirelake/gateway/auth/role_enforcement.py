"""Apply changes of roles to the sessions that are open."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from wirelake.broker.access import glob_target
from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.protocols.session import ACCESS_DENIED, Closing
from wirelake.roles import Action, Role, check_role_names
from wirelake.state.identities import Identities


class RoleEnforcement:
    """Change roles, and close the sessions whose subscriptions and services they no longer allow."""

    def __init__(
        self,
        broker: Broker,
        identities: Identities,
        peers: Callable[[], Iterable[Peer]],
        subscribed: Callable[[Peer], Iterable[tuple[Action, str]]],
    ) -> None:
        """`peers` returns all open sessions, `subscribed` what one gets besides topics: the action and the target."""
        self._broker = broker
        self._identities = identities
        self._peers = peers
        self._subscribed = subscribed

    @property
    def roles(self) -> Mapping[str, Role]:
        """Return all roles by name, with the built-in ones."""
        return self._broker.access.roles

    def apply(self, roles: Mapping[str, Role]) -> None:
        """Use these roles of the settings."""
        self._broker.access.set_roles(roles)
        for peer in list(self._peers()):
            self._close_if_forbidden(peer)

    def assign(self, identity: str, roles: Sequence[str]) -> Commit | None:
        """Give an identity these roles. Return None if there is no such identity; InputError for an unknown role."""
        check_role_names(roles, self.roles)
        commit = self._identities.set_roles(identity, roles)
        if commit is not None:
            for peer in [peer for peer in self._peers() if peer.identity == identity]:
                self._close_if_forbidden(peer)
        return commit

    def _close_if_forbidden(self, peer: Peer) -> None:
        """Close a session whose subscriptions or services its roles no longer allow, and say so, as redis does.

        A durable subscription is kept, and goes on where it was once a role allows it again.
        """
        broker = self._broker
        subscribed = [(topic, topic) for topic in broker.topics_of(peer)]
        subscribed += [(glob, glob_target(glob)) for glob in broker.live.patterns_of(peer)]
        targets = [(Action.SUBSCRIBE, *each) for each in subscribed]
        targets += [(Action.PROVIDE, service, service) for service in broker.services.provided_by(peer)]
        targets += [(action, target, target) for action, target in self._subscribed(peer)]
        rights = broker.access.rights_of(peer)
        for action, name, target in targets:
            if not rights.allows(action, target):
                error = broker.access.denied(peer, action, name)
                broker.on_close(peer)  # first: a connection that closes may still be written to
                peer.close(Closing(ACCESS_DENIED, str(error)))
                return
