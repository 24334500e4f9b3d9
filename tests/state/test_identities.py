import pytest

from state.conftest import Reopen
from wirelake.errors import ConflictError, InputError
from wirelake.limits import STATE_TOKEN_BYTES_MAX
from wirelake.state.identities import dummy_hash, hash_token, new_token, verify_token
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore

WAIT_S = 30
SECRET = hash_token("right")


def test_a_token_is_checked_against_its_hash_and_is_nowhere_in_the_file(store: StateStore, reopen: Reopen) -> None:
    token = new_token()
    store.identities.add("ann", hash_token(token), 5).wait(WAIT_S)
    store = reopen()
    identity = store.identities.find("ann")
    assert identity is not None
    assert identity.added_at_ms == 5
    assert verify_token(identity.token_hash, token)
    assert not verify_token(identity.token_hash, token + "x")
    assert not verify_token(identity.token_hash, "")
    assert not verify_token(identity.token_hash, "\ud800")
    stored = b"".join(file.read_bytes() for file in store.database.path.parent.glob("state.db*"))
    assert b"ann" in stored
    assert token.encode() not in stored
    assert token not in repr(identity)


def test_tokens_and_salts_are_new_each_time() -> None:
    assert new_token() != new_token()
    assert hash_token("same").digest != hash_token("same").digest


@pytest.mark.parametrize("token", ["", "x" * (STATE_TOKEN_BYTES_MAX + 1)])
def test_a_token_has_bounds(token: str) -> None:
    with pytest.raises(InputError):
        hash_token(token)
    assert not verify_token(SECRET, token)


def test_a_name_is_taken_once(store: StateStore, reopen: Reopen) -> None:
    store.identities.add("ann", SECRET, 1)
    with pytest.raises(ConflictError):
        store.identities.add("ann", SECRET, 2)
    store.identities.add("bob", SECRET, 3)
    assert [identity.name for identity in reopen().identities.list()] == ["ann", "bob"]


def test_a_token_found_right_is_known_until_it_changes(store: StateStore) -> None:
    store.identities.add("ann", SECRET, 1)
    ann = store.identities.find("ann")
    assert ann is not None
    assert not store.identities.is_verified("ann", "right")
    store.identities.remember_verified(ann, "right")
    assert store.identities.is_verified("ann", "right")
    assert not store.identities.is_verified("ann", "wrong")
    assert not store.identities.is_verified("bob", "right")
    store.identities.remove("ann")
    assert not store.identities.is_verified("ann", "right")
    store.identities.add("ann", hash_token("other"), 1)
    assert not store.identities.is_verified("ann", "right")
    store.identities.remember_verified(ann, "right")  # a check that took long, of a token that has been replaced since
    assert not store.identities.is_verified("ann", "right")


def test_known_tokens_are_bounded(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.identities.STATE_TOKENS_KNOWN_MAX", 2)
    for name in ("a", "b", "c"):
        store.identities.add(name, SECRET, 1)
        identity = store.identities.find(name)
        assert identity is not None
        store.identities.remember_verified(identity, "right")
    assert [store.identities.is_verified(name, "right") for name in ("a", "b", "c")] == [False, True, True]


def test_an_identity_goes_with_all_that_belongs_to_it(store: StateStore, reopen: Reopen) -> None:
    for name in ("ann", "bob"):
        store.identities.add(name, SECRET, 1)
        store.topics.subscribe(name, "@news")
        store.sessions.save(ResumableSession(name.encode(), "magline", name, 100, ("@news",)))
    removed = store.remove_identity("ann")
    assert removed is not None
    removed.wait(WAIT_S)
    assert store.remove_identity("ann") is None
    store = reopen()
    assert store.identities.find("ann") is None
    assert store.sessions.find(b"ann", 1) is None
    assert list(store.topics.subscribers("@news")) == ["bob"]
    assert store.sessions.find(b"bob", 1) is not None


def test_nothing_matches_what_stands_for_nobody() -> None:
    nobody = dummy_hash()
    assert not verify_token(nobody, "")
    assert not verify_token(nobody, "nobody")
    assert dummy_hash() != nobody
