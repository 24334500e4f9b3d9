"""Define roles: for each action, patterns of the targets on which it is allowed.

- `*`: any characters but a slash
- `**`: any characters
- `{identity}`: the name of the identity that asks
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from wirelake.errors import InputError
from wirelake.limits import ACCESS_PATTERN_CHARS_MAX

ADMIN: Final = "admin"
MEMBER: Final = "member"
OBSERVER: Final = "observer"
EVERYTHING: Final = "**"
# Targets of `see` that stand for all of something.
LOG: Final = "log"  # the event log, with the quarantine and the workbench
LEDGER: Final = "ledger"
OVERVIEW: Final = "overview"  # the console's start page
METRICS: Final = "metrics"
WILDCARD: Final = "\U0010ffff"  # in a target: whatever a subscriber's own wildcard matches; only `**` covers it
_TOKEN: Final = re.compile(r"\*\*|\*|\{[^}]*\}|.", re.DOTALL)
_PARTS: Final = {"**": ".*", "*": f"[^/{WILDCARD}]*"}
OWN_NAME: Final = "{identity}"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Action(StrEnum):
    """What somebody may do, and to what."""

    PUBLISH = "publish"  # to a topic
    SUBSCRIBE = "subscribe"  # to a topic, or read it as a stream
    CALL = "call"  # SERVICE/OPERATION, or fetch/HOST
    PROVIDE = "provide"  # a service
    COMMAND = "command"  # a device, by its serial
    QUERY = "query"  # a table, by SQL
    SEE = "see"  # sessions/ID, devices/SERIAL, topics/NAME, traces/ID, log, ledger, overview, metrics
    READ = "read"  # redis/KEY, or datasets/DATASET/TABLE/KEY
    WRITE = "write"  # the same


Patterns = tuple[Annotated[str, Meta(min_length=1, max_length=ACCESS_PATTERN_CHARS_MAX)], ...]


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section [roles.NAME]: for each action, patterns of the targets that are allowed."""

    publish: Patterns = ()  # topics
    subscribe: Patterns = ()  # topics
    call: Patterns = ()  # SERVICE/OPERATION, and fetch/HOST of URLs that the gateway fetches
    provide: Patterns = ()  # services, also those that another identity provides
    command: Patterns = ()  # serials of devices
    query: Patterns = ()  # tables and views, as silver.messages
    see: Patterns = ()  # sessions/ID, devices/SERIAL, topics/NAME, traces/ID, log, ledger, overview, metrics
    read: Patterns = ()  # redis/KEY, datasets/DATASET/TABLE/KEY (for sisdb: datasets/sisdb/SDB/KEY)
    write: Patterns = ()  # the same; creating a table needs all of its keys: datasets/DATASET/TABLE/**

    def patterns(self, action: Action) -> Patterns:
        return getattr(self, action)  # type: ignore[no-any-return]

    def rules(self) -> dict[str, list[str]]:
        """Return the patterns by action, without the actions that have none."""
        return {str(action): list(self.patterns(action)) for action in Action if self.patterns(action)}


_ALL: Final = (EVERYTHING,)
BUILT_IN: Final[Mapping[str, Role]] = {
    ADMIN: Role(**dict.fromkeys(map(str, Action), _ALL)),
    OBSERVER: Role(subscribe=_ALL, query=_ALL, see=_ALL, read=_ALL),
    MEMBER: Role(publish=_ALL, subscribe=_ALL, call=_ALL, provide=_ALL, read=_ALL, write=_ALL, see=("devices/**",)),
}


def check_roles(roles: Mapping[str, Role]) -> None:
    """Raise InputError, which names the setting, if a role or a pattern is not valid."""
    for name, role in roles.items():
        if name in BUILT_IN:
            raise InputError(f"roles.{name}: this role is built in and cannot be changed")
        if not _NAME.fullmatch(name):
            raise InputError(f"roles.{name}: the name of a role has letters, digits, - and _ only")
        for action in Action:
            for pattern in role.patterns(action):
                try:
                    compile_pattern(pattern, "")
                except InputError as error:
                    raise InputError(f"roles.{name}.{action}: {error}") from error


def check_role_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError if a role does not exist."""
    known = list(known)
    for name in names:
        if name not in known:
            raise InputError(f"no role is called '{name}': there are {', '.join(known)}")


def compile_pattern(pattern: str, identity: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern, for one identity."""
    if "***" in pattern:
        raise InputError(f"invalid pattern '{pattern}': write * or **")
    parts = []
    for token in _TOKEN.findall(pattern):
        if token == OWN_NAME:
            parts.append(re.escape(identity))
        elif token[0] == "{" and len(token) > 1:
            raise InputError(f"invalid pattern '{pattern}': only {OWN_NAME} can stand in braces, not {token}")
        else:
            parts.append(_PARTS.get(token) or re.escape(token))
    return re.compile("".join(parts), re.DOTALL)
