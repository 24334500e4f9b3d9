"""The bounds of a broadcast to all devices and of UDP; those of the rest of the gateway are in `wirelake/limits.py`."""

from typing import Final

from wirelake.limits import KIB

BROADCASTS_OPEN_MAX: Final = 2  # at once: each has a call for every device, and all calls together have a limit
BROADCAST_DEVICES_MAX: Final = 10_000  # that one is sent to
BROADCAST_DEVICES_AT_ONCE: Final = 16  # sent to without being interrupted
BROADCAST_SERIALS_AT_ONCE: Final = 1024  # looked at for those that were not heard from, likewise
# The lists in its answer, as JSON. Together they fit a message of every protocol that can ask.
BROADCAST_ANSWERS_BYTES_MAX: Final = 512 * KIB
BROADCAST_UNANSWERED_BYTES_MAX: Final = 256 * KIB

UDP_IDLE_S: Final = 600.0  # without a datagram, the session of a source address ends
UDP_IDLE_CHECK_S: Final = 5.0  # how often that is looked for
UDP_WAITING_BYTES_MAX: Final = 256 * KIB  # of datagrams of one source that wait to be read; more are dropped
UDP_DATAGRAM_BYTES_MAX: Final = 65_507  # of what a datagram over IPv4 holds
