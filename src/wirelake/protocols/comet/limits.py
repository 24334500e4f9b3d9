"""Bounds of comet, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB

COMET_FRAME_BYTES_MAX: Final = 2 + 0xFFFF  # readers take the unsigned range
COMET_WRITE_LENGTH_MAX: Final = 0x7FFF  # writers keep to the signed one: the authors' server reads it so
COMET_WRITE_COUNT_MAX: Final = 0x7F
COMET_MESSAGE_EXTRA_BYTES: Final = 125  # of a notification in a frame beside its content, at most: id, time, a seal
COMET_CONTENT_BYTES_MAX: Final = COMET_WRITE_LENGTH_MAX - 2 - COMET_MESSAGE_EXTRA_BYTES
COMET_TOPIC_CHARS_MAX: Final = 256
COMET_REQUESTS_OPEN_MAX: Final = 256
COMET_HELD_FRAMES_MAX: Final = 64  # frames that came while the login was being checked
COMET_ANSWERS_WAITING_MAX: Final = 1024  # answers held back behind an unanswered question
COMET_HEARTBEAT_S: Final = 40.0  # how often a client of ours says that it is there
COMET_IDLE_S: Final = 120.0  # (setting)
COMET_LOGIN_FRAME_BYTES_MAX: Final = 8 * KIB  # (setting) before the login: the longest name and token fit
COMET_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
