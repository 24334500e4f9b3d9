import resource
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.serving import serving
from wirelake.cli.commands import doctor
from wirelake.cli.main import wirelake
from wirelake.cli.support import dependencies
from wirelake.errors import InputError

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
