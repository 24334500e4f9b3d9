"""Name every limit, with its unit at the end of the name and what it bounds beside it.

Those marked (setting) are defaults. A limit of the wire format (a u8 count cannot pass 255) has no entry
here. Each protocol has its own limits in `protocols/<name>/constants.py`; those of the command line are in
`cli/support/limits.py`, of the simulator in `simulator/limits.py`, of the workbench in `workbench/limits.py`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# reading
SPLITTER_JOIN_BYTES_MAX: Final = 64 * KIB  # a longer partial frame grows in place instead of being joined
JSON_WEIGHT_MAX: Final = 4_000_000  # weight of one text: 1 for a value of a list, 24 for an object; 60 ms to parse
JSON_TEXTS_LOOKED_INTO_MAX: Final = 20_000  # quotes in a text whose strings are left out of its weight
JSON_DEPTH_MAX: Final = 128  # levels of nesting: what was parsed can be encoded again from any depth of the call stack

# the service of records (sisdb)
RECORDS_FIELDS_MAX: Final = 1024  # fields of one table
RECORDS_SUBSCRIPTIONS_MAX: Final = 1024  # subscriptions of one session
SISDB_SERIES_PER_REQUEST_MAX: Final = 4096  # series that one get, sub or set may name
SISDB_RECORDS_PER_SET_MAX: Final = 10_000  # records of one set, stored all or none; submitting them takes 20 ms
SISDB_RECORDS_AT_ONCE: Final = 256  # records read or built before others get their turn
SISDB_PACKET_VALUES_MAX: Final = 50_000  # values in one packet of a response
SISDB_NAMES_PER_ANSWER_MAX: Final = 100_000  # keys or tables in one list
SISDB_RECORDS_PER_GET_MAX: Final = 200_000  # records in all packets of one response; without a layout, it is one packet

# the service of redis values
VALUES_ANSWER_BYTES_MAX: Final = 32 * MIB  # keys in one response, or values of one MGET
VALUES_ANSWER_HELD_BYTES: Final = 64 * KIB  # a longer response that waits for the disk pauses its connection
VALUES_KEYS_AT_ONCE: Final = 256  # keys that a command names or visits before others get their turn
VALUES_PAIRS_MAX: Final = 4096  # keys of one MSET, fields of one HSET, HMGET or HDEL, which are set all or none
VALUES_TRANSACTION_KEYS_MAX: Final = 1024  # keys watched for one transaction, or visited by one of its commands
VALUES_STREAMS_MAX: Final = 64  # topics of one XREAD
VALUES_ENTRY_BYTES_MAX: Final = 1 * MIB  # one entry of a stream with fields, as JSON
VALUES_BLOCK_S_MAX: Final = 300.0  # longest wait of an XREAD, even if it asks for more

# state
STATE_WAITING_OPERATIONS_MAX: Final = 65_536  # operations that wait for the next batch; beyond this, they are refused
STATE_WAITING_BYTES_MAX: Final = 64 * MIB  # their content
STATE_STATEMENT_ROWS_MAX: Final = 128  # rows of one SQL statement: some builds of SQLite allow no more than 999 values
STATE_ROW_NOTIFICATIONS_MAX: Final = 256  # notifications published together that are stored as one row
STATE_ROW_BYTES_MAX: Final = 256 * KIB  # content of one such row, unless it is a single notification
STATE_RETRY_PAUSE_S: Final = 0.5  # between attempts to write again after a failure
STATE_PROBE_BYTES: Final = 64 * KIB  # written by one such attempt
STATE_LOCKED_WAIT_S: Final = 5.0  # for a transaction of another program on the same database
STATE_CLOSE_S: Final = 60.0  # to write what is pending when the store is closed
STATE_LOG_BEHIND_ROWS: Final = 1000  # records that the log may advance before an idle state stores its position
STATE_CHECK_BYTES_MAX: Final = 256 * MIB  # a larger database is not checked for damage at each start
STATE_WAL_BYTES_MAX: Final = 64 * MIB  # what is left of SQLite's write-ahead log after a checkpoint
STATE_NAME_BYTES_MAX: Final = 1024  # name of an identity, a topic, a device, a table or a record
STATE_TOKEN_BYTES_MAX: Final = 4 * KIB  # one token
STATE_CONTENT_BYTES_MAX: Final = 16 * MIB  # one notification, record or value
STATE_IDENTITIES_MAX: Final = 2_000_000  # identities
STATE_TOKENS_PER_IDENTITY_MAX: Final = 8  # tokens of one identity; an expired one gives way to a new one
STATE_TOKEN_LIFE_S_MAX: Final = 10 * 365 * 24 * 3600.0  # life of a token that expires
STATE_TOKEN_EXPIRED_KEEP_S: Final = 7 * 24 * 3600.0  # for which an expired token stays in the list
STATE_TOKENS_KNOWN_MAX: Final = 65_536  # tokens that need not be checked with scrypt again
STATE_DEVICES_MAX: Final = 2_000_000  # registered devices
STATE_SEALS_BYTES_MAX: Final = 64 * KIB  # what is stored about the sealed commands of one device
STATE_TOPICS_MAX: Final = 1_000_000  # durable topics
STATE_TOPICS_PER_IDENTITY_MAX: Final = 4096  # durable subscriptions of one identity
STATE_ACK_RANGES_MAX: Final = 1024  # ranges of acks ahead of a subscription's cursor
STATE_RECENT_NOTIFICATIONS_MAX: Final = 8192  # notifications in memory, for subscribers that are only a little behind
STATE_RECENT_BYTES_MAX: Final = 16 * MIB  # their content
STATE_READ_ROWS_MAX: Final = 10_000  # notifications or records that one read returns
STATE_READ_BYTES_MAX: Final = 4 * MIB  # their content; one row is always returned
STATE_OVERSIZED_MAX: Final = 65_536  # notifications too large for the reader that one read of a backlog skips
STATE_NAMES_SORTED_AT_ONCE: Final = 1024  # names sorted before others get their turn
STATE_SERIES_MAX: Final = 1_000_000  # series of one data set
STATE_PATTERN_BYTES_MAX: Final = KIB  # a pattern for keys: no key is longer
STATE_KEYS_AT_ONCE: Final = 8  # keys matched before others get their turn: a bad pattern takes milliseconds for one key
STATE_VALUES_MAX: Final = 1_000_000  # redis values
STATE_HASH_FIELDS_MAX: Final = 65_536  # fields of one redis hash
STATE_VALUES_BYTES_MAX: Final = 256 * MIB  # (setting) keys and values, which are held in memory
STATE_SESSIONS_MAX: Final = 200_000  # sessions that may be resumed
STATE_KEEP_S: Final = 2 * 24 * 3600.0  # (setting) age at which an unacked notification expires
CLOCK_CATCH_UP: Final = 0.05  # share of the passing time by which expiry runs fast or slow to follow the system clock
CLOCK_CHECK_S: Final = 0.1  # between two comparisons with the system clock
CLOCK_STEP_S: Final = 5.0  # a step of the system clock that is reported
STATE_SWEEP_ROWS: Final = 500  # rows removed in one step
STATE_SWEEP_TOPICS: Final = 256  # topics visited in one step
STATE_SWEEP_PAUSE_S: Final = 0.05  # between steps while there is more to remove
STATE_SWEEP_IDLE_S: Final = 5.0  # between steps otherwise

# keys that settings name
KEY_BYTES_MAX: Final = 4 * KIB  # what is read of a file, or of the output of a command
KEY_COMMAND_S: Final = 30.0  # for a command to print a key

# log
LOG_SEGMENT_BYTES: Final = 64 * MIB  # (setting) size at which a segment is sealed and the next one started
LOG_SEGMENTS_MIN: Final = 3  # segments that must fit below `log.disk_bytes_max`: one is read while the next is written
LOG_SEGMENT_AGE_S: Final = 3600.0  # (setting) age at which a segment is sealed
LOG_BUFFERED_BYTES_MAX: Final = 32 * MIB  # records that wait for the disk, besides the block being written
LOG_BLOCK_BYTES: Final = 4 * MIB  # approximate size of a block
LOG_CALL_BYTES_MAX: Final = 64 * MIB  # records of one call of `append`
LOG_RECORD_OVERHEAD_BYTES: Final = 256  # counted for a record besides its frame
LOG_BLOCK_BYTES_MAX: Final = 512 * MIB  # a block header that claims more is damaged
LOG_REPEAT_BYTES_MIN: Final = 16 * KIB  # a frame of at least this size is deduplicated within its segment
LOG_REPEAT_HEAD_BYTES: Final = KIB  # of such a frame, always written
LOG_REPEAT_STEP_BYTES: Final = 4 * KIB  # the tail that is compared is a multiple of this
LOG_REPEATS_MAX: Final = 4096  # large frames of a segment that are remembered
LOG_RETRY_FIRST_S: Final = 0.1  # first pause after a failed write; it doubles each time
LOG_RETRY_MAX_S: Final = 5.0  # longest such pause
LOG_POLL_S: Final = 0.02  # between two looks of a reader at the end of the log
LOG_VIEW_POLL_S: Final = 0.25  # between two looks of a reader for records that are known to be committed
LOG_CLOSE_S: Final = 30.0  # for the last blocks to reach the disk
LOG_KEEP_DAYS: Final = 30.0  # (setting) age at which segments are removed
LOG_LINGER_S: Final = 0.005  # longest time that a record that nobody waits for waits for others
LOG_RETENTION_EVERY_S: Final = 60.0  # between two runs of retention
LOG_SCRUB_BYTES_MAX: Final = 1024 * MIB  # newest sealed segments that are checked in full after a crash
LOG_INDEX_CPU_SHARE: Final = 0.1  # of one processor, to build lookup indexes
LOG_INDEX_BUSY_CPU_SHARE: Final = 0.02  # the same while segments fill up faster than that
LOG_INDEX_CLOSE_S: Final = 1.0  # for the thread that builds them to end
LOG_CONSUMERS_MAX: Final = 256  # consumers of one log
LOG_CONSUMER_CHARS_MAX: Final = 64  # name of a consumer
LOG_DAMAGES_MAX: Final = 1000  # damages that one reader remembers

# gold
GOLD_MERGE_EVERY_S: Final = 4.0  # between two merges into the gold tables, in a running job
GOLD_CHECK_EVERY_S: Final = 30.0  # between two checks of the files that the ledger is about
GOLD_SKETCH_K: Final = 200  # of latency sketches: about how many values one holds; the ranks are 1.33 % off at most
GOLD_FILE_MINUTES: Final = 10  # minutes of gold rows in one file, while they change
GOLD_FILE_BYTES: Final = 8 * MIB  # size up to which the files of a day that is over are joined
GOLD_DEVICES_PER_FILE: Final = 4096  # rows of gold.device_latest in one file; beyond this it is split
GOLD_REBUILD_DAYS: Final = 8  # days of gold rows computed again in one step
GOLD_REBUILD_BYTES: Final = 256 * MIB  # files of one task that computes gold rows again

# console
CONSOLE_LIVE_S: Final = 1.0  # between two live snapshots
CONSOLE_WATCHERS_MAX: Final = 100  # pages that follow them at once
CONSOLE_FORM_BYTES_MAX: Final = 8 * KIB  # one form
CONSOLE_QUARANTINE_RECORDS_MAX: Final = 500  # records of the log that are not in the tables yet
CONSOLE_QUARANTINE_GROUPS_MAX: Final = 200  # groups by protocol and reason
CONSOLE_QUARANTINE_SHOWN: Final = 10  # newest entries of one group
CONSOLE_SAMPLES_BYTES_MAX: Final = 2 * MIB  # frames of an unknown protocol, as a form
CONSOLE_ANALYSES_MAX: Final = 1  # of such frames at once
CONSOLE_ANALYSIS_S: Final = 2.0  # for one: it takes time from the gateway

# tracing one message
TRACE_SEARCHED_MAX: Final = 2_000_000  # records of the log that are read, because an index names them or has none
TRACE_SEARCH_S: Final = 5.0  # for the search
TRACE_RANGES_MAX: Final = 300  # places in the log that are read for one key, half of them from each end
TRACE_STEP_RECORDS: Final = 16 * KIB  # records of one step back from the end of the log
TRACE_NEAR_RECORDS: Final = 2048  # records between a frame and the publish that it caused
TRACE_SLACK_US: Final = 2_000_000  # difference allowed between the times of the log and of the state
TRACE_RECORDS_MAX: Final = 2000  # records of the log about one message or session
TRACE_EVENTS_MAX: Final = 500  # events on one timeline
TRACE_RECIPIENTS_MAX: Final = 100  # recipients named for one delivery
TRACE_FRAME_BYTES_MAX: Final = 512  # bytes shown of one frame
TRACE_ROWS_MAX: Final = 100  # rows of one table
TRACE_VALUE_CHARS_MAX: Final = 1024  # one value of a row
TRACE_TABLES_S: Final = 10.0  # for the query of the tables

# lake
LAKE_SQL_CHARS_MAX: Final = 64 * KIB  # one query
LAKE_ROWS: Final = 1000  # rows of a result, if the query names no number
LAKE_ROWS_MAX: Final = 100_000  # rows of a result
LAKE_ROWS_AT_ONCE: Final = 64  # rows fetched from DuckDB in one step
LAKE_ANSWER_BYTES_MAX: Final = 32 * MIB  # a result as JSON
LAKE_MEMORY_MIB_MAX: Final = 1024  # memory of DuckDB for one query
LAKE_QUERY_S: Final = 30.0  # for one query
LAKE_THREADS_MAX: Final = 2  # threads of DuckDB for one query
LAKE_PROCESS_EXTRA_MIB: Final = 512  # memory of a query process beyond that of DuckDB: the interpreter and the result
LAKE_PROCESS_KEEP_MIB: Final = 512  # a query process that holds more after a query is replaced before the next
LAKE_PROCESS_NICE: Final = 5  # niceness of query processes: they yield to the gateway
LAKE_PROCESS_START_S: Final = 30.0  # for a query process to start
LAKE_PROCESS_IDLE_S: Final = 60.0  # without a query, after which a query process exits
LAKE_PROCESS_REUSE_S: Final = 50.0  # since its last query, during which it gets another: later it may be about to exit
LAKE_KILL_GRACE_S: Final = 1.0  # beyond the time limit, in which a query process can still report it itself
LAKE_REPLY_EXTRA_BYTES: Final = MIB  # a reply beyond its rows: columns, or an error
LAKE_COMMIT_ATTEMPTS_MAX: Final = 10  # attempts at one commit while others commit too
LAKE_COMMIT_THREADS: Final = 4  # tables to which a batch is committed at the same time
LAKE_CHECKPOINT_COMMITS: Final = 20  # commits between two checkpoints of a Delta log; all since the last are read
LAKE_STATISTICS_CHARS_MAX: Final = 64  # of a text in the statistics of a file
LAKE_HISTORY_DAYS: Final = 7  # (setting) how long versions and replaced files are kept, for downstream streams
LAKE_HISTORY_REPLACED_DAYS: Final = 1 / 12  # the same for gold tables and open rows, which are replaced all the time
LAKE_VERSIONS_MAX: Final = 10_000  # of a table, however young they are: each checkpoint lists all that are kept
LAKE_LEASE_S: Final = 15.0  # a lock in an object store that is not renewed for so long is free
LAKE_LEASE_RENEW_S: Final = 4.0  # between two renewals of such a lock
LAKE_LEASE_POLL_S: Final = 0.1  # between two attempts at such a lock
LAKE_LOCK_WAIT_S: Final = 600.0  # for such a lock, while others hold it
LAKE_REQUEST_S: Final = 60.0  # for one request to an object store, with its retries
LAKE_REQUEST_ATTEMPTS_MAX: Final = 8  # attempts at one request to an object store
LAKE_PART_BYTES: Final = 8 * MIB  # of an upload to an object store; smaller files are uploaded in one request
LAKE_PARTS_AT_ONCE: Final = 4  # requests at once of such an upload
LAKE_WHOLE_BYTES: Final = 8 * MIB  # files up to this size are read from an object store in one request
LAKE_DELETES_AT_ONCE: Final = 1000  # files of one request that deletes some
LAKE_FILE_BYTES: Final = 64 * MIB  # size up to which small files are joined
LAKE_COMPACT_FILES_MIN: Final = 8  # small files of one group before a running job joins them
LAKE_COMPACT_EVERY_BATCHES: Final = 30  # batches between two searches for such files
LAKE_VACUUM_EVERY_COMPACTIONS: Final = 20  # compactions between two searches for files that are no longer needed

# broker
BROKER_CHANNELS_MAX: Final = 1_000_000  # live topics with a subscriber
BROKER_PATTERNS_MAX: Final = 4096  # patterns of all sessions: each publish on a live topic is matched with all of them
BROKER_PATTERNS_PER_PEER_MAX: Final = 256  # patterns of one session
BROKER_TURN_NOTIFICATIONS_MAX: Final = 4096  # notifications of one live topic buffered before they are written
BROKER_CALLS_OPEN_MAX: Final = 100_000  # requests without a response yet
BROKER_SERVICES_PER_PEER_MAX: Final = 1024  # services that one session provides
BROKER_SUBSCRIPTIONS_MAX: Final = 100_000  # subscriptions to services, of all sessions
BROKER_SUBSCRIPTIONS_PER_PEER_MAX: Final = 1024  # subscriptions to services, of one session
BROKER_GROUPS_PER_SERVICE_MAX: Final = 16  # groups in which one session provides a service
BROKER_CALL_S: Final = 5.0  # (setting) timeout of a request that names none
BROKER_CALL_MS_MAX: Final = 600_000  # longest timeout that a request may name
BROKER_RESEND_S: Final = 30.0  # (setting) after which an unacked notification is sent again on the same connection
BROKER_IMPLICIT_ACK_S: Final = 30.0  # (setting) after which what has drained to a peer without acks counts as acked
BROKER_IMPLICIT_ACK_TICK_S: Final = 0.2  # between two checks of peers without acks
BROKER_IMPLICIT_ACK_PEERS: Final = 1000  # peers checked each time
BROKER_CATCH_UP_ROWS: Final = 256  # notifications that a consumer that is behind gets in one turn
BROKER_CATCH_UP_S: Final = 0.005  # time for all consumers that are behind, in one turn
BROKER_CATCH_UP_BYTES: Final = 256 * KIB  # content that a consumer that is behind gets in one turn
BROKER_RUNS_PER_PAUSE: Final = 16  # runs into which what is written during one pause before a resend is divided
BROKER_MISSED_TOPICS_MAX: Final = 4096  # topics whose newest notification is held for a slow subscriber, if conflated
BROKER_TIMEOUTS_AT_ONCE: Final = 2048  # requests that are failed at once: those of a broadcast time out together
BROKER_CALLS_OVER_MAX: Final = 4096  # timers of requests that are over, before they are cleared away
BROKER_BACKLOG_ROWS: Final = 256  # notifications in one response to a request for the backlog
BROKER_BACKLOG_BYTES: Final = 64 * KIB  # their content
BROKER_TOPIC_CHARS_MAX: Final = 256  # name of a topic or a service
BROKER_REPORTING_DEVICES_MAX: Final = 200_000  # devices whose newest readings are held; those first seen go first
BROKER_DEVICES_PER_PEER_MAX: Final = 4096  # devices that one session reports and takes commands for
BROKER_TOPICS_PER_REQUEST_MAX: Final = 1024  # topics that one request may name

# who may do what
ACCESS_PATTERN_CHARS_MAX: Final = 512  # a pattern of a role
ACCESS_IDENTITIES_MAX: Final = 100_000  # identities, or combinations of roles, whose rights are cached
ACCESS_DECISIONS_MAX: Final = 4096  # decisions cached for one identity
ACCESS_TARGET_CHARS_MAX: Final = 2048  # of a target in a cached decision, and in the record of a refusal
ACCESS_COUNTED_MAX: Final = 1000  # pairs of identity and action whose refusals are counted separately
AUDIT_SQL_CHARS_MAX: Final = 4096  # of a statement in the record of a query
AUDIT_ERROR_CHARS_MAX: Final = 512  # of an error in the record of what failed
AUDIT_CHANGES_MAX: Final = 100  # settings that a reload changed, in its record

# gateway
GATEWAY_TIMER_GRAIN_S: Final = 0.05  # deadlines this close to each other run together
GATEWAY_RETRY_S: Final = 1.0  # until a deadline whose handling failed, or a failed accept, is retried
GATEWAY_BUSY_PAUSE_S: Final = 0.05  # pause of a connection or a job while the log is behind
# One turn of the event loop. So many frames, each with a response, still fit the log above GATEWAY_LOG_BEHIND.
GATEWAY_TURN_S: Final = 0.005  # event-loop time for the frames of one connection, and for all queued work
GATEWAY_THREAD_SWITCH_S: Final = 0.0005  # longest wait of the log's writer for the event loop's interpreter lock
GATEWAY_SHARE_S: Final = 0.005  # event-loop time in one window for all connections of one identity that need not queue
GATEWAY_SHARE_WINDOW_S: Final = 0.02  # length of that window
GATEWAY_TURN_FRAMES: Final = 2048  # approximate frames of one read, estimated by the length of the last ones
GATEWAY_TURN_BYTES_MAX: Final = 256 * KIB  # bytes of one read, at most
GATEWAY_TURN_BYTES_MIN: Final = 4 * KIB  # bytes of one read, at least
GATEWAY_CUT_BYTES: Final = 32 * KIB  # bytes split into frames at once: the number of frames is known only afterwards
GATEWAY_MESSAGES_CUT_BYTES: Final = 4 * KIB  # the same for WebSocket frames, which cost far more each
GATEWAY_LOG_BEHIND: Final = 0.75  # share of LOG_BUFFERED_BYTES_MAX at which the gateway stops reading
GATEWAY_LINGER_S: Final = 1.0  # for a peer whose bytes cannot be decoded to receive the error
GATEWAY_TROUBLE_LOG_S: Final = 10.0  # between two log lines about the same trouble
GATEWAY_UNPUBLISHED_PER_DEVICE_MAX: Final = 64  # unpublished commands of a device that wait for their repeats
GATEWAY_TLS_BUFFERS: Final = 2  # invisible buffers of a TLS transport, as a multiple of pending_bytes
GATEWAY_STOP_S: Final = 10.0  # from the signal to the exit
GATEWAY_CONNECTIONS_MAX: Final = 20_000  # (setting) connections
GATEWAY_CONNECTIONS_PER_ADDRESS_MAX: Final = 12_000  # (setting) connections of one address
GATEWAY_UNAUTHENTICATED_SHARE: Final = 0.25  # (setting) share of the connections for peers without a login
GATEWAY_UNAUTHENTICATED_PER_ADDRESS_SHARE: Final = 0.5  # share of those for one address
GATEWAY_UNAUTHENTICATED_BYTES_MAX: Final = 64 * MIB  # (setting) memory of all peers without a login
GATEWAY_UNAUTHENTICATED_RECORDS: Final = 2000  # (setting) records of the log per second, on average, that they cause
GATEWAY_UNAUTHENTICATED_LOG_BYTES: Final = 512 * KIB  # (setting) bytes of frames per second, on average, likewise
GATEWAY_QUOTA_BURST_S: Final = 10.0  # seconds of that quota that may be used at once
GATEWAY_QUOTA_WAIT_S: Final = 5.0  # a peer that would have to wait longer for its quota is closed
GATEWAY_QUOTA_ADDRESSES_MAX: Final = 10_000  # addresses with a quota; the least recently seen are forgotten
GATEWAY_KEEPALIVE_S: Final = 60  # silence before a TCP keepalive probe of an accepted peer, and between two probes
GATEWAY_KEEPALIVE_PROBES: Final = 3  # probes without a response after which the connection is dead
GATEWAY_TLS_HANDSHAKE_S: Final = 10.0  # (setting) from an accepted connection to a finished handshake
GATEWAY_STREAM_LOOK_S: Final = 60.0  # between two checks whether a stream of packets is closed
GATEWAY_BACKLOG: Final = 4096  # connections that the operating system queues before they are accepted
GATEWAY_FRAMES_PER_SECOND: Final = 200_000  # (setting) frames of one connection
GATEWAY_BYTES_PER_SECOND: Final = 64 * MIB  # (setting) bytes of one connection
GATEWAY_PENDING_BYTES: Final = MIB  # (setting) bytes written to one connection that the peer has not read
GATEWAY_STALL_S: Final = 60.0  # (setting) for a peer to read half of its pending bytes, before it is closed
GATEWAY_STALLED_BYTES_MAX: Final = 512 * MIB  # (setting) pending bytes of all peers that do not read
GATEWAY_STALL_LOOK_S: Final = 0.02  # first pause between two checks of a peer that does not read; it doubles
GATEWAY_STALL_LOOK_MAX_S: Final = 1.0  # longest such pause
GATEWAY_JOB_INLINE_S: Final = 0.001  # a request that takes no longer is not queued
GATEWAY_JOBS_MAX: Final = 4096  # long requests at once
GATEWAY_JOBS_PER_SHARE_MAX: Final = 256  # long requests of one identity, or of one address before the login
GATEWAY_FAILED_LOGINS_MAX: Final = 10  # (setting) failed logins of one name from one address before a delay
GATEWAY_FAILED_LOGINS_KEPT_MAX: Final = 100_000  # pairs of address and name with failed logins that are remembered
GATEWAY_LOGIN_DELAY_S: Final = 0.5  # first delay; it doubles
GATEWAY_LOGIN_DELAY_MAX_S: Final = 30.0  # longest delay
GATEWAY_LOGIN_DELAY_SHARE: Final = 0.5  # share of a protocol's login timeout that a delay never exceeds
GATEWAY_LOGIN_FORGET_S: Final = 300.0  # without a failure, after which a name from an address has no delay
GATEWAY_LOGINS_CHECKED_MAX: Final = 2  # checks with scrypt at once: one costs tens of milliseconds of a core
GATEWAY_LOGINS_WAITING_MAX: Final = 10_000  # logins that wait for such a check
GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX: Final = 256  # those of one address: about as many as fit a login timeout
GATEWAY_LOGINS_PER_NAME_MAX: Final = 16  # open logins with different tokens, of one name from one address
GATEWAY_COUNTERS_EVERY_S: Final = 10.0  # between two records of the counters in the log
QUARANTINE_BYTES_MAX: Final = 64 * KIB  # bytes quarantined for one error
GATEWAY_DATAGRAM_BYTES: Final = 1200  # packets to a device that are joined into one datagram
GATEWAY_DEVICES_MAX: Final = 200_000  # devices that sent something within the last hour
DEVICE_COMMAND_CHARS_MAX: Final = 64  # name of a command
DEVICE_READINGS_MAX: Final = 256  # readings of one message, and newest ones held of one device
DEVICE_SEALS_SAVE_S: Final = 1.0  # between two saves of the sealed commands seen: a crash forgets no more than that
DEVICE_IDLE_S: Final = 3600.0  # (setting) a silent device is forgotten; its next frame starts a new session
DEVICE_LOGIN_S: Final = 10.0  # (setting) over TCP, from connecting to the first frame of a known device
DEVICE_HALF_FRAME_S: Final = 10.0  # (setting) over TCP, from a frame's first byte to its last
DEVICE_BATCH_FRAMES_MIN: Final = 16  # frames of devices that are offered as one batch
DEVICE_BATCH_FRAMES_MAX: Final = 1024  # the same, after batches that were taken whole
UDP_IDLE_S: Final = 600.0  # without a datagram, after which the session of a source address ends
UDP_IDLE_CHECK_S: Final = 5.0  # between two searches for such sessions
UDP_WAITING_BYTES_MAX: Final = 256 * KIB  # datagrams of one source that wait to be read; more are dropped
UDP_DATAGRAM_BYTES_MAX: Final = 65_507  # payload of a datagram over IPv4

# broadcasts to devices
BROADCASTS_OPEN_MAX: Final = 2  # broadcasts at once: each has a call for every device, and calls have a limit
BROADCAST_DEVICES_MAX: Final = 10_000  # devices that one is sent to
BROADCAST_DEVICES_AT_ONCE: Final = 16  # devices sent to without interruption
BROADCAST_SERIALS_AT_ONCE: Final = 1024  # serials searched for offline devices without interruption
# The lists in the answer, as JSON. Together they fit into a message of every protocol that can request a broadcast.
BROADCAST_ANSWERS_BYTES_MAX: Final = 512 * KIB
BROADCAST_UNANSWERED_BYTES_MAX: Final = 256 * KIB

# fetching by HTTP
FETCH_S: Final = 10.0  # (setting) for one request, with its wait and its redirects
FETCH_BYTES_MAX: Final = 4 * MIB  # (setting) body of a response
FETCH_OPEN_MAX: Final = 32  # (setting) requests at once
FETCH_REDIRECTS_MAX: Final = 3  # (setting) redirects of one request
FETCH_WAITING_MAX: Final = 1024  # requests open or queued
FETCH_HEAD_BYTES_MAX: Final = 64 * KIB  # status line and headers of a response
FETCH_HEADERS_MAX: Final = 64  # headers of a request, and headers of a response that are returned
FETCH_HEADERS_BYTES_MAX: Final = 16 * KIB  # headers of a request
FETCH_URL_CHARS_MAX: Final = 8 * KIB  # a URL, and a query
FETCH_ERROR_CHARS: Final = 200  # shown of what a server reports as an error

# upstreams
UPSTREAM_CONNECT_S: Final = 10.0  # for one attempt to connect
UPSTREAM_LOGIN_S: Final = 20.0  # from a connection to an accepted login
UPSTREAM_BACKOFF_FIRST_S: Final = 0.2  # first bound of the pause before a reconnect; it doubles
UPSTREAM_BACKOFF_MAX_S: Final = 30.0  # longest pause
UPSTREAM_STEADY_S: Final = 10.0  # a connection that lasted this long resets the pause
UPSTREAM_KEEP_S: Final = 10.0  # (setting) age up to which packets are held for requests that join later
UPSTREAM_KEPT_BYTES_MAX: Final = 16 * MIB  # packets held for one upstream; beyond this, the oldest are dropped
UPSTREAM_REQUESTS_OPEN_MAX: Final = 192  # open requests to one upstream: leaves room for pings in a session's limit
UPSTREAM_REQUESTS_WAITING_MAX: Final = 10_000  # queued requests to one upstream; beyond this, requests are refused
UPSTREAM_WAITING_BYTES_MAX: Final = 64 * MIB  # their content
UPSTREAM_CLOSE_S: Final = 5.0  # for the other side to read the last bytes of a connection that is being closed
UPSTREAM_SUBSCRIBERS_MAX: Final = 100_000  # subscribers of all subscriptions to one upstream

# clients
CLIENT_CONNECT_S: Final = 10.0  # for one attempt to connect; (argument) for the first connection
CLIENT_BACKOFF_FIRST_S: Final = 0.2  # first bound of the pause before a reconnect; it doubles
CLIENT_BACKOFF_MAX_S: Final = 30.0  # longest pause
CLIENT_STEADY_S: Final = 10.0  # a connection that lasted this long resets the pause
CLIENT_KEEPALIVE_S: Final = 20  # silence before a TCP keepalive probe, and between two probes
CLIENT_KEEPALIVE_PROBES: Final = 3  # probes without a response after which the connection is dead
CLIENT_ANSWER_S: Final = 30.0  # (argument) for a response, including the wait for a connection
CLIENT_ANSWERS_WAITING_MAX: Final = 1024  # requests without a response yet
CLIENT_INBOX_MAX: Final = 1024  # (argument) notifications that wait for the program; beyond this, nothing is read
CLIENT_INBOX_OVERDRAFT: Final = 4  # times that many while a response is awaited; beyond this, the newest are dropped
CLIENT_READ_BYTES: Final = 4 * KIB  # bytes decoded between two checks of the inbox
CLIENT_WRITE_BYTES_MAX: Final = 256 * KIB  # bytes that the network has not taken; beyond this, requests wait
CLIENT_ACKS_WAITING_MAX: Final = 65_536  # automatic acks; beyond this, the oldest are not sent, and come again
CLIENT_CLOSE_S: Final = 5.0  # for the last acks and bytes
CLIENT_SERVED_MAX: Final = 64  # requests that a device or a service handles at once; beyond this, requests are refused
CLIENT_ANSWER_PACKETS_MAX: Final = 1024  # packets of one response
CLIENT_FEEDS_MAX: Final = 1024  # subscriptions of one client to the records of a service
CLIENT_MANGLED_MAX: Final = 64  # datagrams that simulated faults hold back

# http
HTTP_HEAD_BYTES_MAX: Final = 64 * KIB  # request line and headers
HTTP_BODY_BYTES_MAX: Final = 24 * MIB  # body of one request: the content of a notification fits as base64
HTTP_BODIES_BYTES_MAX: Final = 128 * MIB  # bodies of all open requests whose sender is authenticated
HTTP_UNKNOWN_BODIES_BYTES_MAX: Final = 32 * MIB  # bodies of all other open requests
HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX: Final = 4 * MIB  # those of one address
HTTP_DECODE_BYTES_MAX: Final = 256 * KIB  # bytes decoded in one request
HTTP_REQUEST_S: Final = 60.0  # from the first byte of a request to its last
HTTP_UNKNOWN_REQUEST_S: Final = 10.0  # the same, if the sender is not authenticated
HTTP_HEALTH_S: Final = 5.0  # the same, on a connection that is reserved for /healthz and /readyz
HTTP_HEALTH_CONNECTIONS_MAX: Final = 64  # such connections, beyond those that the limits admit
HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX: Final = 16  # those of one address
HTTP_KEEP_ALIVE_S: Final = 15  # between two requests of a connection
HTTP_DRAIN_S: Final = 30.0  # for a peer to read the last bytes of a connection that is being closed
HTTP_STOP_S: Final = 3  # for open requests when the gateway stops
HTTP_REQUESTS_OPEN_MAX: Final = 1024  # complete requests of authenticated senders without a response yet
HTTP_REFUSED_HANDSHAKES_MAX: Final = 64  # TLS handshakes of connections beyond the limit: they may still ask for health
HTTP_STREAMS_MAX: Final = 1000  # open subscriptions by HTTP
HTTP_NAME_CHARS_MAX: Final = 256  # name of an identity or a device: STATE_NAME_BYTES_MAX allows four bytes for each
HTTP_TOKEN_CHARS_MAX: Final = 1024  # a chosen token: STATE_TOKEN_BYTES_MAX allows four bytes for each
HTTP_STREAM_MS_MAX: Final = 86_400_000  # longest duration that a subscription by HTTP may name; without one, it lasts
HTTP_ACKS_MAX: Final = 1000  # ids in one request
HTTP_STREAM_PING_S: Final = 15.0  # silence on a stream before a ping is sent
HTTP_ROWS_AT_ONCE: Final = 64  # rows of a list built before others get their turn
HTTP_NAMES_AT_ONCE: Final = 1024  # names visited for a list before others get their turn
HTTP_LIST_ROWS: Final = 1000  # rows of a list, if the request names no number
HTTP_LIST_ROWS_MAX: Final = 10_000  # rows of a list
HTTP_DELIVERIES_SHOWN_MAX: Final = 1000  # subscribers of one notification in one response
HTTP_SUBSCRIBERS_SHOWN_MAX: Final = 1000  # subscribers of one topic in one response
HTTP_TOPIC_LAST_ROWS: Final = 50  # newest notifications of a topic in one response
HTTP_TOPIC_LAST_BYTES: Final = MIB  # content read for them; at least one is read
HTTP_TOPIC_CONTENT_CHARS: Final = 4096  # shown of each of them
HTTP_CALL_MS_MAX: Final = 300_000  # longest timeout of a request to a service
HTTP_COMMAND_MS: Final = 5000  # timeout of a command to a device, if the request names none
HTTP_COMMAND_MS_MAX: Final = 30_000  # longest timeout of a command to a device
HTTP_ANSWER_GRACE_S: Final = 1.0  # beyond the broker's timeout, which responds first
HTTP_ANSWER_PARTS_MAX: Final = 1024  # parts of one response of a service
HTTP_ROLES_MAX: Final = 64  # roles of one identity
HTTP_HASHES_MAX: Final = 2  # new tokens hashed at once: one costs tens of milliseconds of a core
HTTP_BARE_TOKENS_MAX: Final = 64  # newest identities that a chosen token without a name is compared with
HTTP_LOGIN_S: Final = 10.0  # from a request with a token to its response, including any delay
HTTP_BARE_TOKENS_KNOWN_MAX: Final = 4096  # tokens without a name whose identity is remembered
HTTP_LOG_ROWS: Final = 50  # records of the log in one response, if the request names no number
HTTP_LOG_ROWS_MAX: Final = 1000  # records of the log in one response
HTTP_LOG_FRAME_BYTES_MAX: Final = 64 * KIB  # frame of one record
HTTP_LOG_SEARCHED_MAX: Final = 200_000  # records searched for those that match
HTTP_VISITS_MAX: Final = 1000  # browsers that are logged in
HTTP_VISIT_S: Final = 12 * 3600.0  # after which a browser has to log in again
HTTP_QUERIES_MAX: Final = 2  # queries of the tables at once
HTTP_TRACES_MAX: Final = 4  # traces at once
HTTP_TICK_S: Final = 1.0  # between two measurements of the event loop's lag

# pipeline
ARCHIVE_COMPILE_S: Final = 600.0  # to compile all kernels for an archive
WHEEL_BUILD_S: Final = 120.0  # to build the wheel for the cluster
JAVA_ANSWER_S: Final = 20.0  # for Java to print its version
PIPELINE_DRIVER_MEMORY_MB: Final = 1024  # memory of the driver's JVM; with a local master also that of the tasks
PIPELINE_PARTITION_ROWS: Final = 250_000  # (option) records that one task reads, if there are many
PIPELINE_PARTITION_BYTES: Final = 64 * MIB  # the same in bytes on disk
PIPELINE_BATCH_ROWS: Final = 1_000_000  # (option) records of one batch of a stream
PIPELINE_BATCH_BYTES: Final = 256 * MIB  # (option) the same in bytes on disk
PIPELINE_CHUNK_ROWS: Final = 64 * KIB  # approximate records decoded in one call
PIPELINE_CHUNK_BYTES: Final = 16 * MIB  # the same in bytes
PIPELINE_HANDED_ROWS: Final = 4 * KIB  # records of one Arrow batch given to Spark, at least: small blocks are joined
PIPELINE_VIEW_WAIT_S: Final = 10.0  # for records and files of another machine to become visible, before the batch fails
PIPELINE_LOG_COPIES_KEEP_S: Final = 7 * 86_400.0  # a sealed segment's copy for remote executors is removed then
PIPELINE_MANIFESTS_KEPT: Final = 64  # newest batches whose commits can be repeated
PIPELINE_TRIGGER_S: Final = 0.5  # (option) between the starts of two batches, if there is little to do
PIPELINE_TRIGGER_S_MIN: Final = 0.1  # shortest such interval
PIPELINE_STOP_S: Final = 20.0  # for the current batch to end when the job is stopped
PIPELINE_RESTART_FIRST_S: Final = 1.0  # first pause after a failure; it doubles each time
PIPELINE_RESTART_MAX_S: Final = 60.0  # longest such pause
PIPELINE_ONCE_ATTEMPTS_MAX: Final = 4  # attempts at a batch that fails, in a job that ends by itself
PIPELINE_POISON_MAX: Final = 64  # records of one batch that may break the job; beyond this, the cause is elsewhere
PIPELINE_ERRORS_SHOWN: Final = 5  # newest failures shown
PIPELINE_ERROR_CHARS_MAX: Final = 500  # text of one failure
PIPELINE_FRESH_S: Final = 60.0  # older figures of a job are not exported as metrics
PIPELINE_SNAPSHOT_S: Final = 60.0  # for the current batch to be in every table before history is read
PIPELINE_REDECODE_UNITS: Final = 2  # units of work for each core in one job of a redecode
PIPELINE_BUCKETS: Final = 4  # buckets of a checkpoint of a version in which their number could not change
PIPELINE_BUCKETS_MAX: Final = 256  # buckets into which the stateful part is divided, one task each
PIPELINE_STATE_FILE_BYTES: Final = 64 * KIB  # smaller files of a bucket's state are joined with the next one
PIPELINE_STATE_JOIN_FACTOR: Final = 2  # a file so many times as large as what follows it is left as it is
PIPELINE_STATE_FILES_MAX: Final = 32  # files of the state of one bucket
PIPELINE_STATE_CACHE_FILES: Final = 64  # files of bucket states that a worker holds
PIPELINE_STATE_CACHE_BYTES: Final = 256 * MIB  # the same in bytes
PIPELINE_OPEN_FILE_ROWS: Final = 4 * KIB  # open rows of one bucket in one file, if there are not very many
PIPELINE_OPEN_FILE_ROWS_MIN: Final = 256  # a file with fewer is joined with what is new
PIPELINE_OPEN_FILES: Final = 64  # files into which the open rows of one bucket are divided, if there are very many

# pipeline: what is open in one bucket. Beyond the count, or the age by event time, the oldest is closed.
PIPELINE_CLOCK_STEP_S: Final = 10.0  # how far clocks may step back: for so long a timeout can be undone
PIPELINE_COMMANDS_OPEN_MAX: Final = 65_536  # commands being reassembled
PIPELINE_COMMANDS_OPEN_BYTES_MAX: Final = 64 * MIB  # their packets
PIPELINE_CALLS_OPEN_MAX: Final = 262_144  # requests without a response yet
PIPELINE_CALL_AGE_S: Final = 3600.0  # age of a request without a response
PIPELINE_DELIVERIES_OPEN_MAX: Final = 4_194_304  # deliveries without an ack yet
PIPELINE_DELIVERY_AGE_S: Final = 30 * 24 * 3600.0  # age of a delivery without an ack
PIPELINE_EXPIRED_KEEP_S: Final = 3600.0  # how long after the expiry an ack can still correct it
PIPELINE_ACKED_KEEP_S: Final = 24 * 3600.0  # how long the acks of an identity are remembered after its last one
PIPELINE_ACKED_IDENTITIES_MAX: Final = 1_048_576  # identities whose acks are remembered
PIPELINE_ACKED_RUNS_MAX: Final = 64  # runs of acked positions of one topic
PIPELINE_SESSIONS_OPEN_MAX: Final = 1_048_576  # sessions that are not closed
PIPELINE_EARLY_READING_S: Final = 600.0  # from a reading to the login of its session: without one it was refused
PIPELINE_EARLY_READINGS_MAX: Final = 100_000  # readings of one bucket that wait for a login; the oldest are dropped
PIPELINE_SESSION_AGE_S: Final = 90 * 24 * 3600.0  # age of a session that is not closed
PIPELINE_LAYOUT_SESSIONS_MAX: Final = 65_536  # sessions whose table layouts are remembered
PIPELINE_LAYOUTS_MAX: Final = 65_536  # tables that were created
PIPELINE_COUNTER_HOURS_MAX: Final = 24 * 366  # pairs of hour and protocol between two records of the counters

# captures
CAPTURE_PACKET_BYTES_MAX: Final = 1 * MIB  # one packet in a file, or one block of pcapng
CAPTURE_FRAGMENTED_PACKETS_MAX: Final = 1024  # IP packets that wait for fragments
CAPTURE_FRAGMENT_S: Final = 60.0  # between the first and the last fragment of a packet
CAPTURE_WINDOW_BYTES_MAX: Final = 1 << 30  # between two segments of one connection: the largest window of TCP
CAPTURE_WAITING_BYTES_MAX: Final = 4 * MIB  # of one direction behind a missing segment, before it counts as a gap
CAPTURE_FLOWS_MAX: Final = 65_536  # connections at once; beyond this, the one that was silent longest ends
CAPTURE_CHOOSE_BYTES_MAX: Final = 16 * KIB  # of a connection, from which its protocol is identified
CAPTURE_IDENTIFY_BITS: Final = 24.0  # evidence for a protocol that neither a port nor an option names
CAPTURE_RESYNC_BITS: Final = 24.0  # evidence for a frame that begins at a segment after a gap
CAPTURE_TRIAL_BYTES_MAX: Final = 64 * KIB  # of one direction, in which such a frame is searched for
CAPTURE_TRIAL_PIECES_MAX: Final = 32  # the same in segments
CAPTURE_HANDSHAKE_BYTES_MAX: Final = 64 * KIB  # of a WebSocket
CAPTURE_MESSAGE_BYTES_MAX: Final = 64 * MIB  # of a WebSocket, after decompression
CAPTURE_COMMIT_BYTES: Final = 4 * MIB  # frames written to the log before waiting for the disk
CAPTURE_COMMIT_S: Final = 60.0  # for that
CAPTURE_SAMPLES_BYTES_MAX: Final = 64 * MIB  # read of a capture for the workbench
CAPTURE_LEFT_OUT_SHOWN_MAX: Final = 1000  # connections that the report lists one by one
CAPTURE_COUNTED_HOURS_MAX: Final = 1024  # pairs of hour, protocol and direction, after which the counters are written
