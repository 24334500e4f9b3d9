"""The whole exception tree. Each class says whose fault it is and where.

WirelakeError
├── ProtocolError      the peer: bytes on the wire break the protocol, at `offset`
│   ├── LimitError     the peer: a length or count above a named limit
│   └── SealError      the peer: a seal (HMAC, GCM tag, CRC of sealed data) does not hold
├── EncodeError        ours: a frame that the wire format cannot hold
├── StateError         ours: something asked of a session that its state does not allow
├── TranslationError   ours: a message that this protocol cannot carry
├── StorageError       the machine's: what must be kept cannot be written or read; nothing confirmed is lost
│   ├── BusyError      more waits for the disk than the limit allows: refuse work, try later
│   ├── FullError      a named limit on how much is kept is reached
│   ├── InUseError     another process has it open for writing
│   ├── LossError      something confirmed is missing from the data folder, or its parts do not belong together
│   ├── LogWriteError  a block of the log is not on disk; nothing in it was confirmed
│   ├── GoneError      retention removed what was asked for; `oldest_seq` is the first that is left
│   ├── MissingRecordsError  records that are committed cannot be read from here: a stale or wrong view of the log
│   ├── DamagedTableError    a file of a table is damaged or missing
│   └── VersionError   written by a later version, or by another program
├── ClientError        the other end's: what one of our clients asked of a gateway did not come about
│   ├── AnswerError    the answer is a failure, with the protocol's own `code`
│   ├── LostError      the connection ended before the answer came
│   ├── LateError      no answer in time
│   └── RefusedError   the gateway does not want this client; calling again would not help
├── FetchError         the other end's: an HTTP server's answer cannot be used
└── InputError         the user's: a word on the command line, a file, a setting
    ├── ConflictError  something of that name is there already
    ├── WrongTypeError  a redis command for another type of value than the key has
    └── UnknownProtocolError
"""


class WirelakeError(Exception):
    """Everything Wirelake raises on purpose."""


class ProtocolError(WirelakeError):
    """Bytes from the peer that break the protocol.

    `code` is short and stable: it is a metric label and the quarantine's `reason`.
    `offset` counts from the first byte of whatever was handed in: a frame, or a stream.
    """

    def __init__(self, code: str, text: str, offset: int) -> None:
        super().__init__(code, text, offset)
        self.code = code
        self.text = text
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.text} (byte {self.offset}, {self.code})"

    def moved(self, by: int) -> "ProtocolError":
        """The same fault, counted from a place `by` bytes earlier."""
        return type(self)(self.code, self.text, self.offset + by)


class LimitError(ProtocolError):
    """A length or count above the limit that `code` names."""


class SealError(ProtocolError):
    """Sealed bytes that were changed on the way, or sealed with another key."""


class EncodeError(WirelakeError, ValueError):
    """A frame with a value that its wire format has no room for."""


class StateError(WirelakeError):
    """Something asked of a session that its state does not allow."""


class TranslationError(WirelakeError):
    """A message that a protocol cannot carry; the text says which part."""


class StorageError(WirelakeError):
    """What must be kept cannot be written or read: the disk is full, the folder read-only, a file damaged."""


class BusyError(StorageError):
    """More waits for the disk than the limit allows."""


class FullError(StorageError):
    """A named limit on how much is kept is reached; the text names it."""


class InUseError(StorageError):
    """Another process has it open for writing."""


class LossError(StorageError):
    """Something that was confirmed is missing and cannot be restored, or files do not belong together.

    The text says what, and what to do.
    """


class LogWriteError(StorageError):
    """The log could not put a block on disk. Whoever waits for it was not promised anything.

    The records are kept, within the limit, and written once that is possible again.
    """


class GoneError(StorageError):
    """A position that retention has removed."""

    def __init__(self, seq: int, oldest_seq: int) -> None:
        super().__init__(seq, oldest_seq)
        self.seq = seq
        self.oldest_seq = oldest_seq

    def __str__(self) -> str:
        return f"record {self.seq} was removed by retention; the oldest left is {self.oldest_seq}"


class MissingRecordsError(StorageError):
    """Committed records that cannot be read from here: the folder is not, or not yet, what the writer's machine has."""


class DamagedTableError(StorageError):
    """A table that cannot be read because one of its files is damaged or missing; the text names both."""


class VersionError(StorageError):
    """A file written by a later version, or by another program."""


class ClientError(WirelakeError):
    """What one of our clients asked of a gateway did not come about."""


class AnswerError(ClientError):
    """The gateway answered with a failure. `code` is the protocol's own number."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code

    def __str__(self) -> str:
        return f"{self.text} (error {self.code})"


class LostError(ClientError):
    """The connection ended before the answer came: whether the request was served is not known."""


class LateError(ClientError, TimeoutError):
    """No answer in time: whether the request was served is not known."""


class RefusedError(AnswerError):
    """The gateway does not want this client: a wrong token, or another connection of the same name."""


class FetchError(WirelakeError):
    """An HTTP server that somebody had us ask gave no answer that can be used."""


class InputError(WirelakeError):
    """Something the user wrote that cannot be used as it is."""


class ConflictError(InputError):
    """Something of that name is there already."""


class WrongTypeError(InputError):
    """A redis command for another type of value than the key has."""

    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class UnknownProtocolError(InputError):
    """A protocol name that is not in the registry."""
