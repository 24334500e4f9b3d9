"""Kernels are kept wherever there is room; without any, they still run. In processes of their own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pipeline.ingest.inputs import captured

from wirelake.pipeline.spark.daemon import warm
from wirelake.protocols.apostol import columns as apostol
from wirelake.protocols.kernel_columns import KernelDecoder, column_decoder
from wirelake.protocols.registry import get

MODULE = """
from wirelake.jit import kernel
@kernel
def twice(number):
    return 2 * number
"""


def run(code: str, **environment: str) -> str:
    given = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**given, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Neither the package's nor the home's: a file stands where they would make a folder."""
    package, home, temporary = tmp_path / "package", tmp_path / "home", tmp_path / "tmp"
    package.mkdir()
    temporary.mkdir()
    (package / "small.py").write_text(MODULE)
    (package / "__pycache__").write_text("in the way")
    home.write_text("in the way")
    code = "import sys; sys.dont_write_bytecode = True; import small; print(small.twice(21))"
    places = {"PYTHONPATH": str(package), "HOME": str(home), "XDG_CACHE_HOME": str(home), "TMPDIR": str(temporary)}
    assert run(code, **places) == "42"
    (folder,) = temporary.iterdir()
    assert folder.name == f"wirelake-kernels-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.rglob("*.nbi"))


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / f"wirelake-kernels-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"wirelake-kernels-{os.getuid()}").chmod(0o777)
    code = "from wirelake.jit import cache_folder; print(cache_folder())"
    found = Path(run(code, TMPDIR=str(tmp_path)))
    assert found.name != f"wirelake-kernels-{os.getuid()}"
    assert found.stat().st_mode & 0o077 == 0


def test_inside_a_wheel(tmp_path: Path) -> None:
    """As executors of a cluster get it."""
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", MODULE)
    assert run("import small; print(small.twice(21))", PYTHONPATH=str(wheel), TMPDIR=str(tmp_path)) == "42"


def test_warm_leaves_nothing_to_compile() -> None:
    """Whatever the batch: a slice, a copy, buffers that may be written or not, nothing good, nothing at all."""
    warm()
    comet = column_decoder(get("comet"))
    assert isinstance(comet, KernelDecoder)
    frames = [frame for frame, _ in captured("apostol")]
    column = pa.array(frames, pa.binary())
    mutable = pa.Array.from_buffers(
        pa.binary(), len(frames), [None, *(pa.py_buffer(bytearray(part)) for part in column.buffers()[1:])]
    )
    unaligned = pa.py_buffer(b"x" + column.buffers()[1].to_pybytes()).slice(1)
    crooked = pa.Array.from_buffers(pa.binary(), len(frames), [None, unaligned, column.buffers()[2]])
    for each in (column, mutable, crooked, column[3:], column[:0], pa.array([b"", b"x"]), pa.array([], pa.binary())):
        apostol.decode(each)
        comet.decode(each, np.zeros(len(each), np.bool_))
        apostol.parse_packets(each)
    loaded = (apostol.message_kernel(), apostol.packet_kernel(), comet.kernel)
    kernels: list[Any] = [each.parse_frames for each in loaded]
    assert [len(kernel.signatures) for kernel in kernels] == [1] * len(kernels)


GENERATED = """
from wirelake.jit import load_module
text = "from wirelake.jit import kernel\\n@kernel\\ndef twice(number):\\n    return 2 * number\\n"
module = load_module("small", text)
print(module.twice(21), module.twice.stats.cache_hits.total(), module.__file__)
"""


def test_a_generated_module_is_compiled_once_for_all_processes(tmp_path: Path) -> None:
    first, second = (run(GENERATED, XDG_CACHE_HOME=str(tmp_path)).split() for _ in range(2))
    assert first[0] == second[0] == "42"
    assert [int(first[1]), int(second[1])] == [0, 1]
    assert first[2] == second[2]
    assert Path(first[2]).parent == tmp_path / "wirelake" / "kernels"
    assert Path(first[2]).parent.stat().st_mode & 0o077 == 0


def test_a_generated_module_finds_a_folder_where_there_is_no_home(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.write_text("in the way")
    temporary.mkdir()
    found = run(GENERATED, HOME=str(home), XDG_CACHE_HOME=str(home), TMPDIR=str(temporary)).split()
    assert found[0] == "42"
    assert Path(found[2]).parent == temporary / f"wirelake-kernels-{os.getuid()}"


def test_a_generated_module_is_compiled_anew_when_its_pieces_change(tmp_path: Path) -> None:
    package = tmp_path / "pieces"
    package.mkdir()
    (package / "__init__.py").write_text("")
    code = "from wirelake.jit import load_module; print(load_module('small', 'NUMBER = 1', 'pieces.one').__name__)"
    found = set()
    for text in ("ONE = 1", "ONE = 2"):
        (package / "one.py").write_text(text)
        found.add(run(code, PYTHONPATH=os.pathsep.join([*sys.path, str(tmp_path)]), XDG_CACHE_HOME=str(tmp_path)))
    assert len(found) == 2
