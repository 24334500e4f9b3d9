import resource
import socket
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.serving import serving
from wirelake.cli.commands import doctor
from wirelake.cli.main import wirelake
from wirelake.cli.support import dependencies
from wirelake.errors import InputError
from wirelake.state.store import StateStore

OTHERS_OFF = "[listen]\n" + "\n".join(
    f'{name} = "off"' for name in ("magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
)


def run(folder: Path, extra: str = "", data: Path | None = None) -> Result:
    config = folder / "settings.toml"
    config.write_text(OTHERS_OFF + "\n" + (extra or 'comet = "off"'))
    return CliRunner().invoke(wirelake, ["doctor", "--config", str(config), "--data", str(data or folder / "new")])


def test_a_machine_in_order(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert "No problems found." in result.output
    assert "apostol, comet, esnp, magline, redis, sisnet" in result.output
    assert not (tmp_path / "new").exists(), "looking leaves nothing behind"


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = run(tmp_path, f'comet = "127.0.0.1:{port}"')
    assert result.exit_code == 1
    assert f"comet (127.0.0.1:{port})" in result.output


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    result = run(tmp_path, 'cornet = "off"')
    assert result.exit_code == 1
    assert "cornet" in result.output


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(tmp_path, data=tmp_path / "file" / "data")
    assert "is a file" in result.output
    assert result.exit_code == 1


def test_a_data_folder_without_the_right_to_write() -> None:
    """Not even root can create files in /proc."""
    (finding,) = [each for each in doctor.examine(None, Path("/proc/wirelake")) if "The data folder" in each.text]
    assert not finding.is_ok
    assert "is not writable" in finding.text


def test_too_little_room_too_few_files_too_old_a_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_MIN", 2**62)
    monkeypatch.setattr(doctor, "PYTHON_MIN", (99, 0))
    monkeypatch.setattr(doctor, "missing", lambda: ["no_such_module"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        result = run(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "MiB are free for the data folder" in result.output
    assert "ulimit -n" in result.output
    assert "install 3.11 or later" in result.output
    assert "no_such_module" in result.output
    assert "4 problems found." in result.output


def test_what_the_pipeline_would_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline_finding() -> doctor.Finding:
        (found,) = [
            each for each in doctor.examine(None, tmp_path) if each.text.startswith(("The pipeline", "No pipeline"))
        ]
        return found

    assert pipeline_finding().is_ok
    assert "PySpark" in pipeline_finding().text
    assert "Java" in pipeline_finding().text

    def no_java() -> None:
        raise InputError("Spark needs Java 17 or later")

    monkeypatch.setattr(doctor, "find_java", no_java)
    assert not pipeline_finding().is_ok
    assert "Spark needs Java 17" in pipeline_finding().text
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None if name == "pyspark" else True)
    assert pipeline_finding().is_ok  # a gateway needs none
    assert "pip install wirelake[pipeline]" in pipeline_finding().text


def test_a_gateway_that_runs_is_no_fault(tmp_path: Path) -> None:
    with serving(tmp_path, "comet") as served:
        result = served.run("doctor")
    assert result.returncode == 0, result.stdout
    assert f"The gateway of this data folder is running as process {served.process.pid}." in result.stdout


def test_a_folder_that_others_can_look_into(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o750)
    assert run(tmp_path, data=folder).exit_code == 0
    folder.chmod(0o755)
    result = run(tmp_path, data=folder)
    assert result.exit_code == 1
    assert f"chmod 700 {folder}" in result.output


def test_tokens_that_expire_soon_are_a_warning(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name, *options in (("soon", "--expires", "6d"), ("later", "--expires", "8d"), ("never",)):
        added = CliRunner().invoke(wirelake, ["identity", "add", name, *options, "--data", str(data)])
        assert added.exit_code == 0, added.output
    data.chmod(0o700)
    result = run(tmp_path, data=data)
    assert result.exit_code == 0, result.output
    assert "! The last token of 1 identity expires within 7 days: soon (20" in result.output
    rotated = CliRunner().invoke(wirelake, ["identity", "rotate", "soon", "--data", str(data)])
    assert rotated.exit_code == 0, rotated.output
    assert "expires within" not in run(tmp_path, data=data).output


# ── the key for the secrets in the state


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder whose state has a device with a key."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    store = StateStore(folder / "state.db")
    store.devices.add("meter", 6, bytes(16), 1)
    store.close()
    return folder


def run_with_key(folder: Path, data: Path, key: str = "") -> Result:
    return run(folder, f'comet = "off"\n[state]\nkey = "{key}"', data)


def test_a_key_in_the_data_folder_is_in_order(tmp_path: Path, data: Path) -> None:
    result = run_with_key(tmp_path, data)
    assert result.exit_code == 0, result.output
    assert "keys/state.key of the data folder, which protects a copy of state.db alone" in result.output


def test_a_key_that_others_can_read_is_a_problem(tmp_path: Path, data: Path) -> None:
    (data / "keys" / "state.key").chmod(0o640)
    result = run_with_key(tmp_path, data)
    assert result.exit_code == 1
    assert f"`chmod 600 {data / 'keys' / 'state.key'}`" in result.output


def test_a_key_that_is_missing_or_another_one_is_a_problem(tmp_path: Path, data: Path) -> None:
    key = data / "keys" / "state.key"
    other = key.rename(tmp_path / "moved.key")
    result = run_with_key(tmp_path, data)
    assert result.exit_code == 1
    assert f"{key} is missing" in result.output
    assert not key.exists(), "looking makes none"
    assert "with the key from file:" in run_with_key(tmp_path, data, f"file:{other}").output
    other.write_text(bytes(32).hex())
    assert "is another key" in run_with_key(tmp_path, data, f"file:{other}").output
    assert "is not in the environment" in run_with_key(tmp_path, data, "env:NO_KEY").output


def test_a_configured_key_beside_the_data_is_a_problem(tmp_path: Path, data: Path) -> None:
    result = run_with_key(tmp_path, data, f"file:{data / 'keys' / 'state.key'}")
    assert result.exit_code == 1
    assert "is in the data folder: whoever copies the folder has both" in result.output


def test_secrets_of_an_earlier_version_in_clear_text_are_a_problem(tmp_path: Path, data: Path) -> None:
    with sqlite3.connect(data / "state.db") as connection:
        connection.execute("INSERT INTO meta VALUES ('scrub', 1)")
    connection.close()
    assert "Unused parts of state.db may have secrets" in run_with_key(tmp_path, data).output
    with sqlite3.connect(data / "state.db") as connection:
        connection.execute("UPDATE meta SET value = '' WHERE name = 'key_id'")
    connection.close()
    result = run_with_key(tmp_path, data)
    assert result.exit_code == 1
    assert "in clear text: start the gateway, which encrypts them" in result.output
