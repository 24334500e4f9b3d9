"""Sessions that may be resumed: a peer that comes back in time and proves that it had its keys goes on where it was."""

from typing import Final

from msgspec import Struct, json

from wirelake.commit import Commit
from wirelake.errors import FullError, InputError
from wirelake.limits import STATE_NAME_BYTES_MAX, STATE_SESSIONS_MAX, STATE_TOPICS_PER_IDENTITY_MAX
from wirelake.state.batch import Statement
from wirelake.state.bounds import check_integer, check_name
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

_SAVE: Final = Statement(
    "sessions",
    "INSERT OR REPLACE INTO sessions (sid, protocol, identity, until_ms, topics, resume_secret) VALUES ",
    "(?,?,?,?,?,?)",
)
_REMOVE: Final = Statement("sessions", "DELETE FROM sessions WHERE sid IN (", "?", ")")
_TOPICS: Final = json.Decoder(tuple[str, ...])


class Session(Struct, frozen=True):
    sid: bytes
    protocol: str
    identity: str  # empty before the login
    until_ms: int
    topics: tuple[str, ...]  # subscribed on this session, durable or live
    resume_secret: bytes = b""  # what a proof is made of; empty for sessions kept before there were proofs

    def __repr__(self) -> str:
        return f"Session(protocol={self.protocol!r}, identity={self.identity!r}, until_ms={self.until_ms})"


class Sessions:
    """All in memory, so that a resume is answered at once."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._by_sid: dict[bytes, Session] = {}

    def load(self) -> None:
        rows = self._reader.rows("SELECT sid, protocol, identity, until_ms, topics, resume_secret FROM sessions")
        self._by_sid = {
            sid: Session(sid, protocol, identity, until_ms, _TOPICS.decode(topics), secret)
            for sid, protocol, identity, until_ms, topics, secret in rows
        }

    def find(self, sid: bytes, now_ms: int) -> Session | None:
        """The session, unless its time is over."""
        self._writer.fresh()
        session = self._by_sid.get(sid)
        return None if session is None or session.until_ms <= now_ms else session

    def save(self, session: Session) -> Commit:
        """New, or in place of the one with the same id."""
        self._writer.ready()
        _check(session)
        if session.sid not in self._by_sid and len(self._by_sid) >= STATE_SESSIONS_MAX:
            raise FullError(f"{STATE_SESSIONS_MAX} sessions wait to be resumed already")
        self._by_sid[session.sid] = session
        topics = json.encode(session.topics)
        row = (session.sid, session.protocol, session.identity, session.until_ms, topics, session.resume_secret)
        return self._writer.submit(_SAVE, row, key=session.sid, content_bytes=len(topics))

    def remove(self, sid: bytes) -> Commit:
        """Also when there is none."""
        self._writer.ready()
        if self._by_sid.pop(sid, None) is None:
            return self._writer.barrier()
        return self._writer.submit(_REMOVE, (sid,))

    def forget(self, identity: str) -> Commit:
        """Remove all of an identity."""
        self._writer.ready()
        for session in [session for session in self._by_sid.values() if session.identity == identity]:
            self.remove(session.sid)
        return self._writer.barrier()

    def sweep(self, now_ms: int, rows_max: int) -> int:
        """Remove some of those whose time is over; how many."""
        self._writer.ready()
        query = "SELECT sid FROM sessions WHERE until_ms <= ? LIMIT ?"
        over = [sid for (sid,) in self._reader.rows(query, (now_ms, rows_max))]
        for sid in over:
            session = self._by_sid.get(sid)
            if session is not None and session.until_ms <= now_ms:  # or it was prolonged a moment ago
                self.remove(sid)
        return len(over)


def _check(session: Session) -> None:
    if not 0 < len(session.sid) <= STATE_NAME_BYTES_MAX:
        raise InputError(f"a session id has 1 to {STATE_NAME_BYTES_MAX} bytes, not {len(session.sid)}")
    if len(session.resume_secret) > STATE_NAME_BYTES_MAX:
        raise InputError(f"a resume secret has at most {STATE_NAME_BYTES_MAX} bytes, not {len(session.resume_secret)}")
    check_name(session.protocol, "a session's protocol")
    if session.identity:
        check_name(session.identity, "an identity's name")
    check_integer(session.until_ms, "the end of a session")
    if len(session.topics) > STATE_TOPICS_PER_IDENTITY_MAX:
        raise FullError(f"a session keeps at most {STATE_TOPICS_PER_IDENTITY_MAX} topics")
    for topic in session.topics:
        check_name(topic, "a topic")
