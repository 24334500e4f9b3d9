import pytest

from wirelake import errors
from wirelake.gateway.http.errors import CODES, ApiError, api_error, service_error
from wirelake.message import Failure


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InputError("x"), 400, "bad_request"),
        (errors.UnknownProtocolError("x"), 400, "unknown_protocol"),
        (errors.ConflictError("x"), 409, "conflict"),
        (errors.TranslationError("x"), 400, "bad_request"),
        (errors.ProtocolError("crc", "x", 3), 400, "crc"),
        (errors.BusyError("x"), 429, "busy"),
        (errors.FullError("x"), 507, "full"),
        (errors.LogWriteError("x"), 503, "storage"),
        (errors.StateError("x"), 503, "unavailable"),
        (errors.WirelakeError("an inside matter"), 500, "internal"),
    ],
)
def test_whose_fault_it_is_decides_the_status(error: errors.WirelakeError, status: int, code: str) -> None:
    answer = api_error(error)
    assert (answer.status_code, answer.code) == (status, code)
    assert ("retry-after" in (answer.headers or {})) == (status in {429, 503})
    assert "inside" not in answer.detail


def test_the_body_has_one_form() -> None:
    assert ApiError(404, 'no "x"').body() == b'{"error":{"code":"not_found","message":"no \\"x\\""}}'


def test_a_services_number_is_the_status_only_where_it_can_be() -> None:
    found = [service_error(Failure("x", code)) for code in (-1, 0, 200, 399, 418, 599, 600)]
    assert [error.status_code for error in found] == [502, 502, 502, 502, 418, 599, 502]
    assert all(error.code for error in found)
    assert CODES[502] == "service_failed"
