"""Every bound, by name, with its unit at the end. Settings may move those marked (setting).

A bound that the wire format itself sets (a u8 count cannot pass 255) has no entry here. Each protocol has its own in
`protocols/<name>/limits.py`; those of the command line are in `cli/limits.py`, of the simulator in
`simulator/limits.py`, of broadcasts in `gateway/limits.py`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Reading: a partial frame up to this size is joined with plain bytes, a larger one grows in place.
SPLITTER_JOIN_BYTES_MAX: Final = 64 * KIB
JSON_WEIGHT_MAX: Final = 4_000_000  # of one text: a value of a list is 1, an object 24; about 60 ms to read
JSON_TEXTS_LOOKED_INTO_MAX: Final = 20_000  # quotes in a text whose strings are left out of that
JSON_DEPTH_MAX: Final = 128  # what was read can be written again, however deep the caller stands in the stack

# sisdb, the service
RECORDS_FIELDS_MAX: Final = 1024  # of one table
RECORDS_SUBSCRIPTIONS_MAX: Final = 1024  # of one session
SISDB_SERIES_PER_REQUEST_MAX: Final = 4096  # that one get, sub or set may name
SISDB_RECORDS_PER_SET_MAX: Final = 10_000  # all or none: so many take 20 ms to hand to the disk
SISDB_RECORDS_AT_ONCE: Final = 256  # made or read without being interrupted
SISDB_PACKET_VALUES_MAX: Final = 50_000  # in one packet of an answer
SISDB_NAMES_PER_ANSWER_MAX: Final = 100_000  # keys or tables in one list
SISDB_RECORDS_PER_GET_MAX: Final = 200_000  # in the packets of one answer; of a table without a layout, one packet's

# redis values, the service
VALUES_ANSWER_BYTES_MAX: Final = 32 * MIB  # of keys, or of the values of one MGET
VALUES_ANSWER_HELD_BYTES: Final = 64 * KIB  # a longer answer that waits for the disk keeps its connection waiting
VALUES_KEYS_AT_ONCE: Final = 256  # that a command may name, or look at, without being interrupted
VALUES_PAIRS_MAX: Final = 4096  # keys of one MSET, fields of one HSET, HMGET or HDEL: set all at once, or none
VALUES_TRANSACTION_KEYS_MAX: Final = 1024  # watched for one, or looked at by one of its commands
VALUES_STREAMS_MAX: Final = 64  # topics of one XREAD
VALUES_ENTRY_BYTES_MAX: Final = 1 * MIB  # of a stream's entry with fields, as JSON
VALUES_BLOCK_S_MAX: Final = 300.0  # how long an XREAD may wait, whatever it asks for

# state
STATE_WAITING_OPERATIONS_MAX: Final = 65_536  # gathered for the next commit; beyond, work is refused
STATE_WAITING_BYTES_MAX: Final = 64 * MIB
STATE_STATEMENT_ROWS_MAX: Final = 128  # written by one step of SQLite, which may allow no more than 999 values
STATE_ROW_NOTIFICATIONS_MAX: Final = 256  # notifications published together that are one row
STATE_ROW_BYTES_MAX: Final = 256 * KIB  # the same, unless it is one
STATE_RETRY_PAUSE_S: Final = 0.5  # between attempts to write again after a failure
STATE_PROBE_BYTES: Final = 64 * KIB  # what such an attempt writes
STATE_LOCKED_WAIT_S: Final = 5.0  # for a transaction of someone else's tool on the same database
STATE_CLOSE_S: Final = 60.0
STATE_LOG_BEHIND_ROWS: Final = 1000  # records of the log, beyond which an idle state notes where the log is
STATE_CHECK_BYTES_MAX: Final = 256 * MIB  # a larger database is not looked through for damage at each start
STATE_WAL_BYTES_MAX: Final = 64 * MIB  # what is left of SQLite's write-ahead log after a checkpoint
STATE_NAME_BYTES_MAX: Final = 1024  # of an identity, a topic, a device's serial, a table, a record's key
STATE_TOKEN_BYTES_MAX: Final = 4 * KIB
STATE_CONTENT_BYTES_MAX: Final = 16 * MIB  # of one notification, record or value
STATE_IDENTITIES_MAX: Final = 2_000_000
STATE_TOKENS_KNOWN_MAX: Final = 65_536  # tokens that need not be checked with scrypt again
STATE_DEVICES_MAX: Final = 2_000_000
STATE_SEALS_BYTES_MAX: Final = 64 * KIB  # what is known of the sealed commands of one device
STATE_TOPICS_MAX: Final = 1_000_000
STATE_TOPICS_PER_IDENTITY_MAX: Final = 4096
STATE_ACK_RANGES_MAX: Final = 1024  # runs of acks ahead of a subscription's cursor
STATE_RECENT_NOTIFICATIONS_MAX: Final = 8192  # kept in memory for subscribers that are only a little behind
STATE_RECENT_BYTES_MAX: Final = 16 * MIB
STATE_READ_ROWS_MAX: Final = 10_000  # notifications or records in one answer from disk
STATE_READ_BYTES_MAX: Final = 4 * MIB  # the same; one row is always given
STATE_PASSED_OVER_MAX: Final = 65_536  # notifications too long for whoever asks, in one look at what waits
STATE_NAMES_SORTED_AT_ONCE: Final = 1024
STATE_SERIES_MAX: Final = 1_000_000  # key and sdb of one data set
STATE_PATTERN_BYTES_MAX: Final = KIB  # of a pattern for keys: no key is longer
STATE_KEYS_LOOKED_AT: Final = 8  # before others may have their turn: a bad pattern takes milliseconds for a key
STATE_VALUES_MAX: Final = 1_000_000
STATE_HASH_FIELDS_MAX: Final = 65_536  # of one redis hash
STATE_VALUES_BYTES_MAX: Final = 256 * MIB  # (setting) keys and values, which live in memory
STATE_SESSIONS_MAX: Final = 200_000  # that may be resumed
STATE_KEEP_S: Final = 2 * 24 * 3600.0  # (setting) after which an unacked notification expires
CLOCK_CATCH_UP: Final = 0.05  # how much faster or slower than real time expiry may run to follow the system's clock
CLOCK_CHECK_S: Final = 0.1  # between two looks at the system's clock
CLOCK_STEP_S: Final = 5.0  # a step of the system's clock that is reported
STATE_SWEEP_ROWS: Final = 500  # removed at most in one slice
STATE_SWEEP_TOPICS: Final = 256  # looked at in one slice
STATE_SWEEP_PAUSE_S: Final = 0.05  # between slices while there is more to remove
STATE_SWEEP_IDLE_S: Final = 5.0  # between slices otherwise

# log
LOG_SEGMENT_BYTES: Final = 64 * MIB  # (setting) a segment of this size is sealed and the next one begun
LOG_SEGMENTS_MIN: Final = 3  # that fit below `log.disk_bytes_max`: the one before is read while the next is written
LOG_SEGMENT_AGE_S: Final = 3600.0  # (setting) so is one of this age
LOG_BUFFERED_BYTES_MAX: Final = 32 * MIB  # waiting for the disk, on top of the block being written
LOG_BLOCK_BYTES: Final = 4 * MIB  # what has gathered is cut into blocks of about this size
LOG_CALL_BYTES_MAX: Final = 64 * MIB  # handed over in one call
LOG_RECORD_OVERHEAD_BYTES: Final = 256  # what a record counts towards these, beside its frame
LOG_BLOCK_BYTES_MAX: Final = 512 * MIB  # a block's header that claims more is damaged
LOG_REPEAT_BYTES_MIN: Final = 16 * KIB  # a frame of at least this size is looked for among those the segment holds
LOG_REPEAT_HEAD_BYTES: Final = KIB  # at least so much of it is always written
LOG_REPEAT_STEP_BYTES: Final = 4 * KIB  # the rest is compared in multiples of this, counted from its end
LOG_REPEATS_MAX: Final = 4096  # large frames of a segment that are remembered
LOG_RETRY_FIRST_S: Final = 0.1  # pause after a failed write, doubled each time
LOG_RETRY_MAX_S: Final = 5.0
LOG_POLL_S: Final = 0.02  # how often a reader at the end of the log looks for more
LOG_VIEW_POLL_S: Final = 0.25  # how often a reader looks again for records that it knows to be committed
LOG_CLOSE_S: Final = 30.0  # for the last blocks to reach the disk
LOG_KEEP_DAYS: Final = 30.0  # (setting)
LOG_LINGER_S: Final = 0.005  # a record that nobody waits for is written with the next that somebody does, or after this
LOG_RETENTION_EVERY_S: Final = 60.0
LOG_SCRUB_BYTES_MAX: Final = 1024 * MIB  # newest sealed segments checked in full after an unclean end
LOG_CONSUMERS_MAX: Final = 256
LOG_CONSUMER_CHARS_MAX: Final = 64
LOG_DAMAGE_KEPT_MAX: Final = 1000  # damaged places that one reader remembers

# gold
GOLD_MINUTES_EVERY_S: Final = 5.0  # between two times that tables by the minute are worked out, in a running job
GOLD_LEDGER_EVERY_S: Final = 30.0  # the same for the ledger, which counts whole hours
GOLD_STRETCHES_MAX: Final = 64  # of time, worked out again in one go; with more, the nearest are joined

# console
CONSOLE_LIVE_S: Final = 1.0  # between two snapshots of what goes on
CONSOLE_WATCHERS_MAX: Final = 100  # pages that follow them at once
CONSOLE_FORM_BYTES_MAX: Final = 8 * KIB
CONSOLE_QUARANTINE_RECORDS_MAX: Final = 500  # of the log, which the tables do not have yet
CONSOLE_QUARANTINE_GROUPS_MAX: Final = 200  # protocol and reason
CONSOLE_QUARANTINE_SHOWN: Final = 10  # of one group, the newest

# trace: how far one question about a message looks
TRACE_SEARCHED_MAX: Final = 200_000  # records of the log
TRACE_SEARCH_S: Final = 5.0
TRACE_STEP_RECORDS: Final = 16 * KIB  # going back from the end of the log, in steps of so many
TRACE_NEAR_RECORDS: Final = 2048  # between a frame and what was published because of it
TRACE_SLACK_US: Final = 2_000_000  # by how much the times of the log and of the state may differ
TRACE_RECORDS_MAX: Final = 2000  # of the log, about one message or session
TRACE_EVENTS_MAX: Final = 500  # on one time line
TRACE_RECIPIENTS_MAX: Final = 100  # named, of one delivery
TRACE_FRAME_BYTES_MAX: Final = 512  # shown, of one frame
TRACE_ROWS_MAX: Final = 100  # of one table
TRACE_VALUE_CHARS_MAX: Final = 1024  # of one value of a row
TRACE_TABLES_S: Final = 10.0  # for the tables' answer

# lake
LAKE_SQL_CHARS_MAX: Final = 64 * KIB
LAKE_ROWS: Final = 1000  # in one answer, where the question names no number
LAKE_ROWS_MAX: Final = 100_000
LAKE_ROWS_AT_ONCE: Final = 64  # fetched from DuckDB in one step
LAKE_ANSWER_BYTES_MAX: Final = 32 * MIB  # as JSON
LAKE_MEMORY_MIB_MAX: Final = 1024  # of DuckDB, for one question
LAKE_QUERY_S: Final = 30.0
LAKE_THREADS_MAX: Final = 2  # of DuckDB, for one question
LAKE_PROCESS_EXTRA_MIB: Final = 512  # of a query process beyond what DuckDB counts: the interpreter, the answer
LAKE_PROCESS_KEEP_MIB: Final = 512  # a query process that holds more after a query is replaced before the next
LAKE_PROCESS_NICE: Final = 5  # queries yield to the gateway
LAKE_PROCESS_START_S: Final = 30.0
LAKE_PROCESS_IDLE_S: Final = 60.0  # without a query, after which a query process ends
LAKE_PROCESS_REUSE_S: Final = 50.0  # since its last query, until which it is given another: it may be about to end
LAKE_KILL_GRACE_S: Final = 1.0  # beyond the time limit, in which a query process can still report it by itself
LAKE_REPLY_EXTRA_BYTES: Final = MIB  # of a reply beyond its rows: columns, or an error
LAKE_COMMIT_ATTEMPTS_MAX: Final = 10  # of one commit, when somebody else commits at the same moment
LAKE_CHECKPOINT_COMMITS: Final = 100  # after so many, Delta sums up its log
LAKE_KEEP_REMOVED_H: Final = 2  # a reader that looks at a version as it was finds its files for so long
LAKE_KEEP_LOG_H: Final = 1  # versions older than this cannot be looked at; a commit lists all that are kept
LAKE_FILE_BYTES: Final = 64 * MIB  # small files are joined up to this size
LAKE_COMPACT_FILES_MIN: Final = 8  # small files of one group, before a running job joins them
LAKE_COMPACT_EVERY_BATCHES: Final = 30  # how often a running job looks for such
LAKE_VACUUM_EVERY_COMPACTIONS: Final = 20  # how often it looks for files that nobody needs any more

# broker
BROKER_CHANNELS_MAX: Final = 1_000_000  # live names with a subscriber
BROKER_PATTERNS_MAX: Final = 4096  # of names: each publish on a live name is held against all of them
BROKER_PATTERNS_PER_PEER_MAX: Final = 256
BROKER_GATHERED_MAX: Final = 4096  # notifications of one name written together
BROKER_CALLS_OPEN_MAX: Final = 100_000
BROKER_SERVICES_PER_PEER_MAX: Final = 1024
BROKER_SUBSCRIPTIONS_MAX: Final = 100_000  # to services of registered providers, all together
BROKER_SUBSCRIPTIONS_PER_PEER_MAX: Final = 1024  # of those, of one session that subscribed
BROKER_GROUPS_PER_SERVICE_MAX: Final = 16  # that one session provides a service in
BROKER_CALL_S: Final = 5.0  # (setting) until a request without a time of its own has failed
BROKER_CALL_MS_MAX: Final = 600_000  # for an answer, whatever the request names
BROKER_RESEND_S: Final = 30.0  # (setting) until an unacked notification is sent again on the same connection
BROKER_IMPLICIT_ACK_S: Final = 30.0  # (setting) what a silent peer without acks has had for so long, it has acked
BROKER_SETTLE_S: Final = 0.2  # between two looks at what peers without acks have got
BROKER_SETTLE_PEERS: Final = 1000  # looked at each time
BROKER_CATCH_UP_ROWS: Final = 256  # what a lagging subscriber gets in one turn
BROKER_CATCH_UP_S: Final = 0.005  # for the slices of all who lag, in one turn
BROKER_CATCH_UP_BYTES: Final = 256 * KIB
BROKER_SENT_RUNS: Final = 16  # the pause before sending again is cut into so many: what is written in one is one run
BROKER_MISSED_NAMES_MAX: Final = 4096  # names of which a slow reader is kept the newest notification, by setting
BROKER_TIMEOUTS_AT_ONCE: Final = 2048  # calls that are answered for in one go: a broadcast's end together
BROKER_CALLS_OVER_MAX: Final = 4096  # answered calls whose time is not yet up, before they are cleared away
BROKER_BACKLOG_ROWS: Final = 256  # what one question for the backlog can bring
BROKER_BACKLOG_BYTES: Final = 64 * KIB
BROKER_TOPIC_CHARS_MAX: Final = 256
BROKER_TOPICS_PER_REQUEST_MAX: Final = 1024

# gateway
GATEWAY_TIMER_GRAIN_S: Final = 0.05  # deadlines this near to each other run together
GATEWAY_RETRY_S: Final = 1.0  # until a deadline whose handling failed, or a failed accept, is tried again
GATEWAY_BUSY_PAUSE_S: Final = 0.05  # how long a connection is not read while the log has no room
# In one turn of the event loop. So many frames, each answered, still fit the log on top of GATEWAY_LOG_BEHIND.
GATEWAY_TURN_S: Final = 0.005  # of the event loop's time, for one connection's frames and for all queued work
GATEWAY_THREAD_SWITCH_S: Final = 0.0005  # how long the log's writer waits for the event loop to let it run
GATEWAY_SHARE_S: Final = 0.005  # the same, for all connections of one identity that need not queue, in one window
GATEWAY_SHARE_WINDOW_S: Final = 0.02
GATEWAY_TURN_FRAMES: Final = 2048  # about; the last read says how long a frame is
GATEWAY_TURN_BYTES_MAX: Final = 256 * KIB
GATEWAY_TURN_BYTES_MIN: Final = 4 * KIB
GATEWAY_CUT_BYTES: Final = 32 * KIB  # cut into frames at once: how many tiny ones that are is known only afterwards
GATEWAY_MESSAGES_CUT_BYTES: Final = 4 * KIB  # the same for WebSocket frames, which cost far more each
GATEWAY_LOG_BEHIND: Final = 0.75  # reading stops when this much of what may wait for the disk does
GATEWAY_LINGER_S: Final = 1.0  # for a peer whose bytes cannot be read to take our last word
GATEWAY_TROUBLE_LOG_S: Final = 10.0  # between two log lines about the same trouble
GATEWAY_UNPUBLISHED_PER_DEVICE_MAX: Final = 64  # a device's commands that could not be published, for their repeats
GATEWAY_TLS_BUFFERS: Final = 2  # what a TLS transport may hold that cannot be seen, as a multiple of pending_bytes
GATEWAY_STOP_S: Final = 10.0  # from the signal to the end
GATEWAY_CONNECTIONS_MAX: Final = 20_000  # (setting)
GATEWAY_CONNECTIONS_PER_ADDRESS_MAX: Final = 12_000  # (setting)
GATEWAY_UNAUTHENTICATED_SHARE: Final = 0.25  # (setting) of the connections, for peers that have not logged in
GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE: Final = 0.5  # of what these may have, for one address
GATEWAY_UNAUTHENTICATED_BYTES_MAX: Final = 64 * MIB  # (setting) that peers without a login hold together
GATEWAY_UNAUTHENTICATED_RECORDS: Final = 2000  # (setting) of the log, a second on average, that these cause
GATEWAY_UNAUTHENTICATED_LOG_BYTES: Final = 512 * KIB  # (setting) the same, in bytes of their frames
GATEWAY_QUOTA_BURST_S: Final = 10.0  # so many seconds' worth of these at once
GATEWAY_QUOTA_WAIT_S: Final = 5.0  # a peer that would have to wait longer for its quota is closed
GATEWAY_QUOTA_ADDRESSES_MAX: Final = 10_000  # addresses that have one; the least recently seen are forgotten
GATEWAY_KEEPALIVE_S: Final = 60  # of silence, before TCP asks whether an accepted peer is there; and between two such
GATEWAY_KEEPALIVE_PROBES: Final = 3  # without an answer: the line is dead
GATEWAY_TLS_HANDSHAKE_S: Final = 10.0  # (setting) from an accepted connection to a finished handshake
GATEWAY_STREAM_LOOK_S: Final = 60.0  # how often a stream of packets is looked at, at least: a closed one is let go
GATEWAY_BACKLOG: Final = 4096  # connections that the operating system accepts before we do
GATEWAY_FRAMES_PER_SECOND: Final = 200_000  # (setting) of one connection
GATEWAY_BYTES_PER_SECOND: Final = 64 * MIB  # (setting) of one connection
GATEWAY_PENDING_BYTES: Final = MIB  # (setting) written to one connection and not taken by it
GATEWAY_STALL_S: Final = 60.0  # (setting) for a peer to take half of its pending bytes, before it is closed
GATEWAY_STALLED_BYTES_MAX: Final = 512 * MIB  # (setting) pending for all peers that do not read, together
GATEWAY_STALL_LOOK_S: Final = 0.02  # how soon a peer that does not read is looked at again; it doubles
GATEWAY_STALL_LOOK_MAX_S: Final = 1.0
GATEWAY_JOB_INLINE_S: Final = 0.001  # a request that takes no longer is answered at once
GATEWAY_JOBS_MAX: Final = 4096  # long requests under way, of all
GATEWAY_JOBS_PER_SHARE_MAX: Final = 256  # of one identity, or of one address before the login
GATEWAY_FAILED_LOGINS_MAX: Final = 10  # (setting) of one name from one address, before the next are answered late
GATEWAY_FAILED_LOGINS_KEPT_MAX: Final = 100_000  # addresses and names with failed logins that are remembered
GATEWAY_LOGIN_DELAY_S: Final = 0.5  # the first delay; it doubles
GATEWAY_LOGIN_DELAY_MAX_S: Final = 30.0
GATEWAY_LOGIN_DELAY_SHARE: Final = 0.5  # of the time that a protocol gives a login: the delay is never longer
GATEWAY_LOGIN_FORGET_S: Final = 300.0  # without a failure, a name from an address starts anew
GATEWAY_LOGINS_CHECKED_MAX: Final = 2  # with scrypt, at once: a check costs tens of milliseconds of a core
GATEWAY_LOGINS_WAITING_MAX: Final = 10_000  # for such a check
GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX: Final = 256  # the same: about as many as are checked within a login's time
GATEWAY_LOGINS_PER_NAME_MAX: Final = 16  # under way with different tokens, of one name from one address
GATEWAY_COUNTERS_EVERY_S: Final = 10.0  # how often the counters go to the log
QUARANTINE_BYTES_MAX: Final = 64 * KIB  # of one fault
GATEWAY_DATAGRAM_BYTES: Final = 1200  # of several packets to a device in one datagram
GATEWAY_DEVICES_MAX: Final = 200_000  # heard from within the last hour
DEVICE_SEALS_SAVE_S: Final = 1.0  # between two saves of the sealed commands seen: a crash forgets no more
DEVICE_BATCH_PACKETS_MIN: Final = 16  # of devices, decoded together

# fetching by HTTP
FETCH_S: Final = 10.0  # (setting) for one request, its turn and redirects included
FETCH_BYTES_MAX: Final = 4 * MIB  # (setting) of an answer
FETCH_OPEN_MAX: Final = 32  # (setting) at once
FETCH_REDIRECTS_MAX: Final = 3  # (setting)
FETCH_WAITING_MAX: Final = 1024  # under way or waiting for their turn
FETCH_HEAD_BYTES_MAX: Final = 64 * KIB  # an answer's status and headers
FETCH_HEADERS_MAX: Final = 64  # of a request, and of an answer that are kept
FETCH_HEADERS_BYTES_MAX: Final = 16 * KIB  # those of a request
FETCH_URL_CHARS_MAX: Final = 8 * KIB  # also of a query
FETCH_ERROR_CHARS: Final = 200  # of what a server says went wrong

# upstreams
UPSTREAM_CONNECT_S: Final = 10.0  # for one try to connect
UPSTREAM_LOGIN_S: Final = 20.0  # from a connection to an accepted login
UPSTREAM_BACKOFF_FIRST_S: Final = 0.2  # the longest first pause before calling again; it doubles
UPSTREAM_BACKOFF_MAX_S: Final = 30.0
UPSTREAM_STEADY_S: Final = 10.0  # a connection that held this long makes the pauses short again
UPSTREAM_KEEP_S: Final = 10.0  # (setting) packets that came, for those who join later
UPSTREAM_KEPT_BYTES_MAX: Final = 16 * MIB  # of those, for one upstream; beyond, the oldest go
UPSTREAM_REQUESTS_OPEN_MAX: Final = 192  # asked of one upstream at once: leaves room for pings in what a session has
UPSTREAM_REQUESTS_WAITING_MAX: Final = 10_000  # that wait for their turn; one more is refused
UPSTREAM_WAITING_BYTES_MAX: Final = 64 * MIB  # of those together
UPSTREAM_CLOSE_S: Final = 5.0  # for the other end to take the last bytes of a connection that is being closed
UPSTREAM_SUBSCRIBERS_MAX: Final = 100_000  # of one upstream's subscriptions together

# clients
CLIENT_CONNECT_S: Final = 10.0  # for one try to connect; (argument) for the first connection to be there
CLIENT_BACKOFF_FIRST_S: Final = 0.2  # the longest first pause before calling again; it doubles
CLIENT_BACKOFF_MAX_S: Final = 30.0
CLIENT_STEADY_S: Final = 10.0  # a connection that held this long makes the pauses short again
CLIENT_KEEPALIVE_S: Final = 20  # of silence, before TCP asks whether the other end is still there; and between two such
CLIENT_KEEPALIVE_PROBES: Final = 3  # without an answer: the line is dead
CLIENT_ANSWER_S: Final = 30.0  # (argument) for an answer, the wait for a connection included
CLIENT_ANSWERS_WAITING_MAX: Final = 1024  # requests without an answer yet
CLIENT_INBOX_MAX: Final = 1024  # (argument) notifications not taken yet: then no more are read
CLIENT_INBOX_OVERDRAFT: Final = 4  # times that many while an answer is waited for; then the newest are left out
CLIENT_READ_BYTES: Final = 4 * KIB  # looked at between two looks at the inbox
CLIENT_WRITE_BYTES_MAX: Final = 256 * KIB  # written and not taken by the network: then requests wait
CLIENT_ACKS_WAITING_MAX: Final = 65_536  # that a client sends by itself; beyond, the oldest are not: they come again
CLIENT_CLOSE_S: Final = 5.0  # for the last acks and bytes
CLIENT_SERVED_MAX: Final = 64  # requests that a device or a service works on at once; one more is refused
CLIENT_ANSWER_PACKETS_MAX: Final = 1024  # of one answer
CLIENT_FEEDS_MAX: Final = 1024  # subscriptions to a service's records, of one client
CLIENT_MANGLED_MAX: Final = 64  # datagrams that made-up faults hold back

# http
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB  # the request line and the headers
HTTP_BODY_BYTES_MAX: Final = 24 * MIB  # of one request: a notification's content as base64 fits
HTTP_BODIES_BYTES_MAX: Final = 128 * MIB  # of all requests under way whose sender is known
HTTP_UNKNOWN_BODIES_BYTES_MAX: Final = 32 * MIB  # of all others: what arrived before it is known who sends
HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX: Final = 4 * MIB
HTTP_DECODE_BYTES_MAX: Final = 256 * KIB  # taken apart in one request
HTTP_REQUEST_S: Final = 60.0  # from a request's first byte to its last
HTTP_UNKNOWN_REQUEST_S: Final = 10.0  # the same, where it is not known who sends
HTTP_HEALTH_S: Final = 5.0  # the same, on a connection that is kept for /healthz and /readyz only
HTTP_HEALTH_CONNECTIONS_MAX: Final = 64  # such connections, beyond those that the limits let in
HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX: Final = 16
HTTP_KEEP_ALIVE_S: Final = 15  # between two requests of a connection
HTTP_DRAIN_S: Final = 30.0  # for a peer to take the last bytes of a connection that is being closed
HTTP_STOP_S: Final = 3  # for requests under way when the gateway stops
HTTP_REQUESTS_OPEN_MAX: Final = 1024  # complete, of known senders, and not answered yet
HTTP_REFUSED_HANDSHAKES_MAX: Final = 64  # TLS, of connections beyond the limit: they may still ask for health
HTTP_STREAMS_MAX: Final = 1000  # subscriptions by HTTP, open at once
HTTP_NAME_CHARS_MAX: Final = 256  # of an identity or a device: at most four bytes each, as STATE_NAME_BYTES_MAX allows
HTTP_TOKEN_CHARS_MAX: Final = 1024  # of a chosen token: STATE_TOKEN_BYTES_MAX allows four bytes each
HTTP_STREAM_MS_MAX: Final = 86_400_000  # that a subscription by HTTP may ask to last; without asking, it has no end
HTTP_ACKS_MAX: Final = 1000  # ids in one request
HTTP_STREAM_PING_S: Final = 15.0  # silence on a stream, before a sign of life is sent
HTTP_ROWS_AT_ONCE: Final = 64  # of a list, put together without being interrupted
HTTP_NAMES_AT_ONCE: Final = 1024  # looked at for a list, likewise
HTTP_LIST_ROWS: Final = 1000  # in one answer, where the request names no number
HTTP_LIST_ROWS_MAX: Final = 10_000
HTTP_DELIVERIES_SHOWN_MAX: Final = 1000  # subscribers of one notification, in one answer
HTTP_SUBSCRIBERS_SHOWN_MAX: Final = 1000  # of one topic, in one answer
HTTP_TOPIC_LAST_ROWS: Final = 50  # of a topic's last notifications, in one answer
HTTP_TOPIC_LAST_BYTES: Final = MIB  # read for that; at least one is
HTTP_TOPIC_CONTENT_CHARS: Final = 4096  # of each of them
HTTP_CALL_MS_MAX: Final = 300_000  # for a service's answer
HTTP_COMMAND_MS: Final = 5000  # for a device's answer, where the request names no time
HTTP_COMMAND_MS_MAX: Final = 30_000
HTTP_ANSWER_GRACE_S: Final = 1.0  # beyond the broker's own time-out, which answers first
HTTP_ANSWER_PARTS_MAX: Final = 1024
HTTP_HASHES_MAX: Final = 2  # new tokens hashed at once: one costs tens of milliseconds of a core
HTTP_BARE_TOKENS_MAX: Final = 64  # identities that a chosen token without a name is tried against, the newest first
HTTP_LOGIN_S: Final = 10.0  # from a request with a token to the answer, before which a delayed one has to come
HTTP_BARE_TOKENS_KNOWN_MAX: Final = 4096
HTTP_LOG_ROWS: Final = 50  # records of the log in one answer, where the request names no number
HTTP_LOG_ROWS_MAX: Final = 1000
HTTP_LOG_FRAME_BYTES_MAX: Final = 64 * KIB  # of one record's frame
HTTP_LOG_SEARCHED_MAX: Final = 200_000  # records that are looked through for those wanted
HTTP_VISITS_MAX: Final = 1000  # browsers logged in
HTTP_VISIT_S: Final = 12 * 3600.0  # after which a browser has to log in again
HTTP_QUERIES_MAX: Final = 2  # over the tables, at once
HTTP_TRACES_MAX: Final = 4  # messages whose way is put together at once
HTTP_TICK_S: Final = 1.0  # how often the lag of the event loop is measured

# pipeline
WHEEL_BUILD_S: Final = 120.0
JAVA_ANSWER_S: Final = 20.0  # for a Java to say its version
PIPELINE_DRIVER_MEMORY_MB: Final = 1024  # of the driver's JVM; with a local master also that of the tasks
PIPELINE_PARTITION_ROWS: Final = 250_000  # (option) records that one task reads, when there is much to read
PIPELINE_PARTITION_BYTES: Final = 64 * MIB  # the same, in bytes on disk
PIPELINE_BATCH_ROWS: Final = 1_000_000  # (option) records that a stream takes in one batch
PIPELINE_BATCH_BYTES: Final = 256 * MIB  # (option) the same, in bytes on disk
PIPELINE_CHUNK_ROWS: Final = 64 * KIB  # records decoded in one call, about
PIPELINE_CHUNK_BYTES: Final = 16 * MIB
PIPELINE_HANDED_ROWS: Final = 4 * KIB  # records handed to Spark in one batch, at least: small blocks are joined
PIPELINE_VIEW_WAIT_S: Final = 10.0  # for records and files of another machine to be seen here; then the batch fails
PIPELINE_INTENTS_KEPT: Final = 64  # newest batches whose commits can be done again
PIPELINE_TRIGGER_S: Final = 1.0  # (option) between the beginnings of two batches, when there is little to do
PIPELINE_TRIGGER_S_MIN: Final = 0.1
PIPELINE_STOP_S: Final = 20.0  # for a batch under way to end, when the job is to stop
PIPELINE_RESTART_FIRST_S: Final = 1.0  # pause after a failure, doubled each time
PIPELINE_RESTART_MAX_S: Final = 60.0
PIPELINE_ONCE_ATTEMPTS_MAX: Final = 4  # of a batch that fails, where the job is to end by itself
PIPELINE_POISON_MAX: Final = 64  # records of one batch that may break the job; beyond, the fault lies elsewhere
PIPELINE_ERRORS_SHOWN: Final = 5  # of the last failures
PIPELINE_SENTENCE_MAX: Final = 500  # characters that say what went wrong
PIPELINE_FRESH_S: Final = 60.0  # figures of a job that are older are not shown as metrics
PIPELINE_SNAPSHOT_S: Final = 60.0  # for a batch under way to be in every table, before history is read
PIPELINE_REDECODE_UNITS: Final = 2  # of each core, in one job of a redecode
PIPELINE_BUCKETS: Final = 4  # what is put together over time is divided into so many, each settled by one task

# pipeline: what waits for its end, in one bucket. Beyond a count, or an age by event time, the oldest is settled.
PIPELINE_CLOCK_STEP_S: Final = 10.0  # how far clocks may step back: so long a time-out can still be undone
PIPELINE_COMMANDS_OPEN_MAX: Final = 65_536  # under assembly
PIPELINE_COMMANDS_OPEN_BYTES_MAX: Final = 64 * MIB  # of their packets
PIPELINE_CALLS_OPEN_MAX: Final = 262_144
PIPELINE_CALL_AGE_S: Final = 3600.0
PIPELINE_DELIVERIES_OPEN_MAX: Final = 4_194_304
PIPELINE_DELIVERY_AGE_S: Final = 30 * 24 * 3600.0
PIPELINE_EXPIRED_KEEP_S: Final = 3600.0  # how long an ack may come after the expiry and still correct it
PIPELINE_ACKED_KEEP_S: Final = 24 * 3600.0  # since its last ack of a topic, what an identity acked is remembered
PIPELINE_ACKED_IDENTITIES_MAX: Final = 1_048_576
PIPELINE_ACKED_RUNS_MAX: Final = 64  # of positions, in one topic
PIPELINE_SESSIONS_OPEN_MAX: Final = 1_048_576
PIPELINE_SESSION_AGE_S: Final = 90 * 24 * 3600.0
PIPELINE_LAYOUT_SESSIONS_MAX: Final = 65_536  # whose dict is remembered
PIPELINE_LAYOUTS_MAX: Final = 65_536  # tables that were created
PIPELINE_STRETCH_HOURS_MAX: Final = 24 * 366  # between two counters, hours and protocols told apart
