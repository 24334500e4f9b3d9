"""The decision point: patterns, roles, and the wildcards of subscribers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, convert

from wirelake.broker.access import NO_RIGHTS, AccessPolicy, Rights, glob_target
from wirelake.errors import AccessDeniedError, InputError
from wirelake.limits import ACCESS_DECISIONS_MAX
from wirelake.roles import (
    ADMIN,
    BUILT_IN,
    MEMBER,
    OBSERVER,
    WILDCARD,
    Action,
    Role,
    RowCondition,
    check_roles,
    compile_pattern,
)
from wirelake.state.glob import compile_glob


class Caller(Struct):
    identity: str
    is_admin: bool = False
    id: str = "1"
    protocol: str = "comet"
    address: str = "127.0.0.1:1"


PHONE = Role(subscribe=("@news/**", "@inbox/{identity}"), publish=("@chat/*",), provide=("clock",))


def rights(identity: str = "ann", **roles: Role) -> Rights:
    return Rights(identity, roles or {"phone": PHONE})


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("@a", "@a", True),
        ("@a", "@ab", False),
        ("@a.b", "@axb", False),
        ("@news/*", "@news/today", True),
        ("@news/*", "@news/", True),
        ("@news/*", "@news/a/b", False),
        ("@news/**", "@news/a/b", True),
        ("**", "anything/at\nall", True),
        ("@inbox/{identity}", "@inbox/ann", True),
        ("@inbox/{identity}", "@inbox/bob", False),
        ("@inbox/{identity}/**", "@inbox/ann/x", True),
    ],
)
def test_a_pattern_matches_the_whole_target(pattern: str, target: str, matches: bool) -> None:
    assert (compile_pattern(pattern, "ann").fullmatch(target) is not None) is matches


def test_the_name_of_an_identity_is_no_pattern() -> None:
    assert not rights("*").allows(Action.SUBSCRIBE, "@inbox/bob")
    assert rights("*").allows(Action.SUBSCRIBE, "@inbox/*")
    assert not rights(".*").allows(Action.SUBSCRIBE, "@inbox/bob")


def test_a_decision_names_its_rule() -> None:
    allowed = rights().decide(Action.SUBSCRIBE, "@news/today")
    assert str(allowed) == "allowed by role phone: subscribe @news/**"
    refused = rights().decide(Action.PUBLISH, "@news/today")
    assert not refused.is_allowed
    assert str(refused) == "refused: no rule of phone allows publish @news/today"


def test_the_built_in_roles() -> None:
    roles = {"root": [ADMIN], "eye": [OBSERVER]}
    policy = AccessPolicy(lambda name: roles.get(name, []))
    every = [(action, policy.allows(name, action, "x")) for name in ("root", "eye", "new") for action in Action]
    allowed = [{action for action, is_allowed in every[start : start + 9] if is_allowed} for start in (0, 9, 18)]
    changing = {Action.PUBLISH, Action.CALL, Action.PROVIDE, Action.COMMAND, Action.WRITE}
    assert allowed[0] == set(Action)
    assert allowed[1] == set(Action) - changing
    assert allowed[2] == set(Action) - {Action.COMMAND, Action.QUERY, Action.SEE}


def test_an_identity_has_the_rights_of_all_its_roles_and_of_none_that_is_gone() -> None:
    roles = {"a": Role(publish=("@a",)), "b": Role(publish=("@b",))}
    policy = AccessPolicy(lambda _: ["a", "b"], roles)
    assert [policy.allows("ann", Action.PUBLISH, topic) for topic in ("@a", "@b", "@c")] == [True, True, False]
    policy.set_roles({"a": roles["a"]})
    assert [policy.allows("ann", Action.PUBLISH, topic) for topic in ("@a", "@b", "@c")] == [True, False, False]


def test_a_refusal_is_reported() -> None:
    reported: list[tuple[object, AccessDeniedError]] = []
    policy = AccessPolicy(lambda _: ["phone"], {"phone": PHONE}, lambda *refusal: reported.append(refusal))
    ann = Caller("ann")
    policy.authorize(ann, Action.PUBLISH, "@chat/a")
    with pytest.raises(AccessDeniedError, match="access denied: publish @b"):
        policy.authorize(ann, Action.PUBLISH, "@b")
    assert [(who, error.action, error.target) for who, error in reported] == [(ann, "publish", "@b")]
    policy.authorize(Caller("ann", is_admin=True), Action.PUBLISH, "@b")


def test_changed_roles_of_an_identity_count_at_once() -> None:
    names = {"ann": [MEMBER]}
    policy = AccessPolicy(names.__getitem__, {"phone": PHONE})
    assert policy.allows("ann", Action.PUBLISH, "@news/today")
    names["ann"] = ["phone"]
    assert not policy.allows("ann", Action.PUBLISH, "@news/today")


def test_the_cache_is_bounded_and_right() -> None:
    mine = rights()
    for number in range(2 * ACCESS_DECISIONS_MAX):
        assert mine.allows(Action.PUBLISH, f"@chat/{number}")
        assert not mine.allows(Action.PUBLISH, f"@chat/{number}/x")
    assert len(mine._allowed) <= ACCESS_DECISIONS_MAX


@pytest.mark.parametrize(
    ("roles", "error"),
    [
        ({"member": Role()}, "roles.member: this role is built in"),
        ({"a b": Role()}, "roles.a b: the name of a role"),
        ({"x": Role(publish=("@{name}",))}, r"roles.x.publish: invalid pattern '@{name}': only {identity}"),
        ({"x": Role(see=("***",))}, r"roles.x.see: invalid pattern '\*\*\*'"),
        (
            {"x": Role(rows={"silver.calls": {"identity": "{me}"}})},
            "roles.x.rows.silver.calls.identity: invalid pattern '{me}'",
        ),
    ],
)
def test_errors_name_the_setting(roles: dict[str, Role], error: str) -> None:
    with pytest.raises(InputError, match=error):
        check_roles(roles)
    with pytest.raises(InputError, match=error):
        AccessPolicy(lambda _: (), roles)


@pytest.mark.parametrize(
    ("glob", "is_allowed"),
    [
        ("@news/*", True),
        ("@news/a?", True),
        ("@chat/*", False),
        ("*", False),
        ("@[n]ews/x", False),
        (r"@news/\*", True),
    ],
)
def test_a_subscribers_wildcard_needs_a_pattern_that_covers_it(glob: str, is_allowed: bool) -> None:
    mine = rights(phone=Role(subscribe=("@news/**", "@chat/*")))
    assert mine.allows(Action.SUBSCRIBE, glob_target(glob)) is is_allowed


_CHARS = st.text("ab/*?", max_size=6)


@given(_CHARS, st.text("ab/*", max_size=6), st.text("ab/", max_size=6))
def test_whatever_an_allowed_glob_matches_is_allowed(glob: str, pattern: str, topic: str) -> None:
    if "***" in pattern:
        return
    mine = rights(phone=Role(subscribe=(pattern,) if pattern else ()))
    if mine.allows(Action.SUBSCRIBE, glob_target(glob)) and compile_glob(glob.encode()).fullmatch(topic.encode()):
        assert mine.allows(Action.SUBSCRIBE, topic)


def test_rows_are_those_that_any_role_with_the_right_to_the_table_allows() -> None:
    own = Role(query=("silver.*",), rows={"silver.readings": {"serial": "{identity}", "name": "t*"}})
    fleet = Role(query=("silver.readings",), rows={"silver.readings": {"serial": "00*"}})
    mine = (RowCondition("serial", "ann", False), RowCondition("name", "t[^/\U0010ffff]*", True))
    theirs = (RowCondition("serial", "00[^/\U0010ffff]*", True),)
    assert rights(own=own).row_filter("silver.readings") == (mine,)
    assert rights(own=own, fleet=fleet).row_filter("silver.readings") == (mine, theirs)
    assert rights(own=own).row_filter("silver.messages") is None, "rows of other tables are not limited"
    assert rights(own=own, all=Role(query=("**",))).row_filter("silver.readings") is None
    assert rights(own=own, news=Role(query=("gold.*",))).row_filter("silver.readings") == (mine,)
    assert rights(own=own).is_personal
    assert not rights(fleet=fleet).is_personal
    assert not rights(own=own).reads_whole("silver.readings")
    assert rights(own=own).reads_whole("silver.messages")
    assert not rights(own=own).reads_whole("gold.ledger")


def test_every_role_names_actions_only() -> None:
    assert set(Role.__struct_fields__) == {*Action, "rows"}
    assert set(BUILT_IN) == {ADMIN, OBSERVER, MEMBER}


def test_what_is_seen_is_not_cached_and_who_is_an_admin() -> None:
    mine = rights(phone=Role(see=("topics/@news/*", "log")))
    assert [mine.sees(target) for target in ("topics/@news/a", "topics/@news/a/b", "log", "ledger")] == [
        True,
        False,
        True,
        False,
    ]
    assert not mine._allowed, "a list of all topics must not displace the decisions of publishers"
    assert not mine.sees(f"topics/@news/{WILDCARD}"), "that is all topics there"
    assert rights(admin=BUILT_IN[ADMIN]).sees("whatever")
    assert rights(phone=Role(), admin=BUILT_IN[ADMIN]).is_admin
    everything = convert(dict.fromkeys(map(str, Action), ("**",)), Role)
    assert not rights(chief=everything).is_admin, "to change roles takes the role admin"
    assert not any(NO_RIGHTS.allows(action, "x") or NO_RIGHTS.rules(action) for action in Action)


def test_a_member_sees_devices_and_no_more() -> None:
    member = rights(member=BUILT_IN[MEMBER])
    targets = (
        "devices/m1",
        "topics/@a",
        "sessions/a-1",
        "traces/a-1-1",
        "log",
        "audit",
        "ledger",
        "overview",
        "metrics",
    )
    assert [target for target in targets if member.sees(target)] == ["devices/m1"]
    assert not member.rules(Action.QUERY)


def test_identities_with_the_same_roles_share_their_rights_unless_these_name_them() -> None:
    roles = {"chat": Role(publish=("@chat/*",)), "phone": PHONE}
    policy = AccessPolicy(lambda name: ["phone"] if name in ("ann", "bob") else ["chat"], roles)
    assert policy.rights("cay") is policy.rights("dan")
    assert policy.rights("ann") is not policy.rights("bob")
    assert [policy.allows(name, Action.SUBSCRIBE, "@inbox/ann") for name in ("ann", "bob")] == [True, False]
