"""Decide who may do what: the roles of an identity say on which targets it may perform an action.

Nothing here touches the network or a disk. The decisions for an identity are cached, because every publish needs one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from wirelake.broker.peer import Requester
from wirelake.errors import AccessDeniedError
from wirelake.limits import ACCESS_DECISIONS_MAX, ACCESS_IDENTITIES_MAX, ACCESS_TARGET_CHARS_MAX
from wirelake.roles import (
    ADMIN,
    BUILT_IN,
    EVERYTHING,
    MEMBER,
    OWN_NAME,
    WILDCARD,
    Action,
    Role,
    RowFilter,
    check_roles,
    compile_pattern,
    row_conditions,
)

_Key = TypeVar("_Key")
OnDenied = Callable[[Requester, AccessDeniedError], None]
_GLOB_WILDCARD: Final = re.compile(r"\\(?P<literal>.)|[*?]|\[[^\]]*\]?", re.DOTALL)


def everybody_is_member(_identity: str) -> tuple[str, ...]:
    """Return no roles, for `AccessPolicy`: where everybody is admitted, a name proves nothing."""
    return ()


class Rule(Struct, frozen=True):
    """A pattern of a role."""

    role: str
    action: Action
    pattern: str

    def __str__(self) -> str:
        return f"role {self.role}: {self.action} {self.pattern}"


class Decision(Struct, frozen=True):
    """Say whether an action is allowed, and which rule allows it."""

    action: Action
    target: str
    roles: tuple[str, ...]
    rule: Rule | None  # None if none allows it

    @property
    def is_allowed(self) -> bool:
        return self.rule is not None

    def __str__(self) -> str:
        if self.rule is not None:
            return f"allowed by {self.rule}"
        names = ", ".join(self.roles)
        return f"refused: no rule of {names} allows {self.action} {self.target}"


class Rights:
    """What one identity may do, or all with the same roles."""

    def __init__(self, identity: str, roles: Mapping[str, Role]) -> None:
        """`roles` are those of the identity, by name."""
        self.roles = tuple(roles)
        self._rules: dict[Action, list[tuple[re.Pattern[str], Rule]]] = {
            action: [
                (compile_pattern(pattern, identity), Rule(name, action, pattern))
                for name, role in roles.items()
                for pattern in role.patterns(action)
            ]
            for action in Action
        }
        self._unlimited = frozenset(
            action for action, rules in self._rules.items() if any(rule.pattern == EVERYTHING for _, rule in rules)
        )
        self._row_conditions = {
            name: {table: row_conditions(columns, identity) for table, columns in role.rows.items()}
            for name, role in roles.items()
            if role.rows
        }
        # Identities with the same roles have the same rights, unless a pattern contains their name.
        self.is_personal = any(OWN_NAME in pattern for role in roles.values() for pattern in role.all_patterns())
        self._allowed: dict[tuple[Action, str], bool] = {}

    def allows(self, action: Action, target: str) -> bool:
        """Return whether an action is allowed. This is the fast way: most decisions are cached."""
        if action in self._unlimited:
            return True
        key = (action, target)
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = self._find(action, target) is not None
            if len(target) <= ACCESS_TARGET_CHARS_MAX:  # the key of a redis command may have megabytes
                if len(self._allowed) >= ACCESS_DECISIONS_MAX:
                    self._allowed.clear()
                self._allowed[key] = allowed
        return allowed

    def sees(self, target: str) -> bool:
        """Return whether it may see something. This is not cached, because lists ask it of every item."""
        return Action.SEE in self._unlimited or self._find(Action.SEE, target) is not None

    @property
    def is_admin(self) -> bool:
        """Return whether it may also change identities, roles and devices, as the admin token may."""
        return ADMIN in self.roles

    def allows_all(self, action: Action) -> bool:
        """Return whether an action is allowed on every target."""
        return action in self._unlimited

    def allows_each(self, actions: frozenset[Action]) -> bool:
        """Return whether these actions are allowed on every target. It costs less than `allows_all` for one."""
        return actions <= self._unlimited

    def allows_besides(self, role: str, action: Action, target: str) -> bool:
        """Return whether an action is allowed by another role than this one."""
        return any(rule.role != role and regex.fullmatch(target) for regex, rule in self._rules[action])

    def row_filter(self, table: str) -> RowFilter | None:
        """Return which rows of a table may be read, or None if all: those that any role with the right to query it
        allows. Whether the table may be queried at all is another question.
        """
        if not self._row_conditions:
            return None
        alternatives = []
        for name in self.roles:
            conditions = self._row_conditions.get(name, {}).get(table)
            if conditions:
                alternatives.append(conditions)
            elif any(rule.role == name and regex.fullmatch(table) for regex, rule in self._rules[Action.QUERY]):
                return None
        return tuple(alternatives) or None

    def reads_whole(self, table: str) -> bool:
        """Return whether a table may be queried, and all of its rows read."""
        return self.allows(Action.QUERY, table) and self.row_filter(table) is None

    def rules(self, action: Action) -> list[Rule]:
        """Return the rules for an action."""
        return [rule for _, rule in self._rules[action]]

    def decide(self, action: Action, target: str) -> Decision:
        """Return the decision with the rule it follows from."""
        return Decision(action, target, self.roles, self._find(action, target))

    def _find(self, action: Action, target: str) -> Rule | None:
        return next((rule for regex, rule in self._rules[action] if regex.fullmatch(target)), None)


NO_RIGHTS: Final = Rights("", {})  # before the login


class AccessPolicy:
    """The decision point: every part of the gateway asks here."""

    def __init__(
        self,
        roles_of: Callable[[str], Sequence[str]],
        roles: Mapping[str, Role] | None = None,
        on_denied: OnDenied | None = None,
    ) -> None:
        """`roles_of` returns the names of an identity's roles; `roles` are those of the settings.

        `on_denied` is called for each refusal.
        """
        self._roles_of = roles_of
        self._on_denied = on_denied
        self._shared: dict[tuple[str, ...], Rights] = {}  # by roles
        self._personal: dict[str, Rights] = {}  # by identity, if a pattern contains its name
        self._admin = Rights(ADMIN, {ADMIN: BUILT_IN[ADMIN]})
        self.roles: Mapping[str, Role] = {}
        self.set_roles(roles or {})

    def set_roles(self, roles: Mapping[str, Role]) -> None:
        """Use these roles of the settings, besides the built-in ones, from now on."""
        check_roles(roles)
        self.roles = {**BUILT_IN, **roles}
        self._shared.clear()
        self._personal.clear()

    def rights(self, identity: str) -> Rights:
        """Return what an identity may do. A role that the settings no longer have allows nothing."""
        names = tuple(self._roles_of(identity)) or (MEMBER,)
        rights = self._shared.get(names) or self._personal.get(identity)
        if rights is None or rights.roles != names:
            rights = Rights(identity, {name: self.roles.get(name, Role()) for name in names})
            if rights.is_personal:
                _put(self._personal, identity, rights)
            else:
                _put(self._shared, names, rights)
        return rights

    def allows(self, identity: str, action: Action, target: str) -> bool:
        return self.rights(identity).allows(action, target)

    def rights_of(self, requester: Requester) -> Rights:
        """Return what a requester may do."""
        return self._admin if requester.is_admin else self.rights(requester.identity)

    def authorize(self, requester: Requester, action: Action, target: str, attempts: int = 1) -> None:
        """Raise AccessDeniedError, which is counted and recorded, if a requester may not do this.

        `attempts` is how often it asks at once: each counts, but there is one record.
        """
        if not self.rights_of(requester).allows(action, target):
            raise self.denied(requester, action, target, attempts)

    def authorize_all(self, requester: Requester, action: Action, glob: str) -> None:
        """Do the same for everything that a redis pattern matches."""
        if not self.rights_of(requester).allows(action, glob_target(glob)):
            raise self.denied(requester, action, glob)

    def denied(self, requester: Requester, action: Action, target: str, attempts: int = 1) -> AccessDeniedError:
        """Return the error of a refusal, which is counted and recorded."""
        error = AccessDeniedError(requester.identity, action, target, attempts)
        if self._on_denied is not None:
            self._on_denied(requester, error)
        return error

    def decide(self, identity: str, action: Action, target: str) -> Decision:
        return self.rights(identity).decide(action, target)


def _put(cache: dict[_Key, Rights], key: _Key, rights: Rights) -> None:
    if len(cache) >= ACCESS_IDENTITIES_MAX:
        cache.clear()
    cache[key] = rights


def glob_target(glob: str) -> str:
    """Return the target that stands for everything a redis pattern (*, ?, [a-z], \\x) matches.

    A role allows it if it allows each of these: only `**` covers a wildcard.
    """
    return _GLOB_WILDCARD.sub(lambda found: found["literal"] or WILDCARD, glob)
