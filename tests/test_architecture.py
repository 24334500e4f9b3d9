"""Only downwards: which room may import which, and what the pure rooms may not touch."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "wirelake"

GROUND = {"errors", "limits", "commit", "cleanup", "address", "files"}
MAY_IMPORT = {
    "errors": set[str](),
    "limits": set[str](),
    "address": {"errors"},
    "commit": {"errors"},
    "cleanup": {"errors"},
    "files": {"errors"},
    "backoff": {"limits"},
    "clock": {"errors", "limits"},
    "jit": set[str](),
    "message": GROUND,
    "config": GROUND | {"message", "protocols"},
    "protocols": GROUND | {"jit", "message"},
    "log": GROUND,
    "state": GROUND,
    "lake": GROUND,
    "broker": GROUND | {"message", "protocols", "state"},
    "services": GROUND | {"message", "protocols", "state", "broker"},
    "tracing": GROUND | {"protocols", "log", "state", "lake"},
    "gateway": GROUND
    | {"backoff", "clock", "message", "config", "protocols", "log", "state", "lake", "broker", "services", "tracing"},
    "console": GROUND | {"message", "config", "protocols", "log", "state", "lake", "broker", "tracing", "gateway"},
    "pipeline": GROUND | {"message", "config", "protocols", "log", "state", "lake"},
    "clients": GROUND | {"backoff", "message", "protocols"},
    "simulator": GROUND | {"backoff", "message", "protocols", "clients"},
    "cli": GROUND
    | {"message", "config", "protocols", "log", "state", "lake"}
    | {"tracing", "gateway", "console", "pipeline", "clients", "simulator"},
}
IMPURE = {"asyncio", "socket", "ssl", "select", "threading", "subprocess", "time", "random", "secrets", "uuid", "os"}
FILE_LINES_MAX = 500


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_lower_ones(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("wirelake.")}
    assert used <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("path", sorted((SOURCE / "protocols").rglob("*.py")), ids=lambda path: path.stem)
def test_protocols_are_pure(path: Path) -> None:
    """Time, randomness and sockets are passed in."""
    assert {name.split(".")[0] for name in imports(path)} & IMPURE == set()


def test_a_protocol_knows_no_other() -> None:
    """The redis form inside sisnet is the one meeting place."""
    for path in (SOURCE / "protocols").glob("*/*.py"):
        own = path.parent.name
        others = {name.split(".")[2] for name in imports(path) if name.startswith("wirelake.protocols.")}
        folders = {folder.name for folder in (SOURCE / "protocols").iterdir() if folder.is_dir()}
        met = others & folders - {own}
        assert met <= ({"redis"} if own == "sisnet" else set()), f"{path} imports {met}"


@pytest.mark.parametrize(
    "path",
    [path for room in ("pipeline", "lake", "tracing") for path in sorted((SOURCE / room).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_the_way_to_the_tables_names_no_protocol(path: Path) -> None:
    """What only a protocol knows comes through its object, so that an installed one is served alike."""
    names = "|".join(folder.name for folder in (SOURCE / "protocols").iterdir() if (folder / "protocol.py").exists())
    found = re.findall(rf"\b(?:{names}|sisdb)\b|\b(?:{names})_|_(?:{names})\b", path.read_text(), re.IGNORECASE)
    assert not found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_short_and_init_files_hold_no_code(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX
    if path.name == "__init__.py":
        assert all(isinstance(node, ast.Expr) for node in ast.parse(text).body)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_that_say_nothing_are_not_used(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}
