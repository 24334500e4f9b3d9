"""Record who did what, and from where: logins, refusals, and everything that an administrator does.

| event in the log | what happened | note |
| --- | --- | --- |
| login | a login, or a resumed session | `resumed`; `certificate`: the name in it; `token_id` |
| logout | the end of a session by its identity | |
| refuse | a login that failed | `reason`, and `user`: the name that was claimed |
| deny | an action that the roles of an identity do not allow | `action`, `target` |
| audit | an action of an administrator, a command to a device, SQL | `action`, `target`, `outcome`, and details |

The record names the session, the identity and the address. No secret is in a note: not even that of a failed login.
Records of refusals beyond the quota of an address are only counted.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from wirelake.broker.peer import Requester
from wirelake.commit import Commit
from wirelake.errors import AccessDeniedError, StorageError
from wirelake.gateway.auth.admission import Admission, host_of
from wirelake.gateway.devices.commands import COMMAND_TYPE
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorded, Recorder
from wirelake.limits import ACCESS_COUNTED_MAX, ACCESS_TARGET_CHARS_MAX, AUDIT_CHANGES_MAX, AUDIT_ERROR_CHARS_MAX
from wirelake.log.audit import AUDIT, DENY, FAILED, LOGIN, LOGOUT, OK, REFUSE, REFUSED
from wirelake.message import Message
from wirelake.roles import Action

ADMINISTER: Final = "administer"  # the action of a refusal that no role but `admin` would have allowed
RELOAD: Final = "settings.reload"
OTHERS: Final = "others"  # instead of the names of identities, if there are too many
_FORBIDDEN: Final = frozenset({401, 403})
_ERRORS: Final = 400

_log = logging.getLogger(__name__)


class GatewayItself(Struct):
    """Stand for the gateway in records of what no session did."""

    id: str = ""
    protocol: str = ""
    identity: str = ""
    address: str = ""


GATEWAY: Final = GatewayItself()


class AuditLog:
    """Write the records of an audit. This is the only place that does."""

    def __init__(
        self, recorder: Recorder, counters: Counters, admission: Admission, now_s: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._counters = counters
        self._quota = admission.droppable_quota
        self._now_s = now_s

    def login(self, of: Recorded, **detail: Any) -> Commit:
        """Record a login, with the details that have a value. Raise StorageError if the log refuses it."""
        return self._recorder.event(of, LOGIN, {name: value for name, value in detail.items() if value})

    def logout(self, of: Recorded) -> Commit:
        """Record that a session was ended by its identity. Raise StorageError likewise."""
        return self._recorder.event(of, LOGOUT, {})

    def login_refused(self, of: Recorded, reason: str, **detail: Any) -> None:
        """Record a failed login of a connection, which has a quota of its own. Raise StorageError likewise."""
        self._recorder.event(of, REFUSE, {"reason": reason, **detail})

    def request_refused(self, of: Recorded, reason: str, user: str) -> None:
        """Count and record a failed login of an HTTP request, within the quota of its address."""
        self._counters.logins[of.protocol, reason] += 1
        self._record_refusal(of, REFUSE, {"reason": reason, "user": user})

    def denied(self, peer: Requester, error: AccessDeniedError) -> None:
        """Count and record a refusal. It stands, whether it is recorded or not."""
        denied, key = self._counters.denied, (error.identity, error.action)
        is_counted = key in denied or len(denied) < ACCESS_COUNTED_MAX
        denied[key if is_counted else (OTHERS, error.action)] += error.attempts
        try:
            self._record_refusal(peer, DENY, {"action": error.action, "target": _shortened(error.target)})
        except StorageError as failure:
            _log.warning("cannot record that %s was denied: %s", error.identity, failure)

    def record(self, of: Recorded, action: str, target: str = "", outcome: str = OK, /, **detail: Any) -> Commit | None:
        """Record an action, with its details. Raise StorageError if the log refuses it.

        Return None if it was refused and is beyond the quota of the address.
        """
        note = {"action": action, "target": _shortened(target), "outcome": outcome, **detail}
        if outcome == REFUSED:
            return self._record_refusal(of, AUDIT, note)
        return self._recorder.event(of, AUDIT, note)

    def command(self, of: Recorded, serial: str, message: Message) -> Commit | None:
        """Record that a command goes to a device: one that cannot be recorded is not sent (StorageError)."""
        kind = message.name or message.fields.get(COMMAND_TYPE)
        return self.record(of, Action.COMMAND, serial, type=kind, bytes=len(message.payload))

    def reload(self, applied: Sequence[str], needs_restart: Sequence[str]) -> None:
        """Record which settings a reload changed. Whoever sent the signal is not known."""
        self._record_reload(OK, applied=_shown(applied), needs_restart=_shown(needs_restart))

    def reload_failed(self, error: str) -> None:
        """Record why a reload changed nothing."""
        self._record_reload(FAILED, error=error[:AUDIT_ERROR_CHARS_MAX])

    def _record_reload(self, outcome: str, **detail: Any) -> None:
        try:
            self.record(GATEWAY, RELOAD, "", outcome, **detail)
        except StorageError as failure:
            _log.warning("cannot record the reload: %s", failure)

    async def settle(self, record: Callable[[], Commit | None], of: Recorded) -> None:
        """Record what needs no record to happen, such as a query, and wait until that is on disk.

        If the log refuses it, say so: an operator must be able to look at a gateway whose disk is full.
        """
        try:
            commit = record()
            if commit is not None:
                await commit
        except StorageError as failure:
            _log.warning("cannot record what %s did: %s", of.identity, failure)

    def _record_refusal(self, of: Recorded, event: str, note: dict[str, Any]) -> Commit | None:
        if self._quota.admits(host_of(of.address), 0, self._now_s()):
            return self._recorder.event(of, event, note)
        self._recorder.drop(of.protocol, event, 0)
        return None


def outcome_of(status: int) -> str:
    """Return the outcome of a request whose response has this status."""
    if status in _FORBIDDEN:
        return REFUSED
    return FAILED if status >= _ERRORS else OK


def _shown(changes: Sequence[str]) -> list[str]:
    return [change[:AUDIT_ERROR_CHARS_MAX] for change in changes[:AUDIT_CHANGES_MAX]]


def _shortened(target: str) -> str:
    return target[:ACCESS_TARGET_CHARS_MAX]
