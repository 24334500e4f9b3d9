"""Compute row by row what the pipeline computes column by column: the definition that the columns are compared with."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from pipeline.histories import Record

HOUR_US = 3_600_000_000
Event = tuple[Any, ...]


def delivery_events(records: list[Record]) -> list[Event]:
    """Return (key, seq, at, node, session, name, service, correlation, number, until, note)."""
    found: list[Event] = []
    for row in records:
        place = (row["seq"], row["at"], row["node"])
        note = json.loads(row["note"]) if row["event"] in ("deliver", "ack", "expire") else {}
        if row["event"] == "deliver":
            known: set[str] = set()
            for session, identity, *protocol in json.loads(row["frame"]):
                if identity not in known:
                    common = (note["topic"], note["ids"], note["first"], note["last"])
                    found.append((identity, *place, session, "deliver", *common, protocol[0] if protocol else ""))
                known.add(identity)
        elif row["event"] == "expire":
            found.append(("", *place, None, "expire", note["topic"], None, note["first"], note["last"], None))
        elif row["event"] == "ack" and "through" in note:
            through = (note.get("topic"), note["ids"], None, note["through"], None)
            found.append((note["identity"], *place, None, "through", *through))
        elif row["event"] == "ack":
            found.append((note["identity"], *place, None, "ack", None, None, None, None, note["acked"]))
    return sorted(found, key=repr)


def tallies(records: list[Record], decoded: set[int]) -> list[Event]:
    """Return (node, seq, first seq, records, {(hour, protocol, what): count}). `decoded` are seqs of messages."""
    found: list[Event] = []
    for node in sorted({row["node"] for row in records}):
        run: list[Record] = []
        for row in [*(each for each in records if each["node"] == node), None]:
            if row is not None and row["event"] != "counters":
                run.append(row)
                continue
            if run:
                seq = run[-1]["seq"] if row is None else row["seq"] - 1
                found.append((node, seq, run[0]["seq"], len(run), _counted(run, decoded)))
            run = []
    return found


def _counted(run: list[Record], decoded: set[int]) -> dict[tuple[int, str, int], int]:
    counts: Counter[tuple[int, str, int]] = Counter()
    for row in run:
        place = (row["at"] // HOUR_US * HOUR_US, row["protocol"])
        is_in, is_frame = row["direction"] == "in", row["event"] == "frame"
        if is_in and (is_frame or row["event"] == "quarantine"):
            counts[*place, 0] += 1
            counts[*place, 1 if row["seq"] in decoded else 2] += 1
        elif is_frame and row["direction"] == "out":
            counts[*place, 3] += 1
    return dict(counts)


def notifications(records: list[Record]) -> list[dict[str, Any]]:
    found = []
    for row in records:
        if row["event"] == "publish":
            note, at = json.loads(row["note"]), datetime.fromtimestamp(row["at"] / 1e6, UTC)
            columns = {name: note[name] for name in ("id", "topic", "position", "type")}
            columns |= {name: row[name] for name in ("seq", "node", "protocol")}
            found.append(columns | {"publisher": note["by"], "content": row["frame"], "day": at.date()})
    return found
