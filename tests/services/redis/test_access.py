"""Which keys and topics each redis command touches, and that no command is left out."""

import pytest
from broker.peers import REDIS, FakePeer

from wirelake.broker.access import AccessPolicy
from wirelake.broker.peer import Requester
from wirelake.errors import AccessDeniedError, InputError
from wirelake.protocols.redis.commands import COMMANDS
from wirelake.roles import Action, Role
from wirelake.services.redis.access import ACTIONS, CommandAccess, only_readable, target_of
from wirelake.services.redis.arguments import RedisCall

ROLE = Role(read=("redis/r/**", "redis/rw"), write=("redis/w", "redis/rw"), publish=("@p",), subscribe=("@s*",))


class Asked:
    """Check commands of an identity with this role."""

    def __init__(self, role: Role = ROLE) -> None:
        self.denied: list[str] = []
        self.policy = AccessPolicy(lambda _: ["some"], {"some": role}, self._note)
        self.access = CommandAccess(self.policy)
        self.peer = FakePeer("1", REDIS, "eve")

    def _note(self, _peer: Requester, error: AccessDeniedError) -> None:
        self.denied.append(str(error))

    def __call__(self, line: str) -> str:
        op, *args = line.split(" ")
        try:
            self.access.check(op, RedisCall(self.peer, [arg.encode() for arg in args], 0))
        except AccessDeniedError as error:
            return str(error)
        return "allowed"


def test_every_command_with_keys_says_what_it_does_to_them() -> None:
    with_keys = {name.decode() for name, arity in COMMANDS.items() if arity.keys[0]}
    assert with_keys <= {op for op, actions in ACTIONS.items() if actions}
    assert {op.encode() for op in ACTIONS} <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("get r/a", "allowed"),
        ("get r/a/b", "allowed"),
        ("get w", "read redis/w"),
        ("get x", "read redis/x"),
        ("mget r/a rw x", "read redis/x"),
        ("exists r/a x", "read redis/x"),
        ("watch rw x", "read redis/x"),
        ("set w 1", "allowed"),
        ("set w 1 NX get", "read redis/w"),
        ("set rw 1 GET", "allowed"),
        ("set w get", "allowed"),
        ("set r/a 1", "write redis/r/a"),
        ("mset w 1 rw 2", "allowed"),
        ("mset w x rw y", "allowed"),
        ("mset w 1 x 2", "write redis/x"),
        ("del w rw x", "write redis/x"),
        ("unlink x", "write redis/x"),
        ("hset w x 1", "allowed"),
        ("hdel w x", "allowed"),
        ("hgetall x", "read redis/x"),
        ("hmget r/a x y", "allowed"),
        ("incr rw", "allowed"),
        ("incr w", "read redis/w"),
        ("decrby r/a 5", "write redis/r/a"),
        ("getset w 1", "read redis/w"),
        ("getdel r/a", "write redis/r/a"),
        ("append w 1", "allowed"),
        ("expire x 5", "write redis/x"),
        ("ttl x", "read redis/x"),
        ("type x", "read redis/x"),
        ("publish @p x", "allowed"),
        ("publish @s x", "publish @s"),
        ("xadd @p * a 1", "allowed"),
        ("xadd @s1 * a 1", "publish @s1"),
        ("xrange @s1 - +", "allowed"),
        ("xrange @p - +", "subscribe @p"),
        ("xread COUNT 5 STREAMS @s1 @s2 0 0", "allowed"),
        ("xread BLOCK 0 STREAMS @s1 @p 0 0", "subscribe @p"),
        ("keys *", "allowed"),
        ("dbsize", "allowed"),
        ("get", "allowed"),
        ("mset", "allowed"),
    ],
)
def test_a_command_is_refused_if_one_of_its_keys_is(line: str, expected: str) -> None:
    asked = Asked()
    wanted = expected if expected == "allowed" else f"access denied: {expected}"
    assert asked(line) == wanted
    assert asked.denied == ([] if expected == "allowed" else [wanted]), "the first refusal is counted, once"


@pytest.mark.parametrize("line", ["xread COUNT streams STREAMS @p 0", "xread STREAMS @s1 @p 0", "xread a b", "xread"])
def test_an_xread_that_cannot_be_parsed_is_not_run(line: str) -> None:
    with pytest.raises(InputError):
        Asked()(line)


def test_members_and_the_admin_may_do_everything() -> None:
    for role in (Role(read=("**",), write=("**",), publish=("**",), subscribe=("**",)), Role()):
        asked = Asked(role)
        asked.peer.is_admin = role == Role()
        assert {asked(f"{op} STREAMS @x 0") for op in ACTIONS} == {"allowed"}


def test_keys_that_are_not_text_and_what_of_a_list_may_be_read() -> None:
    assert target_of(b"\xffa\x00") == "redis/\\xffa\x00"
    asked = Asked()
    keys = [b"r/a", b"x", b"rw", b"\xff", b"r/\xff"]
    assert only_readable(keys, asked.access.readable(asked.peer)) == [b"r/a", b"rw", b"r/\xff"]
    asked.peer.is_admin = True
    assert only_readable(keys, asked.access.readable(asked.peer)) == keys


def test_a_target_of_any_length_is_decided_but_not_cached() -> None:
    rights = Asked().policy.rights("eve")
    long = "redis/r/" + "a" * 100_000
    assert rights.allows(Action.READ, long)
    assert not rights.allows(Action.WRITE, long)
    assert not rights._allowed
