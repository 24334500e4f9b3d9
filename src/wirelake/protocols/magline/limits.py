"""Bounds of magline, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB, MIB

MAGLINE_MESSAGE_BYTES_MAX: Final = MIB  # (setting) a frame's body
MAGLINE_HEADER_BYTES_MAX: Final = 4 * KIB  # (setting) a frame's message header
MAGLINE_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login, head and message header included
MAGLINE_SEQ_MAX: Final = 0xFFFF_0000  # from here on new keys are asked for: a seq never wraps under one key
MAGLINE_REQUESTS_OPEN_MAX: Final = 256
MAGLINE_HELD_FRAMES_MAX: Final = 64  # requests that wait for a login to be decided, or for new keys
MAGLINE_HELD_BYTES_MAX: Final = MIB  # the data of those, together
MAGLINE_PING_S: Final = 20.0  # how often a client of ours says that it is there
MAGLINE_IDLE_S: Final = 60.0  # (setting)
MAGLINE_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
MAGLINE_RESUME_S: Final = 120.0  # (setting) how long a lost session can be taken up again
