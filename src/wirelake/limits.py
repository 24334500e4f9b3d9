"""Every bound, by name, with its unit at the end. Settings may move those marked (setting).

A bound that the wire format itself sets (a u8 count cannot pass 255) has no entry here.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Reading: a partial frame up to this size is joined with plain bytes, a larger one grows in place.
SPLITTER_JOIN_BYTES_MAX: Final = 64 * KIB

# comet
COMET_FRAME_BYTES_MAX: Final = 2 + 0xFFFF  # readers take the unsigned range
COMET_WRITE_LENGTH_MAX: Final = 0x7FFF  # writers keep to the signed one: the authors' server reads it so
COMET_WRITE_COUNT_MAX: Final = 0x7F
COMET_TOPIC_CHARS_MAX: Final = 256
COMET_REQUESTS_OPEN_MAX: Final = 256
COMET_HELD_FRAMES_MAX: Final = 64  # frames that came while the login was being checked
COMET_ANSWERS_WAITING_MAX: Final = 1024  # answers held back behind an unanswered question
COMET_HEARTBEAT_S: Final = 40.0  # (setting) how often a client of ours says that it is there
COMET_IDLE_S: Final = 120.0  # (setting)
COMET_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
