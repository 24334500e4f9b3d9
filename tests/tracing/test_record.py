import pytest

from wirelake.tracing.record import NotificationId, parse_trace_id


def test_what_can_be_asked_about() -> None:
    assert parse_trace_id("f82a8d91-1-1f") == NotificationId("f82a8d91-1-1f", "f82a8d91-1-", 31)
    assert parse_trace_id("4711") == 4711
    assert parse_trace_id("04c5c0-3") == "04c5c0-3"


@pytest.mark.parametrize("text", ["", "x", "-1", "a-b-c-d", "F-1-1", "a'-1", "a-1-1 ", "1" * 40, "٣", "a\n-1"])
def test_what_cannot(text: str) -> None:
    assert parse_trace_id(text) is None
