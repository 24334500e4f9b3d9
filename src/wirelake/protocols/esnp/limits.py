"""Bounds of esnp, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB, MIB

ESNP_FRAME_BYTES_MAX: Final = 10 * MIB  # (setting)
ESNP_LOGIN_FRAME_BYTES_MAX: Final = 4 * KIB  # (setting) before the login
ESNP_LINES_MAX: Final = 16_384  # in one message: a line of four bytes becomes an object
ESNP_DEPTH_MAX: Final = 32  # Maps and Lists inside each other
ESNP_ITEMS_MAX: Final = 65_536  # values inside all Maps and Lists of one message: two bytes become an object
ESNP_REQUESTS_OPEN_MAX: Final = 1024  # in each direction
ESNP_HELD_FRAMES_MAX: Final = 64  # messages that came while the login was being checked
ESNP_ANSWERS_WAITING_MAX: Final = 2048  # answers held back behind an unanswered request without a number
ESNP_LOGIN_S: Final = 5.0  # (setting) from connecting to a decided login
ESNP_REPLY_S: Final = 5.0  # for an answer, where the request names no time of its own
ESNP_REPLY_S_MAX: Final = 600.0  # for an answer, whatever the request names
