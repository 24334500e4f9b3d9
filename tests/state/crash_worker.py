"""Works on a store until it is killed, and says on standard output what was confirmed.

    crash_worker.py PATH ROUND IN_FLIGHT

It says `ready` and waits for a line on standard input before it opens the store. Then it performs operation 0, 1, 2 …
of its round; what each does follows from its number alone, so that the number of the last confirmed one tells all.
"""

import sys
from pathlib import Path

from wirelake.commit import Commit
from wirelake.state.records import SeriesRecord
from wirelake.state.store import StateStore
from wirelake.state.tokens import TokenHash

OPERATIONS_MAX = 1200
KINDS = 6
SECRET = TokenHash(b"salt", b"digest", 2, 1, 1)
WAIT_S = 60


def is_acked(publish: int) -> bool:
    """Two of three are, so that acks run ahead of the cursor."""
    return publish // KINDS % 3 != 0


def is_removed(identity: int) -> bool:
    return identity // KINDS % 2 == 0


class Work:
    def __init__(self, store: StateStore, round_: int) -> None:
        self.store = store
        self.round = round_
        self.last_id = ""

    def perform(self, number: int) -> Commit:
        tag = f"{self.round}.{number}"
        store = self.store
        match number % KINDS:
            case 0:
                with store.writer.transaction():
                    notification, commit = store.topics.publish("@news", tag.encode(), number)
                    store.topics.publish("@twin", tag.encode(), number)
                self.last_id = notification.id
                return commit
            case 1:
                return store.topics.ack("reader", [self.last_id] if is_acked(number - 1) else [])
            case 2:
                with store.writer.transaction():
                    store.identities.add(tag, SECRET, number)
                    return store.topics.subscribe(tag, "@members")
            case 3:
                name = f"{self.round}.{number - 1}"
                return (store.remove_identity(name) if is_removed(number - 1) else None) or store.barrier()
            case 4:
                return store.records.set_many("sisdb", {}, {("key", "day"): [SeriesRecord(number, tag.encode())] * 3})
            case _:
                commit = store.values.set(b"last", tag.encode(), number) or store.barrier()
                if number % 4 == 1:
                    store.topics.sweep(0, 1, 10)
                return commit


def main() -> None:
    path, round_, in_flight = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    store = StateStore(path)
    work = Work(store, round_)
    if round_ == 0:
        store.topics.subscribe("reader", "@news").wait(WAIT_S)
    for number in range(OPERATIONS_MAX):
        commit = work.perform(number)
        if number % in_flight == 0:
            commit.wait(WAIT_S)
            print(number, flush=True)
    store.barrier().wait(WAIT_S)
    print(OPERATIONS_MAX - 1, flush=True)
    sys.stdin.readline()  # nothing comes: only the kill ends this


if __name__ == "__main__":
    main()
