"""Check that a peer may run a command: which keys and topics each command reads and writes is in one table."""

from collections.abc import Callable, Mapping
from typing import Final

from wirelake.broker.access import AccessPolicy, Rights
from wirelake.broker.peer import Peer
from wirelake.protocols.redis.commands import COMMANDS
from wirelake.roles import Action
from wirelake.services.redis.arguments import Args, RedisCall
from wirelake.services.redis.streams import keys_of_read

_NOTHING: Final = frozenset[Action]()
_READ: Final = frozenset({Action.READ})
_WRITE: Final = frozenset({Action.WRITE})
_BOTH: Final = _READ | _WRITE  # on keys; the other actions are on topics

# What a command does to each of its keys or topics. Those without keys return only what may be read.
ACTIONS: Final[Mapping[str, frozenset[Action]]] = {
    "acl": _NOTHING,
    "append": _WRITE,
    "config": _NOTHING,
    "dbsize": _NOTHING,
    "decr": _BOTH,
    "decrby": _BOTH,
    "del": _WRITE,
    "exists": _READ,
    "expire": _WRITE,
    "flushdb": _NOTHING,  # for the admin only
    "get": _READ,
    "getdel": _BOTH,
    "getset": _BOTH,
    "hdel": _WRITE,
    "hget": _READ,
    "hgetall": _READ,
    "hmget": _READ,
    "hset": _WRITE,
    "incr": _BOTH,
    "incrby": _BOTH,
    "info": _NOTHING,
    "keys": _NOTHING,
    "mget": _READ,
    "mset": _WRITE,
    "persist": _WRITE,
    "pexpire": _WRITE,
    "psetex": _WRITE,
    "pttl": _READ,
    "publish": frozenset({Action.PUBLISH}),
    "scan": _NOTHING,
    "set": _WRITE,  # with GET, see `_actions`
    "setex": _WRITE,
    "strlen": _READ,
    "ttl": _READ,
    "type": _READ,
    "unlink": _WRITE,
    "unwatch": _NOTHING,
    "watch": _READ,
    "xadd": frozenset({Action.PUBLISH}),
    "xrange": frozenset({Action.SUBSCRIBE}),
    "xread": frozenset({Action.SUBSCRIBE}),
}
_FIND: Final[Mapping[str, Callable[[Args], Args]]] = {  # where COMMANDS does not say where the keys are
    "publish": lambda args: args[:1],
    "xread": keys_of_read,
}


def target_of(key: bytes) -> str:
    """Return the target of reading and writing a key."""
    return f"redis/{text_of(key)}"


def text_of(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


class CommandAccess:
    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    def check(self, op: str, call: RedisCall) -> None:
        """Raise AccessDeniedError if the peer may not do this to one of the keys, before anything is done to any."""
        rights, actions = self._policy.rights_of(call.peer), _actions(op, call.args)
        if rights.allows_each(actions):
            return
        limited = [action for action in Action if action in actions and not rights.allows_all(action)]
        for key in _keys(op, call.args):
            for action in limited:
                target = target_of(key) if action in _BOTH else text_of(key)
                if not rights.allows(action, target):
                    raise self._policy.denied(call.peer, action, target)

    def readable(self, peer: Peer) -> Rights | None:
        """Return the rights that decide which keys a peer may see, or None if it may see all."""
        rights = self._policy.rights_of(peer)
        return None if rights.allows_all(Action.READ) else rights

    def may_subscribe(self, peer: Peer, topic: str) -> bool:
        return self._policy.rights_of(peer).allows(Action.SUBSCRIBE, topic)


def only_readable(keys: list[bytes], rights: Rights | None) -> list[bytes]:
    """Return the keys that these rights allow to read; all, if None."""
    if rights is None:
        return keys
    return [key for key in keys if rights.allows(Action.READ, target_of(key))]


def _actions(op: str, args: Args) -> frozenset[Action]:
    if op == "set" and len(args) > 2 and b"get" in map(bytes.lower, args[2:]):
        return _BOTH
    return ACTIONS[op]


def _keys(op: str, args: Args) -> Args:
    """Return the keys of a command; all that there are, if it has too few arguments and will be refused."""
    find = _FIND.get(op)
    if find is not None:
        return find(args)
    first, last, step = COMMANDS[op.encode()].keys
    return args[first - 1 : last if last > 0 else None : step]
