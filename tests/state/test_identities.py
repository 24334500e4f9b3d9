import pytest

from state.conftest import Reopen
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_TOKEN_BYTES_MAX, STATE_TOKEN_EXPIRED_KEEP_S, STATE_TOKENS_PER_IDENTITY_MAX
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore, Sweeper
from wirelake.state.tokens import Token, TokenHash, TokenKey, dummy_hash, find_slow, hash_token, new_token

WAIT_S = 30
SECRET = hash_token("right")
KEY = TokenKey(bytes(32))


def matches(token_hash: TokenHash, token: str) -> bool:
    return find_slow([Token("", token_hash, 0)], token) is not None


def is_verified(store: StateStore, name: str, token: str) -> bool:
    identity = store.identities.find(name)
    return identity is not None and store.identities.find_verified(identity, token) is not None


def test_a_token_is_checked_against_its_hash_and_is_nowhere_in_the_file(store: StateStore, reopen: Reopen) -> None:
    token = new_token()
    store.identities.add("ann", hash_token(token), 5).wait(WAIT_S)
    store = reopen()
    identity = store.identities.find("ann")
    assert identity is not None
    assert identity.added_at_ms == 5
    assert matches(identity.tokens[0].hash, token)
    assert not matches(identity.tokens[0].hash, token + "x")
    assert not matches(identity.tokens[0].hash, "")
    assert not matches(identity.tokens[0].hash, "\ud800")
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
    assert not matches(SECRET, token)


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
    assert not is_verified(store, "ann", "right")
    store.identities.remember_verified("ann", ann.tokens[0], "right")
    assert is_verified(store, "ann", "right")
    assert not is_verified(store, "ann", "wrong")
    assert not is_verified(store, "bob", "right")
    store.identities.remove("ann")
    assert not is_verified(store, "ann", "right")
    store.identities.add("ann", hash_token("other"), 1)
    assert not is_verified(store, "ann", "right")
    # A check that took long, of a token that has been replaced since.
    store.identities.remember_verified("ann", ann.tokens[0], "right")
    assert not is_verified(store, "ann", "right")


def test_known_tokens_are_bounded(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.identities.STATE_TOKENS_KNOWN_MAX", 2)
    for name in ("a", "b", "c"):
        store.identities.add(name, SECRET, 1)
        identity = store.identities.find(name)
        assert identity is not None
        store.identities.remember_verified(name, identity.tokens[0], "right")
    assert [is_verified(store, name, "right") for name in ("a", "b", "c")] == [False, True, True]


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
    assert not matches(nobody, "")
    assert not matches(nobody, "nobody")
    assert dummy_hash() != nobody


def tokens_of(store: StateStore, name: str = "ann") -> tuple[Token, ...]:
    identity = store.identities.find(name)
    assert identity is not None
    return identity.tokens


def add_token(
    store: StateStore, token_hash: TokenHash, now_ms: int, expires_at_ms: int | None = None, keep: int | None = None
) -> Token:
    added = store.identities.add_token("ann", token_hash, now_ms, expires_at_ms, keep)
    assert added is not None
    added[1].wait(WAIT_S)
    return added[0]


def test_a_new_token_lets_the_others_expire(store: StateStore, reopen: Reopen) -> None:
    store.identities.add("ann", KEY.hash(new_token()), 1, expires_at_ms=50)
    second = add_token(store, KEY.hash(new_token()), 2)
    third = add_token(store, KEY.hash(new_token()), 3, keep=100)
    for _ in range(2):
        assert [(each.added_at_ms, each.expires_at_ms) for each in tokens_of(store)] == [(1, 50), (2, 100), (3, None)]
        assert [each.is_valid(50) for each in tokens_of(store)] == [False, True, True]
        assert store.identities.is_token_valid("ann", second.id, 99)
        assert not store.identities.is_token_valid("ann", second.id, 100)
        assert store.identities.is_token_valid("ann", third.id, 100)
        assert not store.identities.is_token_valid("bob", third.id, 0)
        store = reopen()
    assert store.identities.add_token("bob", KEY.hash(new_token()), 1) is None


def test_when_an_identity_can_no_longer_log_in(store: StateStore) -> None:
    store.identities.add("ann", KEY.hash(new_token()), 1, expires_at_ms=50)
    add_token(store, KEY.hash(new_token()), 1, expires_at_ms=80)

    def end(now_ms: int) -> tuple[int, int | None]:
        identity = store.identities.find("ann")
        assert identity is not None
        return len(identity.valid_tokens(now_ms)), identity.expires_at_ms(now_ms)

    assert [end(now_ms) for now_ms in (49, 50, 80)] == [(2, 80), (1, 80), (0, None)]
    add_token(store, KEY.hash(new_token()), 1)
    assert end(49) == (3, None)


def test_tokens_are_bounded_and_expired_ones_give_way(store: StateStore, reopen: Reopen) -> None:
    store.identities.add("ann", KEY.hash(new_token()), 0)
    for number in range(1, STATE_TOKENS_PER_IDENTITY_MAX):
        add_token(store, KEY.hash(new_token()), number, expires_at_ms=1000 - number)
    with pytest.raises(FullError, match=f"has {STATE_TOKENS_PER_IDENTITY_MAX} tokens"):
        add_token(store, KEY.hash(new_token()), 10)
    expired_first = tokens_of(store)[-1]
    newest = add_token(store, KEY.hash(new_token()), 2000)
    store = reopen()
    tokens = tokens_of(store)
    assert len(tokens) == STATE_TOKENS_PER_IDENTITY_MAX
    assert newest in tokens
    assert expired_first not in tokens


def test_a_token_is_found_by_itself_until_it_is_removed(store: StateStore, reopen: Reopen) -> None:
    first, second = new_token(), new_token()
    store.identities.add("ann", KEY.hash(first), 1)
    add_token(store, KEY.hash(second), 2)
    for token in (first, second):
        found = store.identities.find_by_token(KEY, token)
        assert found is not None
        assert (found[0].name, KEY.find([found[1]], token)) == ("ann", found[1])
    removed = store.identities.remove_token("ann", tokens_of(store)[0].id)
    assert removed is not None
    removed.wait(WAIT_S)
    for _ in range(2):
        assert store.identities.find_by_token(KEY, first) is None
        assert store.identities.find_by_token(KEY, second) is not None
        store = reopen()
    assert store.identities.remove_token("ann", "unknown") is None
    assert store.identities.remove_token("bob", "unknown") is None


def test_chosen_tokens_of_an_identity_share_a_salt(store: StateStore) -> None:
    store.identities.add("ann", SECRET, 1)
    add_token(store, KEY.hash(new_token()), 2)
    second = add_token(store, KEY.hash("second", SECRET), 3)
    identity = store.identities.find("ann")
    assert identity is not None
    assert [find_slow(identity.chosen_tokens, token) for token in ("right", "second", "wrong")] == [
        identity.tokens[0],
        second,
        None,
    ]
    with pytest.raises(ConflictError, match="changed meanwhile"):
        add_token(store, hash_token("third"), 4)
    for token in ("right", "second"):
        with pytest.raises(ConflictError, match="has this token already"):
            add_token(store, hash_token(token, SECRET), 4)


def test_who_chose_a_token_last_comes_first(store: StateStore, reopen: Reopen) -> None:
    for number, name in enumerate(("ann", "bob", "cat")):
        store.identities.add(name, SECRET, number)
    store.identities.add("generated", KEY.hash(new_token()), 9)
    add_token(store, hash_token("another", SECRET), 10)
    for _ in range(2):
        assert [each.name for each in store.identities.newest_chosen(2)] == ["ann", "cat"]
        store = reopen()
    for token in tokens_of(store):
        store.identities.remove_token("ann", token.id)
    assert [each.name for each in store.identities.newest_chosen(9)] == ["cat", "bob"]


def test_a_hash_is_replaced_in_its_place(store: StateStore, reopen: Reopen) -> None:
    token = new_token()
    store.identities.add("ann", slow := hash_token(token), 1)
    add_token(store, hash_token("chosen", slow), 2)
    first, second = tokens_of(store)
    rehashed = store.identities.rehash("ann", first, KEY.hash(token))
    assert rehashed is not None
    rehashed.wait(WAIT_S)
    store = reopen()
    assert [(each.id, each.kind) for each in tokens_of(store)] == [(first.id, "generated"), (second.id, "chosen")]
    assert store.identities.find_by_token(KEY, token) is not None
    assert store.identities.rehash("ann", first, KEY.hash(token)) is None


def test_tokens_that_expired_long_ago_are_swept(store: StateStore, reopen: Reopen) -> None:
    keep_ms = int(STATE_TOKEN_EXPIRED_KEEP_S * 1000)
    store.identities.add("ann", KEY.hash(new_token()), 1, expires_at_ms=100)
    add_token(store, KEY.hash(new_token()), 2, expires_at_ms=200)
    add_token(store, KEY.hash(new_token()), 3)
    sweeper = Sweeper(store)
    sweeper.step(99 + keep_ms)
    assert len(tokens_of(store)) == 3
    assert sweeper.step(100 + keep_ms).removed == 1
    store.barrier().wait(WAIT_S)
    store = reopen()
    assert [each.added_at_ms for each in tokens_of(store)] == [2, 3]
    Sweeper(store).step(10 * keep_ms)
    store.barrier().wait(WAIT_S)
    assert [each.added_at_ms for each in tokens_of(reopen())] == [3]


def test_an_identity_goes_with_its_tokens(store: StateStore, reopen: Reopen) -> None:
    token = new_token()
    store.identities.add("ann", KEY.hash(token), 1)
    add_token(store, KEY.hash(new_token()), 2)
    removed = store.remove_identity("ann")
    assert removed is not None
    removed.wait(WAIT_S)
    store.identities.add("ann", KEY.hash(other := new_token()), 3).wait(WAIT_S)
    store = reopen()
    assert store.identities.find_by_token(KEY, token) is None
    assert [KEY.find(tokens_of(store), each) is not None for each in (token, other)] == [False, True]
    assert len(tokens_of(store)) == 1
