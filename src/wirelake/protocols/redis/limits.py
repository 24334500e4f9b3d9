"""Bounds of redis, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB, MIB

REDIS_FRAME_BYTES_MAX: Final = 32 * MIB  # (setting) a command
REDIS_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login
REDIS_BULK_BYTES_MAX: Final = 16 * MIB
REDIS_LINE_BYTES_MAX: Final = 64 * KIB  # an inline command, a simple string or an error
REDIS_ITEMS_MAX: Final = 1024 * 1024  # values in one aggregate, and in one frame altogether
REDIS_ARGUMENTS_MAX: Final = 65_536  # of one command
REDIS_DEPTH_MAX: Final = 32  # aggregates within each other
REDIS_NUMBER_CHARS_MAX: Final = 4096  # doubles and big numbers; Python refuses to read integers beyond 4300 digits
REDIS_REQUESTS_OPEN_MAX: Final = 65_536  # one read of a socket may bring thousands of commands
REDIS_REQUESTS_PAUSE_AT: Final = 1024  # with so many open, a session asks that its socket is not read
REDIS_ANSWERS_BYTES_MAX: Final = 32 * MIB  # answers held back behind an unanswered question
REDIS_ANSWERS_PAUSE_BYTES: Final = 1 * MIB  # with so much held back, likewise
REDIS_HELD_FRAMES_MAX: Final = 8192  # commands that came while the login was being checked
REDIS_HELD_BYTES_MAX: Final = 1 * MIB
REDIS_SKIMMED_BYTES_MAX: Final = MIB  # a longer command is read by itself
REDIS_SUBSCRIPTIONS_MAX: Final = 10_000  # channels and patterns of one connection
REDIS_QUEUED_COMMANDS_MAX: Final = 4096  # between MULTI and EXEC
REDIS_QUEUED_WORDS_MAX: Final = 65_536  # the same, with their arguments
REDIS_QUEUED_BYTES_MAX: Final = 32 * MIB
REDIS_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
REDIS_LEAVE_S: Final = 5.0  # how long the last answers may take before the connection is closed
REDIS_PING_S: Final = 60.0  # how often a client of ours says that it is there
