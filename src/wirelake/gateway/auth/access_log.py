"""Count and record what peers were not allowed to do."""

import logging
from collections.abc import Callable

from wirelake.broker.peer import Requester
from wirelake.errors import AccessDeniedError, StorageError
from wirelake.gateway.auth.admission import Admission, host_of
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorder
from wirelake.limits import ACCESS_COUNTED_MAX, ACCESS_TARGET_CHARS_MAX

DENY = "deny"  # the event in the log
OTHERS = "others"  # instead of the names of identities, if there are too many

_log = logging.getLogger(__name__)


class AccessLog:
    """Record each refusal with who, from where, and what. Records beyond the quota of an address are only counted."""

    def __init__(
        self, recorder: Recorder, counters: Counters, admission: Admission, now_s: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._denied = counters.denied
        self._quota = admission.droppable_quota
        self._now_s = now_s

    def __call__(self, peer: Requester, error: AccessDeniedError) -> None:
        key = (error.identity, error.action)
        is_counted = key in self._denied or len(self._denied) < ACCESS_COUNTED_MAX
        self._denied[key if is_counted else (OTHERS, error.action)] += error.attempts
        if not self._quota.admits(host_of(peer.address), 0, self._now_s()):
            self._recorder.drop(peer.protocol, DENY, 0)
            return
        try:
            target = error.target[:ACCESS_TARGET_CHARS_MAX]
            self._recorder.event(peer, DENY, {"action": error.action, "target": target})
        except StorageError as failure:  # the refusal stands, whether it is recorded or not
            _log.warning("cannot record that %s was denied: %s", error.identity, failure)
