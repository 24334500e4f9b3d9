"""Limit the simulator. Each name ends with its unit, as in `wirelake.limits`."""

from typing import Final

SIMULATOR_DEVICES_MAX: Final = 10_000
SIMULATOR_RATE_MAX: Final = 100_000.0  # actions per second of the whole fleet
SIMULATOR_WAITING_ACTIONS_MAX: Final = 64  # of one member; further ones are skipped and counted
SIMULATOR_GRAIN_S: Final = 0.001  # actions that are due within this time of each other start together
SIMULATOR_TURN_ACTIONS: Final = 256  # started before other tasks get a turn
SIMULATOR_HTTP_MAX: Final = 32  # concurrent requests to the HTTP API
SIMULATOR_FREE_S: Final = 3.0  # wait for an earlier fleet of the same name to disconnect
SIMULATOR_FREE_POLL_S: Final = 0.1
SIMULATOR_CONNECTING_MAX: Final = 64  # members that connect at the same time
SIMULATOR_DRAIN_S: Final = 30.0  # after the last action, for open requests
SIMULATOR_DISCONNECT_S: Final = 15.0
SIMULATOR_AWAY_S: Final = 0.5  # the longest time that a phone is away
SIMULATOR_SLOW_S: Final = 0.2  # between two reads of a slow reader
SIMULATOR_SLOW_INBOX: Final = 8  # notifications that wait before a slow reader stops reading
SIMULATOR_TOPICS: Final = 8  # durable ones; each phone subscribes to two of them
SIMULATOR_KEYS: Final = 16  # of quotes
SIMULATOR_IDS_MAX: Final = 10_000  # of notifications that one member remembers, to recognise duplicates
SIMULATOR_REASONS_MAX: Final = 32  # of failures that are counted separately
SIMULATOR_RECEIPT_S: Final = 0.4  # a meter's wait for a receipt: short, so that injected losses are repaired in time
SIMULATOR_RESENDS_MAX: Final = 12
SIMULATOR_PACKET_DATA_BYTES: Final = 64
SIMULATOR_COMMAND_MS: Final = 25_000  # for a device's response: a gateway resends lost packets every 5 s
