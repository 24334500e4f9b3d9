from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import InputError
from wirelake.message import Operation
from wirelake.protocols.esnp.address import AddressUrl, not_found_text, parse_url

texts = st.text(max_size=10).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))
operations = st.builds(Operation, texts, texts, texts, texts, texts)
addresses = st.builds(AddressUrl, operations, st.none() | st.integers(0, 10**9))


@given(addresses)
def test_every_name_can_be_written_percent_encoded(address: AddressUrl) -> None:
    operation = address.operation
    names = (operation.host, operation.service, operation.op)
    path = "/".join(quote(name, safe="").replace("_", "%5F") or "_" for name in names)
    query = {"o": operation.object, "g": operation.group}
    if address.timeout_ms is not None:
        query["to"] = str(address.timeout_ms)
    assert parse_url(f"esnp://{path}?{urlencode(query)}") == address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("esnp://127.0.0.1:1080/test/add", AddressUrl(Operation("test", "add", host="127.0.0.1:1080"))),
        ("esnp://127.0.0.1:1080/test/_", AddressUrl(Operation("test", host="127.0.0.1:1080"))),
        ("esnp://_/test/add?o=it&g=red&to=1234", AddressUrl(Operation("test", "add", "it", group="red"), 1234)),
        ("esnp://_/%5F/_", AddressUrl(Operation("_"))),
        ("esnp://_/a%2Fb/_?trace=1", AddressUrl(Operation("a/b"))),
    ],
)
def test_known_addresses(url: str, address: AddressUrl) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize("url", ["esnp://", "esnp://_", "ESNP://_/_/", "esnp://_/_/_/"])
def test_absent_parts_may_be_left_out(url: str) -> None:
    assert parse_url(url) == AddressUrl(Operation(""))


@pytest.mark.parametrize("url", ["http://a/b/c", "esnp:/a", "esnp://a/b/c/d", "esnp://a/b?to=soon", "esnp://a?to=²"])
def test_bad_addresses_are_refused(url: str) -> None:
    with pytest.raises(InputError):
        parse_url(url)


def test_nobody_there_is_said_as_the_authors_say_it() -> None:
    assert not_found_text(Operation("S", "O", "x")) == "Address[20=O,30=S] not found ServiceHandler"
    assert not_found_text(Operation("S")) == "Address[30=S] not found ServiceHandler"
