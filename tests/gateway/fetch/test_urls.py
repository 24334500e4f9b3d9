from ipaddress import ip_address

import pytest

from wirelake.errors import InputError
from wirelake.gateway.fetch.urls import AllowList, Url, below, read_url, redirected


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h", Url("http", "h", 80, "/")),
        ("https://API.com:444/a/b?x=1", Url("https", "api.com", 444, "/a/b", "x=1")),
        ("http://[::1]:8/x", Url("http", "::1", 8, "/x")),
    ],
)
def test_urls_are_read(text: str, url: Url) -> None:
    assert read_url(text) == url
    assert read_url(str(url)) == url


@pytest.mark.parametrize(
    "text",
    [
        "ftp://h/",
        "//h/",
        "http://",
        "http://u:p@h/",
        "http://h/#x",
        "http://h:99999/",
        "http://h:0/",
        "http://h /",
        "http://h\r\nX: y/",
        "http://h\\@evil/",
        "http://h/a\\b",
        "http://bücher/",
        "http://h%00/",
        "http://[::1%25eth0]/",
        "http://[::zz]/",
        "http://h../",
        "http://h/a/../b",
        "http://h/a/%2e%2e/b",
        "http://h/a/%252e%252e/b",
        "http://h/a%2f..%2fb",
        "http://h/a%5c..%5cb",
        "http://h/" + "x" * 9000,
    ],
)
def test_what_is_no_url_to_fetch_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_url(text)


def test_a_method_stands_behind_the_base() -> None:
    base = read_url("https://api.com/data/v1/api/master/")
    assert str(below(base, "getSecID.json")) == "https://api.com/data/v1/api/master/getSecID.json"
    assert str(below(read_url("http://h/v1"), "/a b?#")) == "http://h/v1/a%20b%3F%23"
    assert below(base, "") == base
    for method in ("../x", "a/../../x", "%2e%2e/x", ".."):
        with pytest.raises(InputError):
            below(base, method)
    with pytest.raises(InputError):
        below(read_url("http://h/?a=1"), "x")


def test_the_list_covers_what_lies_below_its_urls() -> None:
    allowed = AllowList(["https://api.com/data/", "http://h:8080/v1"])
    for text in ("https://api.com/data/", "https://API.com:443/data/x/y", "http://h:8080/v1", "http://h:8080/v1/x"):
        assert allowed.covers(read_url(text)), text
    for text in (
        "http://api.com/data/x",
        "https://api.com:444/data/x",
        "https://api.com/",
        "https://api.com/data",
        "https://api.com/database",
        "https://api.com.evil/data/",
        "https://evil/api.com/data/",
        "http://h:8080/v10",
        "http://h/v1",
    ):
        assert not allowed.covers(read_url(text)), text
    assert not AllowList([]).covers(read_url("http://h/"))


def test_only_addresses_that_are_written_out_are_explicit() -> None:
    allowed = AllowList(["http://127.0.0.1:80/", "http://localhost:81/", "http://[fd00::1]/", "http://intranet/"])

    def named(text: str, address: str) -> bool:
        found = read_url(f"http://[{address}]/" if ":" in address else f"http://{address}/")
        return allowed.names_address(read_url(text), ip_address(found.host))

    assert named("http://127.0.0.1/", "127.0.0.1")
    assert named("http://localhost:81/", "127.0.0.1")
    assert named("http://localhost:81/", "::1")
    assert named("http://[fd00::1]/", "fd00::1")
    assert not named("http://localhost:81/", "10.0.0.1")
    assert not named("http://127.0.0.1:82/", "127.0.0.1")
    assert not named("http://intranet/", "10.0.0.1")
    assert not named("http://intranet:81/", "127.0.0.1")


@pytest.mark.parametrize("text", ["h", "ftp://h/", "http://h/?a=1", "http://u@h/"])
def test_a_bad_entry_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"fetch\.allow"):
        AllowList([text])


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("x", "http://h/a/x"),
        ("/x?y=1#z", "http://h/x?y=1"),
        ("//other/x", "http://other/x"),
        ("https://other:1/", "https://other:1/"),
    ],
)
def test_redirects_are_joined(location: str, url: str) -> None:
    assert str(redirected(read_url("http://h/a/b"), location)) == url


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[::1", "a\tb", "", "gopher://h/"])
def test_redirects_to_nowhere_are_refused(location: str) -> None:
    with pytest.raises(InputError):
        redirected(read_url("http://h/a/b"), location)
