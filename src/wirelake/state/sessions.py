"""Store sessions that may be resumed: a peer that reconnects in time and proves that it had the keys continues."""

from contextlib import closing
from typing import Final

from msgspec import Struct, json

from wirelake.commit import Commit
from wirelake.errors import FullError, InputError
from wirelake.limits import STATE_NAME_BYTES_MAX, STATE_SESSIONS_MAX, STATE_TOPICS_PER_IDENTITY_MAX
from wirelake.state.batch import Statement
from wirelake.state.database import StateReader
from wirelake.state.encryption import RESUME_SECRET, SecretCipher
from wirelake.state.schema import check_integer, check_name
from wirelake.state.writer import StateWriter

_SAVE: Final = Statement(
    "sessions",
    "INSERT OR REPLACE INTO sessions (sid, protocol, identity, until_ms, topics, resume_secret, token) VALUES ",
    "(?,?,?,?,?,?,?)",
)
_REMOVE: Final = Statement("sessions", "DELETE FROM sessions WHERE sid IN (", "?", ")")
_TOPICS: Final = json.Decoder(tuple[str, ...])


class ResumableSession(Struct, frozen=True):
    sid: bytes
    protocol: str
    identity: str  # empty before the login
    until_ms: int
    topics: tuple[str, ...]  # subscribed in this session, durable or live
    resume_secret: bytes = b""  # proves that the peer had the keys; empty for sessions of versions without proofs
    token: str = ""  # id of the token of its login; empty for sessions of earlier versions, and where none is needed

    def __repr__(self) -> str:
        return f"Session(protocol={self.protocol!r}, identity={self.identity!r}, until_ms={self.until_ms})"


class Sessions:
    """Keep all resumable sessions in memory, so that a resume is answered at once."""

    def __init__(self, writer: StateWriter, reader: StateReader, cipher: SecretCipher) -> None:
        self._writer = writer
        self._reader = reader
        self._cipher = cipher
        self._by_sid: dict[bytes, ResumableSession] = {}

    def load(self) -> None:
        query = "SELECT sid, protocol, identity, until_ms, topics, resume_secret, token FROM sessions"
        decrypt = self._cipher.decrypt
        with closing(self._reader.rows(query)) as rows:
            self._by_sid = {
                sid: ResumableSession(
                    sid,
                    protocol,
                    identity,
                    until_ms,
                    _TOPICS.decode(topics),
                    decrypt(RESUME_SECRET, sid, secret),
                    token,
                )
                for sid, protocol, identity, until_ms, topics, secret, token in rows
            }

    def find(self, sid: bytes, now_ms: int) -> ResumableSession | None:
        """Return the session, unless it has expired."""
        self._writer.reload_if_stale()
        session = self._by_sid.get(sid)
        return None if session is None or session.until_ms <= now_ms else session

    def save(self, session: ResumableSession) -> Commit:
        """Add a session, or replace the one with the same id."""
        self._writer.check_writable()
        _check(session)
        if session.sid not in self._by_sid and len(self._by_sid) >= STATE_SESSIONS_MAX:
            raise FullError(f"cannot store another resumable session: the limit is {STATE_SESSIONS_MAX}")
        self._by_sid[session.sid] = session
        topics = json.encode(session.topics)
        secret = self._cipher.encrypt(RESUME_SECRET, session.sid, session.resume_secret)
        row = (session.sid, session.protocol, session.identity, session.until_ms, topics, secret, session.token)
        return self._writer.submit(_SAVE, row, key=session.sid, content_bytes=len(topics))

    def remove(self, sid: bytes) -> Commit:
        """Remove a session, if there is one."""
        self._writer.check_writable()
        if self._by_sid.pop(sid, None) is None:
            return self._writer.barrier()
        return self._writer.submit(_REMOVE, (sid,))

    def remove_all(self, identity: str) -> Commit:
        """Remove all sessions of an identity."""
        self._writer.check_writable()
        for session in [session for session in self._by_sid.values() if session.identity == identity]:
            self.remove(session.sid)
        return self._writer.barrier()

    def sweep(self, now_ms: int, rows_max: int) -> int:
        """Remove some expired sessions. Return how many were expired."""
        self._writer.check_writable()
        query = "SELECT sid FROM sessions WHERE until_ms <= ? LIMIT ?"
        expired = [sid for (sid,) in self._reader.rows(query, (now_ms, rows_max))]
        for sid in expired:
            session = self._by_sid.get(sid)
            if session is not None and session.until_ms <= now_ms:  # or it was extended a moment ago
                self.remove(sid)
        return len(expired)


def _check(session: ResumableSession) -> None:
    if not 0 < len(session.sid) <= STATE_NAME_BYTES_MAX:
        raise InputError(f"a session id must have 1 to {STATE_NAME_BYTES_MAX} bytes, not {len(session.sid)}")
    if len(session.resume_secret) > STATE_NAME_BYTES_MAX:
        size = len(session.resume_secret)
        raise InputError(f"a resume secret must have at most {STATE_NAME_BYTES_MAX} bytes, not {size}")
    check_name(session.protocol, "a session's protocol")
    if session.identity:
        check_name(session.identity, "an identity's name")
    check_integer(session.until_ms, "the end of a session")
    if len(session.topics) > STATE_TOPICS_PER_IDENTITY_MAX:
        raise FullError(f"a session can have at most {STATE_TOPICS_PER_IDENTITY_MAX} topics")
    for topic in session.topics:
        check_name(topic, "a topic")
