import json
from pathlib import Path

from click.testing import CliRunner

from gateway.http.calling import BOB, calling
from wirelake.cli.main import wirelake
from wirelake.limits import HTTP_DECODE_BYTES_MAX

SUBSCRIBE = "000c030200024061000440622f63"


async def test_it_gives_what_the_command_line_gives(tmp_path: Path) -> None:
    printed = CliRunner().invoke(wirelake, ["decode", "comet", "--from", "server", "--json", f"{SUBSCRIBE} 0005"])
    async with calling(tmp_path, identities=[BOB]) as caller:
        body = {"protocol": "comet", "hex": f"{SUBSCRIBE} 0005", "from": "server"}
        response = await caller.call("POST", "/api/decode", body, bearer=":".join(BOB))
        assert response.status_code == 200, "bytes with a fault are taken apart too"
        assert response.json() == json.loads(printed.stdout)
        assert response.json()["error"]["code"]
        assert not caller.records("frame"), "it changes nothing"


async def test_bad_questions(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for body, code, says in (
            ({"protocol": "cornet", "hex": "00"}, "unknown_protocol", "did you mean comet?"),
            ({"protocol": "comet", "hex": "0g"}, "bad_request", "'g' (character 2)"),
            ({"protocol": "comet"}, "bad_request", "`hex`"),
            ({"protocol": "comet", "hex": "", "from": "both"}, "bad_request", "$.from"),
            ({"protocol": "comet", "hex": "", "transport": "pigeon"}, "bad_request", "has the transports tcp"),
        ):
            assert says in await caller.refused(400, code, "POST", "/api/decode", body)
        large = {"protocol": "comet", "hex": "00" * (HTTP_DECODE_BYTES_MAX + 1)}
        assert "HTTP_DECODE_BYTES_MAX" in await caller.refused(413, "too_large", "POST", "/api/decode", large)


async def test_what_could_this_be(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        guesses = (await caller.call("POST", "/api/identify", {"hex": SUBSCRIBE})).json()["guesses"]
        assert (guesses[0]["protocol"], guesses[0]["sender"]) == ("comet", "client")
        assert guesses[0]["reasons"]
        large = {"hex": "00" * (HTTP_DECODE_BYTES_MAX + 1)}
        assert "HTTP_DECODE_BYTES_MAX" in await caller.refused(413, "too_large", "POST", "/api/identify", large)
