"""The simulator's bounds, by name, with their unit at the end, as in `wirelake.limits`."""

from typing import Final

SIMULATOR_DEVICES_MAX: Final = 10_000
SIMULATOR_RATE_MAX: Final = 100_000.0  # acts a second, of the whole fleet
SIMULATOR_WAITING_ACTS_MAX: Final = 64  # of one member; further ones are skipped and counted
SIMULATOR_GRAIN_S: Final = 0.001  # acts that fall due so near to each other go together
SIMULATOR_TURN_ACTS: Final = 256  # given out without others getting a turn
SIMULATOR_HTTP_MAX: Final = 32  # requests to the HTTP API at once
SIMULATOR_FREE_S: Final = 3.0  # for a fleet of the same name to be gone
SIMULATOR_FREE_LOOK_S: Final = 0.1
SIMULATOR_ENTERING_MAX: Final = 64  # members that connect at once
SIMULATOR_DRAIN_S: Final = 30.0  # after the last act, for what is under way
SIMULATOR_LEAVE_S: Final = 15.0  # for goodbyes
SIMULATOR_AWAY_S: Final = 0.5  # how long a phone is away at most
SIMULATOR_SLOW_S: Final = 0.2  # between two reads of a slow reader
SIMULATOR_SLOW_INBOX: Final = 8  # what a slow reader lets wait before it stops reading
SIMULATOR_TOPICS: Final = 8  # durable ones; each phone has two of them
SIMULATOR_KEYS: Final = 16  # of quotes
SIMULATOR_IDS_KEPT_MAX: Final = 10_000  # of notifications, to tell repeats; of one member
SIMULATOR_REASONS_MAX: Final = 32  # kinds of failure told apart
SIMULATOR_RECEIPT_S: Final = 0.4  # a meter's patience, short so that made-up losses are made good in time
SIMULATOR_RESENDS_MAX: Final = 12
SIMULATOR_PACKET_DATA_BYTES: Final = 64
SIMULATOR_COMMAND_MS: Final = 25_000  # for a device's answer: a gateway sends what was lost again every 5 s
