"""Test `audit`, with a gateway and after it stopped."""

import json
from pathlib import Path

from cli.serving import serving, wirelake, write_settings


def test_what_the_command_line_did_through_a_gateway(tmp_path: Path) -> None:
    with serving(tmp_path, "http") as running:
        config = ("--config", str(running.settings))
        token = wirelake("identity", "add", "phone-1", *config).stdout.strip()
        assert wirelake("identity", "roles", "phone-1", "observer", *config).returncode == 0
        assert wirelake("device", "add", "77", *config).returncode == 0
        assert wirelake("identity", "remove", "nobody", *config).returncode == 1
        printed = wirelake("audit", *config).stdout
        lines = printed.splitlines()
        assert lines[0].split()[2:] == ["identity", "peer", "protocol", "action", "target", "outcome", "detail"]
        assert [line.split()[5:8] for line in lines[1:]] == [
            ["identity.add", "phone-1", "ok"],
            ["identity.roles", "phone-1", "ok"],
            ["device.add", "77", "ok"],
            ["identity.remove", "nobody", "failed"],
        ]
        assert token
        assert token not in printed
    result = wirelake("audit", "--action", "identity.roles", "--identity", "admin", "--since", "1d", "--json", *config)
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["target"], row["outcome"], row["peer"].split(":")[0]) == ("phone-1", "ok", "127.0.0.1")
    assert row["detail"] == {"status": 204, "before": [], "after": ["observer"]}
    assert [json.loads(line)["target"] for line in _audit(config, "--limit", "1")] == ["nobody"]
    assert _audit(config, "--outcome", "refused") == []


def _audit(config: tuple[str, ...], *words: str) -> list[str]:
    return wirelake("audit", "--json", *words, *config).stdout.splitlines()


def test_without_a_gateway_nothing_is_recorded(tmp_path: Path) -> None:
    with serving(tmp_path, "http") as running:
        config = ("--config", str(running.settings))
    assert wirelake("identity", "add", "phone-1", *config).returncode == 0
    result = wirelake("audit", *config)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "No such event in the log.\n")


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    result = wirelake("audit", "--config", str(write_settings(tmp_path)))
    assert (result.returncode, result.stdout) == (1, "")
    assert str(tmp_path / "data" / "log") in result.stderr
