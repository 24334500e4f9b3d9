import pytest

from state.conftest import Reopen
from wirelake.errors import FullError, InputError
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore

WAIT_S = 30


def test_a_session_can_be_resumed_after_a_restart_until_its_time_is_over(store: StateStore, reopen: Reopen) -> None:
    session = ResumableSession(b"\0" * 16, "magline", "ann", 100, ("@news", "live"))
    store.sessions.save(session)
    store = reopen()
    assert store.sessions.find(session.sid, 99) == session
    assert store.sessions.find(session.sid, 100) is None
    assert store.sessions.find(b"other", 1) is None
    store.sessions.remove(session.sid)
    store.sessions.remove(session.sid)
    assert reopen().sessions.find(session.sid, 1) is None


def test_the_sweep_removes_those_that_are_over_and_spares_the_prolonged(store: StateStore, reopen: Reopen) -> None:
    for number in range(5):
        store.sessions.save(ResumableSession(bytes([number]), "magline", "", number, ()))
    store.barrier().wait(WAIT_S)
    with store.writer.transaction():  # on disk it is still the old one
        store.sessions.save(ResumableSession(b"\0", "magline", "", 50, ()))
        store.sessions.sweep(2, 100)
    store = reopen()
    assert [number for number in range(5) if store.sessions.find(bytes([number]), -1)] == [0, 3, 4]


def test_sessions_are_bounded(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.sessions.STATE_SESSIONS_MAX", 1)
    store.sessions.save(ResumableSession(b"a", "magline", "", 1, ()))
    store.sessions.save(ResumableSession(b"a", "magline", "", 2, ()))
    with pytest.raises(FullError):
        store.sessions.save(ResumableSession(b"b", "magline", "", 1, ()))
    with pytest.raises(InputError):
        store.sessions.save(ResumableSession(b"", "magline", "", 1, ()))
