"""Decide which series of data sets a peer may read and write."""

from collections.abc import Generator

from wirelake.broker.access import AccessPolicy
from wirelake.broker.peer import Peer
from wirelake.limits import SISDB_RECORDS_AT_ONCE, STATE_SERIES_MAX
from wirelake.roles import WILDCARD, Action
from wirelake.services.selection import Names
from wirelake.state.records import ALL, SeriesStore, sort_in_steps

Series = tuple[str, str, str]  # data set, key, sdb


def target_of(series: Series) -> str:
    """Return the target of reading and writing a series."""
    dataset, key, sdb = series
    return f"datasets/{dataset}/{sdb}/{key}"


class RecordAccess:
    """Check series that a request names, and find those that it may see. Long searches run in steps."""

    def __init__(self, policy: AccessPolicy, records: SeriesStore) -> None:
        self._policy = policy
        self._records = records

    def authorize(self, peer: Peer, action: Action, dataset: str, names: Names) -> None:
        """Raise AccessDeniedError if the peer may not do this to a series that it names; `*` is what it may."""
        if not names.has_wildcard and not self._policy.rights_of(peer).allows_all(action):
            for key, sdb in names.each():
                self._policy.authorize(peer, action, target_of((dataset, key, sdb)))

    def authorize_tables(self, peer: Peer, action: Action, dataset: str, sdbs: str) -> None:
        """Raise AccessDeniedError if the peer may not do this to every series that the tables may ever have."""
        for sdb in sdbs.split(","):
            if not self._allows_table(peer, action, dataset, sdb):
                raise self._policy.denied(peer, action, target_of((dataset, ALL, sdb)))

    def find(
        self, peer: Peer, action: Action, dataset: str, names: Names, most: int
    ) -> Generator[None, None, list[tuple[str, str]]]:
        """Find (key, sdb) of existing series on which the peer may do this. Stop early beyond `most`."""
        rights = self._policy.rights_of(peer)
        if rights.allows_all(action):
            return (yield from self._records.find_in_steps(dataset, names.keys, names.sdbs, most))
        found = yield from self._records.find_in_steps(dataset, names.keys, names.sdbs, STATE_SERIES_MAX)
        allowed: list[tuple[str, str]] = []
        for start in range(0, len(found), SISDB_RECORDS_AT_ONCE):
            some = found[start : start + SISDB_RECORDS_AT_ONCE]
            allowed += [each for each in some if rights.allows(action, target_of((dataset, *each)))]
            if len(allowed) > most:
                break
            yield None
        return allowed

    def keys(self, peer: Peer, dataset: str, sdbs: str, most: int) -> Generator[None, None, list[str]]:
        """Return the keys of these tables that the peer may read, sorted; if there are more than `most`, maybe not."""
        if self._policy.rights_of(peer).allows_all(Action.READ):
            return (yield from self._records.keys_in_steps(dataset, sdbs, most))
        found = yield from self.find(peer, Action.READ, dataset, Names(ALL, sdbs), STATE_SERIES_MAX)
        return (yield from sort_in_steps({key for key, _ in found}))

    def tables(self, peer: Peer, dataset: str, sdbs: str) -> Generator[None, None, list[str]]:
        """Return the tables, of these or all, in which the peer may read all series, or at least one that exists."""
        if sdbs == ALL:
            known = yield from self._records.tables_in_steps(dataset)
        else:
            known = [sdb for sdb in dict.fromkeys(sdbs.split(",")) if self._records.has_table(dataset, sdb)]
        if self._policy.rights_of(peer).allows_all(Action.READ):
            return known
        found = yield from self.find(peer, Action.READ, dataset, Names(ALL, sdbs), STATE_SERIES_MAX)
        readable = {sdb for _, sdb in found}
        return [sdb for sdb in known if sdb in readable or self._allows_table(peer, Action.READ, dataset, sdb)]

    def _allows_table(self, peer: Peer, action: Action, dataset: str, sdb: str) -> bool:
        return self._policy.rights_of(peer).allows(action, target_of((dataset, WILDCARD, sdb)))
