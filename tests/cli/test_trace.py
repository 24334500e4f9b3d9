import asyncio
import json
from pathlib import Path

from click.testing import CliRunner
from gateway.running_gateway import running_gateway
from tracing.writing import ID, Written

from cli.serving import wirelake as wirelake_process
from cli.serving import write_settings
from wirelake.cli.main import wirelake


def test_from_the_data_folder_itself(tmp_path: Path) -> None:
    written = Written(tmp_path)
    hers = {"protocol": "http", "session": "s-9", "identity": "anna", "peer": "127.0.0.1:9"}
    written.add("frame", b'{"content":"hi \\u001b[31m"}', direction="in", **hers)
    written.publish(content=b"hi \x1b[31m")
    written.deliver(2, 2, ("s-1", "[bold]bob"))
    written.add("ack", note={"identity": "[bold]bob", "acked": [ID]})
    written.close()
    done = CliRunner().invoke(wirelake, ["trace", ID, "--data", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"notification {ID}\non @a, position 2, type 0, by anna\n" in done.stdout
    assert "no longer stored in the topic; subscribers: 1 (1 acked)" in done.stdout
    assert "+0.000 ms  frame    http frame from anna" in done.stdout
    assert "s-9  127.0.0.1:9  27 B  7b 22" in done.stdout
    assert "+3.000 ms  ack      acked by [bold]bob" in done.stdout
    assert "\x1b" not in done.stdout, "what came by wire does not steer the terminal"
    as_json = CliRunner().invoke(wirelake, ["trace", ID, "--data", str(tmp_path), "--json"])
    assert [event["what"] for event in json.loads(as_json.stdout)["timeline"]] == [
        "frame",
        "publish",
        "route",
        "deliver",
        "ack",
    ]
    assert not (tmp_path / "state.db").exists(), "looking makes nothing"


def test_what_is_not_known_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    done = wirelake_process("trace", "a-1-1", "--data", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("wirelake: no message 'a-1-1'")


async def test_through_a_running_gateway_and_after_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "http", identities=[("bob", "bobs-token")]) as running:
        settings = write_settings(tmp_path, ports={"http": running.port("http")})
        await running.gateway.state.topics.subscribe("bob", "@a")
        id_ = await running.publish("@a", "hello")
        words = ("trace", id_, "--json", "--config", str(settings))
        through_gateway = await asyncio.to_thread(wirelake_process, *words)
        bobs = tmp_path / "bobs"
        bobs.write_text("bob:bobs-token")
        hers = await asyncio.to_thread(wirelake_process, *words, "--token-file", str(bobs))
        others = await running.publish("@b", "not for bob")
        words_of_bob = ("trace", others, "--config", str(settings), "--token-file", str(bobs))
        refused = await asyncio.to_thread(wirelake_process, *words_of_bob)
        unknown = await asyncio.to_thread(wirelake_process, "trace", "a-1-1", "--config", str(settings))
    assert (refused.returncode, f"access denied: see traces/{others}" in refused.stderr) == (1, True)
    assert "no message 'a-1-1'" in unknown.stderr
    read = await asyncio.to_thread(wirelake_process, *words)
    assert json.loads(read.stdout) == json.loads(through_gateway.stdout), "the same, whoever puts it together"
    assert [event["what"] for event in json.loads(hers.stdout)["timeline"]] == ["publish"]
    assert json.loads(through_gateway.stdout)["deliveries"] == [{"identity": "bob", "state": "pending"}]
