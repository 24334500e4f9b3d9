"""Which records of the log belong to an audit, and what they say."""

from typing import Any

import pyarrow as pa

from wirelake.log.audit import SCHEMA, audit_rows
from wirelake.log.interface import SCHEMA as LOG_SCHEMA

PLACE = {"at": 0, "node": "n1", "protocol": "comet", "direction": "", "session": "s-1", "peer": "10.0.0.1:9"}


def batch_of(*records: dict[str, Any]) -> Any:
    rows = [
        {**PLACE, "seq": seq, "identity": "anna", "frame": b"", "note": "", **record}
        for seq, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, LOG_SCHEMA)


def test_every_kind_of_record() -> None:
    rows = audit_rows(
        batch_of(
            {"event": "login", "note": '{"resumed":true}'},
            {"event": "refuse", "identity": "", "note": '{"reason":"wrong_token","user":"bob"}'},
            {"event": "refuse", "direction": "in", "note": '{"reason":"unknown_device"}'},
            {"event": "deny", "note": '{"action":"publish","target":"@news"}'},
            {"event": "audit", "note": '{"action":"identity.add","target":"x","outcome":"failed","status":409}'},
            {"event": "logout"},
            {"event": "open"},
            {"event": "close", "note": '{"reason":"idle"}'},
        )
    )
    assert rows.schema == SCHEMA
    found = [(row["action"], row["outcome"], row["target"], row["detail"]) for row in rows.to_pylist()]
    assert found == [
        ("login", "ok", "", '{"resumed":true}'),
        ("login", "refused", "bob", '{"reason":"wrong_token"}'),
        ("packet", "refused", "", '{"reason":"unknown_device"}'),
        ("publish", "refused", "@news", ""),
        ("identity.add", "failed", "x", '{"status":409}'),
        ("logout", "ok", "", ""),
        ("connect", "ok", "", ""),
        ("disconnect", "ok", "", '{"reason":"idle"}'),
    ]
    assert rows["seq"].to_pylist() == list(range(8))
    assert {(row["identity"], row["peer"], row["session"]) for row in rows.slice(2).to_pylist()} == {
        ("anna", "10.0.0.1:9", "s-1")
    }


def test_other_records_and_sessions_without_an_identity_do_not_belong_to_it() -> None:
    nobody = {"identity": ""}
    rows = audit_rows(batch_of({"event": "frame"}, {"event": "open"} | nobody, {"event": "close"} | nobody))
    assert (rows.num_rows, rows.schema) == (0, SCHEMA)


def test_a_note_that_cannot_be_read_is_shown_as_it_is() -> None:
    (row,) = audit_rows(batch_of({"event": "refuse", "note": "[odd"})).to_pylist()
    assert (row["action"], row["outcome"], row["detail"]) == ("login", "refused", '{"note":"[odd"}')
