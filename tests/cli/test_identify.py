import json

import pytest
from click.testing import CliRunner, Result

from wirelake.cli.main import wirelake

APOSTOL = "1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7"
ESNP = (
    "1e00000108170000052806616464170000063c08746573741100000800000000054c56381500000402610502150000040262050300000000"
)
SISNET = "6e313a7b22616e73223a2d312c226d7367223a22626164227d"
COMET = "000c030200024061000440622f63"
RESP = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".hex()
MAGLINE = "7f01000400000000000000010000000400000007"


def run(*words: str) -> Result:
    return CliRunner().invoke(wirelake, ["identify", *words])


@pytest.mark.parametrize(
    ("hex_", "protocol", "sender"),
    [
        (APOSTOL, "apostol", "client"),
        (ESNP, "esnp", "client"),
        (SISNET, "sisnet", "server"),
        (COMET, "comet", "client"),
        (RESP, "redis", "client"),
        (MAGLINE, "magline", "client"),
    ],
)
def test_the_right_protocol_comes_first(hex_: str, protocol: str, sender: str) -> None:
    result = run("--json", hex_)
    assert result.exit_code == 0
    guesses = json.loads(result.output)
    assert guesses[0]["protocol"] == protocol
    assert sender in {guess["sender"] for guess in guesses if guess["protocol"] == protocol}
    assert guesses[0]["reasons"]


def test_reasons_are_given_in_words() -> None:
    result = run(APOSTOL)
    assert result.output.startswith("1. apostol")
    assert "CRC" in result.output


def test_a_capture_that_stops_inside_a_frame_is_still_known() -> None:
    result = run("--json", COMET + COMET[:10])
    best = json.loads(result.output)[0]
    assert best["protocol"] == "comet"
    assert "but the last frame is not whole" in best["reasons"]


def test_noise_is_none_of_them() -> None:
    result = run("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0")
    assert result.exit_code == 1
    assert "no protocol matches" in result.output
    assert run("--json", "fffefdfcfbfaf9f8").output == "[]\n"
