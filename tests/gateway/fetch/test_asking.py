from typing import Any

import pytest

from wirelake.errors import InputError
from wirelake.gateway.fetch.exchange import build_request
from wirelake.gateway.fetch.urls import read_url
from wirelake.message import Kind, Message, Operation

BASE = "https://api.com/data/v1/api/master/"
OURS = ["Host: api.com", "Connection: close", "Accept-Encoding: identity"]


def asking(command: str = "getSecID.json", **fields: Any) -> Message:
    return Message(kind=Kind.REQUEST, target=Operation(BASE, command), fields=fields)


def head(message: Message) -> list[str]:
    return build_request(message).encode().partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")


def test_the_example_of_the_protocol() -> None:
    lines = head(asking(assetClass="E", exchangeCD="XSHE,XSHG"))
    assert lines[0] == "GET /data/v1/api/master/getSecID.json?assetClass=E&exchangeCD=XSHE%2CXSHG HTTP/1.1"
    assert lines[1:4] == OURS


def test_values_of_every_kind_in_the_query() -> None:
    lines = head(asking("x", a=1, b=True, c=[1, "z"], d={"e": None}, f=None, g="浦发 &=\r\n"))
    assert lines[0] == (
        "GET /data/v1/api/master/x?a=1&b=true&c=1&c=z&d=%7B%22e%22%3Anull%7D&g=%E6%B5%A6%E5%8F%91+%26%3D%0D%0A HTTP/1.1"
    )


def test_post_makes_it_a_post_of_json() -> None:
    asked = build_request(asking("x", a=1, post={"b": [2]}))
    wire = asked.encode()
    assert wire.startswith(b"POST /data/v1/api/master/x?a=1 HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 9\r\n" in wire
    assert b"\r\nContent-Type: application/json\r\n" in wire
    assert wire.endswith(b'\r\n\r\n{"b":[2]}')


def test_http_own_methods_as_a_command() -> None:
    assert head(asking("GET", a=1))[0] == "GET /data/v1/api/master/?a=1 HTTP/1.1"
    assert head(asking("POST"))[0] == "POST /data/v1/api/master/ HTTP/1.1"


def test_headers_are_added() -> None:
    lines = head(asking("x", headers={"X-Token": "a b", "accept": "text/html", "X-Number": 5}))
    assert {"X-Token: a b", "accept: text/html", "X-Number: 5"} <= set(lines)
    assert not any(line.startswith("Accept: ") for line in lines)


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"},
        {"X": "a\nb"},
        {"X": "a\x00b"},
        {"X": " a"},
        {"X": "漢"},
        {"X\r\nHost": "a"},
        {"X Y": "a"},
        {"X:": "a"},
        {"": "a"},
        {"Host": "evil"},
        {"hOsT": "evil"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "keep-alive"},
        {"Upgrade": "h2c"},
        {"TE": "trailers"},
        {"Trailer": "x"},
        {"Expect": "100-continue"},
        {"Accept-Encoding": "gzip"},
        {"Proxy-Authorization": "x"},
        {"X": "1", "x": "2"},
        {"X": "a" * 20_000},
        {f"X{number}": "" for number in range(65)},
        "X: y",
        ["X"],
    ],
)
def test_headers_that_could_mean_something_else_are_refused(headers: Any) -> None:
    with pytest.raises(InputError):
        build_request(asking("x", headers=headers))


@pytest.mark.parametrize("command", ["../x", "a/%2e%2e/x"])
def test_a_method_cannot_climb(command: str) -> None:
    with pytest.raises(InputError):
        build_request(asking(command))


def test_what_is_too_long_or_no_object_is_refused() -> None:
    with pytest.raises(InputError):
        build_request(asking("x", a="x" * 9000))
    with pytest.raises(InputError):
        build_request(Message(kind=Kind.REQUEST, target=Operation(BASE, "x"), payload=b"x"))
    with pytest.raises(InputError):
        build_request(Message(kind=Kind.REQUEST, target=Operation("http", "x")))


def test_what_was_meant_for_one_server_is_not_told_another() -> None:
    asked = build_request(asking("x", headers={"Authorization": "secret"}, post={}))
    assert asked.redirect(read_url("https://api.com/other"), as_get=False).headers == asked.headers
    moved = asked.redirect(read_url("https://other/"), as_get=True)
    assert (moved.headers, moved.body) == ((), None)
