"""Bounds of sisnet, by name, with their units at the end. Settings may move those marked (setting)."""

from typing import Final

from wirelake.limits import KIB, MIB, RECORDS_FIELDS_MAX

SISNET_MESSAGE_BYTES_MAX: Final = 16 * MIB  # (setting)
SISNET_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login; of a WebSocket, its handshake too
SISNET_INFLATED_BYTES_MAX: Final = 16 * MIB  # (setting) what one snappy content may grow to
SISNET_NAME_BYTES_MAX: Final = 128
SISNET_TABLES_MAX: Final = 256  # a dict's tables, for each direction
SISNET_TABLE_VALUES_MAX: Final = RECORDS_FIELDS_MAX  # in one record, a field with a count being that many
SISNET_RECORD_BYTES_MAX: Final = 64 * KIB
SISNET_LINE_VALUES_MAX: Final = 1024 * 1024  # in the records of one data line
SISNET_REQUESTS_OPEN_MAX: Final = 256  # for each direction
SISNET_SUBSCRIPTIONS_MAX: Final = 1024  # on one connection, and the topics in them together
SISNET_UNSUB_BYTES_MAX: Final = 4 * KIB  # of an unsub for a provider; in place of a longer one key and sdb are named
SISNET_HELD_FRAMES_MAX: Final = 64  # frames that came while the login was being checked
SISNET_PING_S: Final = 40.0  # how often a client of ours says that it is there
SISNET_IDLE_S: Final = 120.0  # (setting)
SISNET_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
SISNET_ANSWER_S: Final = 30.0  # how long a peer may take to answer what it was asked
