"""Define the whole exception tree. Each class says whose fault it is, and where.

WirelakeError
├── ProtocolError      the peer: bytes on the wire break the protocol, at `offset`
│   ├── LimitError     the peer: a length or count above a named limit
│   └── SealError      the peer: a seal (HMAC, GCM tag, CRC of sealed data) does not match
├── EncodeError        ours: a frame that does not fit the wire format
├── StateError         ours: a call that the state of a session does not allow
├── TranslationError   ours: a message that cannot be encoded in this protocol
├── StorageError       the machine: data cannot be written or read; nothing confirmed is lost
│   ├── BusyError      more data waits for the disk than the limit allows: refuse work, try later
│   ├── FullError      a named limit on stored data is reached
│   ├── InUseError     another process has it open for writing
│   ├── LossError      confirmed data is missing from the data folder, or its parts do not belong together
│   ├── LogWriteError  a block of the log is not on disk; nothing in it was confirmed
│   ├── GoneError      retention removed the record; `oldest_seq` is the first that is left
│   ├── MissingRecordsError  committed records cannot be read from here: a stale or wrong view of the log
│   ├── DamagedTableError    a file of a table is damaged or missing
│   └── VersionError   written by a later version, or by another program
├── ClientError        the other end: a request of one of our clients failed
│   ├── AnswerError    the answer is an error, with the protocol's own `code`
│   ├── LostError      the connection ended before the answer arrived
│   ├── LateError      no answer in time
│   └── RefusedError   the gateway refuses this client; reconnecting would not help
├── AccessDeniedError  the peer: no role of its identity allows the action
├── FetchError         the other end: the answer of an HTTP server cannot be used
└── InputError         the user: an argument on the command line, a file, a setting
    ├── ConflictError  the name exists already
    ├── WrongTypeError  a redis command does not fit the type of the value
    └── UnknownProtocolError
"""


class WirelakeError(Exception):
    """Base class of everything that Wirelake raises on purpose."""


class ProtocolError(WirelakeError):
    """Bytes from the peer that break the protocol.

    `code` is short and stable: it is a metric label and the quarantine's `reason`.
    `offset` counts from the first byte of what was passed in: a frame, or a stream.
    """

    def __init__(self, code: str, text: str, offset: int) -> None:
        super().__init__(code, text, offset)
        self.code = code
        self.text = text
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.text} (byte {self.offset}, {self.code})"

    def shift(self, by: int) -> "ProtocolError":
        """Return the same error with an offset that counts from `by` bytes earlier."""
        return type(self)(self.code, self.text, self.offset + by)


class LimitError(ProtocolError):
    """A length or count above the limit that `code` names."""


class SealError(ProtocolError):
    """Sealed bytes that were changed in transit, or sealed with another key."""


class EncodeError(WirelakeError, ValueError):
    """A frame with a value that does not fit its wire format."""


class StateError(WirelakeError):
    """A call that the state of a session does not allow."""


class TranslationError(WirelakeError):
    """A message that cannot be encoded in a protocol; the text says which part."""


class StorageError(WirelakeError):
    """Data that cannot be written or read: the disk is full, the folder read-only, a file damaged."""


class BusyError(StorageError):
    """More data waiting for the disk than the limit allows."""


class FullError(StorageError):
    """A limit on stored data that is reached; the text names it."""


class InUseError(StorageError):
    """Data that another process has open for writing."""


class LossError(StorageError):
    """Confirmed data that is missing and cannot be restored, or files that do not belong together.

    The text says what is missing, and what to do.
    """


class LogWriteError(StorageError):
    """A block of the log that could not be written. Nothing in it was confirmed.

    The records stay in memory, within the limit, and are written once that is possible again.
    """


class GoneError(StorageError):
    """A record that retention has removed."""

    def __init__(self, seq: int, oldest_seq: int) -> None:
        super().__init__(seq, oldest_seq)
        self.seq = seq
        self.oldest_seq = oldest_seq

    def __str__(self) -> str:
        return f"record {self.seq} was removed by retention; the oldest left is {self.oldest_seq}"


class MissingRecordsError(StorageError):
    """Committed records that cannot be read from here, because the folder differs from that of the writer's machine."""


class DamagedTableError(StorageError):
    """A table that cannot be read because one of its files is damaged or missing; the text names both."""


class VersionError(StorageError):
    """A file written by a later version, or by another program."""


class ClientError(WirelakeError):
    """A request of one of our clients that failed."""


class AnswerError(ClientError):
    """An error that the gateway answered. `code` is the protocol's own number."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code

    def __str__(self) -> str:
        return f"{self.text} (error {self.code})"


class LostError(ClientError):
    """A connection that ended before the answer arrived: it is unknown whether the request was served."""


class LateError(ClientError, TimeoutError):
    """A request without an answer in time: it is unknown whether it was served."""


class RefusedError(AnswerError):
    """A client that the gateway refuses: a wrong token, or another connection of the same name."""


class AccessDeniedError(WirelakeError):
    """No role of an identity allows an action on a target, which it attempted so many times at once."""

    def __init__(self, identity: str, action: str, target: str, attempts: int = 1) -> None:
        super().__init__(identity, action, target, attempts)
        self.identity = identity
        self.action = action
        self.target = target
        self.attempts = attempts

    def __str__(self) -> str:
        return f"access denied: {self.action} {self.target}"


class FetchError(WirelakeError):
    """An HTTP server whose answer to a proxied request cannot be used."""


class InputError(WirelakeError):
    """User input that cannot be used as it is."""


class ConflictError(InputError):
    """A name that exists already."""


class WrongTypeError(InputError):
    """A redis command that does not fit the type of the value."""

    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class UnknownProtocolError(InputError):
    """A protocol name that is not in the registry."""
