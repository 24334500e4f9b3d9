"""Compile an exported .ksy file with the Kaitai Struct compiler, and read bytes with the Python that it writes.

The compiler is installed from npm into pytest's cache, in the version of `node/package-lock.json`.
"""

import fcntl
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kaitaistruct import KaitaiStream, KaitaiStruct

from wirelake.protocols.frame import Sender

NODE = Path(__file__).parent / "node"
INSTALL_S = 300.0
COMPILE_S = 60.0


def install_compiler(config: pytest.Config) -> Path:
    """Return the folder with the compiler, which is installed if it is not there."""
    if shutil.which("node") is None or (npm := shutil.which("npm")) is None:
        pytest.skip("NOT TESTED: exported .ksy files, because node or npm is missing (Node 20 or later has both)")
    cache = config.cache
    assert cache is not None
    folder = cache.mkdir("kaitai")
    with (folder / "lock").open("w") as guard:  # several workers of pytest share the folder
        fcntl.flock(guard, fcntl.LOCK_EX)
        wanted = (NODE / "package-lock.json").read_text()
        stamp = folder / "installed"
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            for file in NODE.glob("*.json"):
                shutil.copy(file, folder)
            command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            if done.returncode:
                pytest.skip(f"NOT TESTED: exported .ksy files, because npm could not install: {done.stderr[-500:]}")
            stamp.write_text(wanted)
        shutil.copy(NODE / "compile.js", folder)
    return folder


def compile_ksy(compiler: Path, folder: Path, name: str, text: str) -> type[KaitaiStruct]:
    """Return the class that reads streams of the protocol."""
    source = folder / f"{name}.ksy"
    source.write_text(text)
    node = shutil.which("node")
    assert node is not None
    command = [node, str(compiler / "compile.js"), str(source), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location(f"kaitai_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[KaitaiStruct] = getattr(module, name.title().replace("_", ""))
    return found


def parse(reader: type[KaitaiStruct], data: bytes, sender: Sender) -> list[list[tuple[str, Any]]]:
    """Return the fields of each frame: their names, as in `topics size`, and values."""
    senders = getattr(reader, "Sender", None)  # a parameter if the frames of both ends differ
    arguments = [] if senders is None else [senders[sender.value]]
    with KaitaiStream(BytesIO(data)) as stream:
        found = reader(*arguments, stream).frames
        return [list(_fields(vars(frame).get("frame", frame))) for frame in found]


def _fields(read: KaitaiStruct, outer: str = "") -> Iterator[tuple[str, Any]]:
    values = {name: value for name, value in vars(read).items() if not name.startswith("_")}
    is_prefixed = _MADE_TYPE.fullmatch(type(read).__name__) is not None and set(values) <= _MADE_IDS
    for name, value in values.items():
        if name not in ("sender", "frame_kind"):
            yield from _field(_PREFIXED.get(name, "{}").format(outer) if is_prefixed else _name(name), value)


def _field(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _field(name, item)
    elif not isinstance(value, KaitaiStruct):
        yield name, value.value if isinstance(value, Enum) else value
    elif {"low", "bits", "groups"} & set(vars(value)):  # a length or a number that Kaitai does not have
        yield name, value.value
    elif "as_number" in vars(value):
        yield name, value.as_number
    else:
        yield from _fields(value, name)


# Types made for one field: an item of a list, or one that is optional.
_MADE_TYPE = re.compile(r"(Text|Bytes)\w*\d(le)?|\w+(List|Number)", re.IGNORECASE)
_MADE_IDS = {"len_value", "value", "num_items", "items"}
_PREFIXED = {"len_value": "{} size", "num_items": "{} count"}


def _name(name: str) -> str:
    """Return the name of a field as `wirelake decode` has it."""
    for prefix, word in (("len_", "size"), ("num_", "count")):
        if name.startswith(prefix):
            return f"{name.removeprefix(prefix)} {word}"
    return name
