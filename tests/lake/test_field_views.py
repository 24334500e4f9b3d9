"""Test the views with typed columns of what described protocols send."""

from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from msgspec import json

from lake.writing import write
from wirelake.errors import InputError
from wirelake.lake.field_views import field_views
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import MESSAGES
from wirelake.layout import (
    Body,
    Envelope,
    InUnits,
    LayoutFrame,
    MessageRule,
    MessageRules,
    bool8,
    bytes8,
    const,
    f32,
    i16,
    list8,
    scaled,
    text8,
    u8,
    u16,
    u64,
)
from wirelake.message import Kind
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COMMON = {"seq": 1, "received_at": AT, "day": date(2026, 1, 2), "protocol": "sampler", "name": "Sample Frame"}


class Packet(Envelope, frame_bytes_max=300):
    magic: Annotated[u8, const(0xBE)]
    body: Body


class Sample(LayoutFrame, frozen=True, envelope=Packet):
    small: u8
    large: u64
    share: f32
    is_on: bool8
    session: text8
    raw: bytes8
    numbers: list8[u16]
    texts: list8[text8]
    tenths: Annotated[i16, scaled(0.1, "°C")]


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> MessageRules:
    """Install a protocol with a field of every type, of which one is called like a column of the view."""
    names = [field.name for field in Sample.__layout_fields__]
    fields = {name: InUnits(name) if name == "tenths" else name for name in names}
    rules = MessageRules("sampler", {Sample: MessageRule(Kind.TELEMETRY, fields=fields, name="Sample Frame")})
    protocol = SimpleNamespace(name="sampler", message_rules=rules)
    monkeypatch.setattr(registry, "all_protocols", lambda: (protocol,))
    return rules


def test_fields_have_the_types_of_the_layout(tmp_path: Path, sampler: MessageRules) -> None:
    sample = Sample(255, 2**64 - 1, 0.5, True, "s'1", b"\0\xff", (1, 65535), ("a", 'b"'), -15)
    fields = sampler.to_message(sample, Sender.CLIENT).fields
    write(tmp_path, MESSAGES, {**COMMON, "session": "of the row", "fields": json.encode(fields).decode()})
    write(tmp_path, MESSAGES, {**COMMON, "seq": 2, "fields": '{"small": "no number"}'})
    write(tmp_path, MESSAGES, {**COMMON, "seq": 3, "name": "another"})
    columns = "small, large, share, is_on, session_, raw, numbers, texts, tenths"
    result = query(LocalStore(tmp_path), f"SELECT {columns}, session, received_at FROM fields.sampler_sample_frame")
    assert [column.type for column in result.columns][:9] == [
        *("BIGINT", "UBIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB", "BIGINT[]", "VARCHAR[]", "DOUBLE")
    ]
    first, second = sorted(result.rows, key=lambda row: row[0] is None)
    assert first[:9] == [255, 2**64 - 1, 0.5, True, "s'1", "00ff", [1, 65535], ["a", 'b"'], -1.5]
    assert first[9:] == ["of the row", "2026-01-02T03:04:05Z"]
    assert second[:9] == [None] * 9, "what does not fit the layout is null, and still in silver.messages"
    warm = "SELECT seq FROM fields.sampler_sample_frame WHERE tenths < 0 AND list_contains(numbers, 1)"
    assert query(LocalStore(tmp_path), warm).rows == [[1]]


def test_every_described_frame_with_fields_has_a_view(tmp_path: Path) -> None:
    views = field_views()
    assert {"fields.comet_subscribe", "fields.comet_report_environ"} <= set(views)
    assert "fields.comet_heartbeat" not in views, "it has no fields"
    for view in views.values():
        assert query(LocalStore(tmp_path), f"SELECT * FROM {view.name}").rows == []
    topics = query(LocalStore(tmp_path), "SELECT typeof(topics) FROM fields.comet_subscribe UNION SELECT 'x'").rows
    assert topics == [["x"]]


def test_a_view_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fields\.nothing does not exist! The views of fields are .*comet_subscribe"):
        query(LocalStore(tmp_path), "SELECT * FROM fields.nothing")
