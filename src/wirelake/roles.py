"""Define roles: for each action, patterns of the targets on which it is allowed.

- `*`: any characters but a slash
- `**`: any characters
- `{identity}`: the name of the identity that asks
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct, convert

from wirelake.errors import InputError
from wirelake.limits import ACCESS_PATTERN_CHARS_MAX

ADMIN: Final = "admin"
MEMBER: Final = "member"
OBSERVER: Final = "observer"
EVERYTHING: Final = "**"
# Targets of `see` that stand for all of something.
LOG: Final = "log"  # the event log, with the quarantine and the workbench
AUDIT: Final = "audit"  # who did what
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
    SEE = "see"  # sessions/ID, devices/SERIAL, topics/NAME, traces/ID, log, audit, ledger, overview, metrics
    READ = "read"  # redis/KEY, or datasets/DATASET/TABLE/KEY
    WRITE = "write"  # the same


Pattern = Annotated[str, Meta(min_length=1, max_length=ACCESS_PATTERN_CHARS_MAX)]
Patterns = tuple[Pattern, ...]
RowPatterns = dict[str, dict[str, Pattern]]  # table → column → what the values of the rows look like


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section [roles.NAME]: for each action, patterns of the targets that are allowed."""

    publish: Patterns = ()  # topics
    subscribe: Patterns = ()  # topics
    call: Patterns = ()  # SERVICE/OPERATION, and fetch/HOST of URLs that the gateway fetches
    provide: Patterns = ()  # services, also those that another identity provides
    command: Patterns = ()  # serials of devices
    query: Patterns = ()  # tables and views, as silver.messages
    see: Patterns = ()  # sessions/ID, devices/SERIAL, topics/NAME, traces/ID, log, audit, ledger, overview, metrics
    read: Patterns = ()  # redis/KEY, datasets/DATASET/TABLE/KEY (for sisdb: datasets/sisdb/SDB/KEY)
    write: Patterns = ()  # the same; creating a table needs all of its keys: datasets/DATASET/TABLE/**
    rows: RowPatterns = {}  # of a table that may be queried, only rows with such values in these columns

    def patterns(self, action: Action) -> Patterns:
        return getattr(self, action)  # type: ignore[no-any-return]

    def all_patterns(self) -> Iterator[str]:
        """Return the patterns of all actions, and those of rows."""
        for action in Action:
            yield from self.patterns(action)
        for columns in self.rows.values():
            yield from columns.values()

    def rules(self) -> dict[str, list[str]]:
        """Return the patterns by action, without the actions that have none, and the conditions on rows."""
        rules = {str(action): list(self.patterns(action)) for action in Action if self.patterns(action)}
        return rules | ({"rows": self.row_rules()} if self.rows else {})

    def row_rules(self) -> list[str]:
        """Return the conditions on rows, for people."""
        return [
            f"{table}.{column} = {pattern}"
            for table, columns in self.rows.items()
            for column, pattern in columns.items()
        ]


class RowCondition(Struct, frozen=True):
    """What the value of a column must be in a row that one may read."""

    column: str
    value: str  # a regular expression, or the text itself
    is_regex: bool


RowFilter = tuple[tuple[RowCondition, ...], ...]  # a row must fulfil all conditions of one of these


_ALL: Final = (EVERYTHING,)
BUILT_IN: Final[Mapping[str, Role]] = {
    ADMIN: convert(dict.fromkeys(map(str, Action), _ALL), Role),
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
        for table, columns in role.rows.items():
            for column, pattern in columns.items():
                try:
                    compile_pattern(pattern, "")
                except InputError as error:
                    raise InputError(f"roles.{name}.rows.{table}.{column}: {error}") from error


def check_role_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError if a role does not exist."""
    known = list(known)
    for name in names:
        if name not in known:
            raise InputError(f"no role is called '{name}': there are {', '.join(known)}")


def row_conditions(columns: Mapping[str, str], identity: str) -> tuple[RowCondition, ...]:
    """Return what the patterns of columns demand of the rows that an identity may read."""
    return tuple(
        RowCondition(column, compile_pattern(pattern, identity).pattern, is_regex=True)
        if "*" in pattern
        else RowCondition(column, pattern.replace(OWN_NAME, identity), is_regex=False)
        for column, pattern in columns.items()
    )


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
