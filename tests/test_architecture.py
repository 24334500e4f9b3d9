"""Check the layers: which package may import which, and what pure packages must not use."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirelake.protocols import registry

SOURCE = Path(__file__).parent.parent / "src" / "wirelake"

GROUND = {"errors", "limits", "commit", "cleanup", "address", "files", "key_source", "roles"}
MAY_IMPORT = {
    "errors": set[str](),
    "limits": set[str](),
    "address": {"errors"},
    "commit": {"errors"},
    "cleanup": {"errors"},
    "files": {"errors"},
    "key_source": {"errors", "files", "limits"},
    "roles": {"errors", "limits"},
    "backoff": {"limits"},
    "clock": {"errors", "limits"},
    "jit": set[str](),
    "message": GROUND,
    "config": GROUND | {"message", "protocols"},
    "protocols": GROUND | {"jit", "message", "layout"},
    "layout": {"errors", "limits", "message", "protocols"},
    "log": GROUND,
    "state": GROUND,
    "lake": GROUND | {"protocols", "layout"},
    "broker": GROUND | {"message", "protocols", "state"},
    "services": GROUND | {"message", "protocols", "state", "broker"},
    "tracing": GROUND | {"protocols", "log", "state", "lake"},
    "gateway": GROUND
    | {"backoff", "clock", "message", "config", "protocols", "log", "state", "lake", "broker", "services", "tracing"},
    "workbench": {"errors", "limits", "protocols"},
    "capture": GROUND | {"config", "protocols", "log", "gateway", "workbench"},
    "console": GROUND
    | {"message", "config", "protocols", "log", "state", "lake", "broker", "tracing", "gateway", "workbench"},
    "pipeline": GROUND | {"message", "config", "protocols", "log", "state", "lake"},
    "clients": GROUND | {"backoff", "message", "protocols"},
    "simulator": GROUND | {"backoff", "message", "protocols", "clients"},
    "cli": GROUND
    | {"message", "config", "protocols", "layout", "log", "state", "lake", "broker"}
    | {"tracing", "gateway", "workbench", "capture", "console", "pipeline", "clients", "simulator"},
}
IMPURE = {"asyncio", "socket", "ssl", "select", "threading", "subprocess", "time", "random", "secrets", "uuid", "os"}
FILE_LINES_MAX = 500
PUBLIC_NAMES = {"layout"}  # packages whose `__init__.py` only imports and lists the names that users write


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_imports_only_lower_ones(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("wirelake.")}
    assert used <= MAY_IMPORT[package] | {package}


LAYOUT_USES = {f"wirelake.protocols.{name}" for name in ("frame", "protocol", "splitter", "tree")}


@pytest.mark.parametrize("path", sorted((SOURCE / "layout").glob("*.py")), ids=lambda path: path.stem)
def test_descriptions_use_only_the_base_of_protocols(path: Path) -> None:
    """Every protocol may describe its frames: so descriptions know the base classes, and no protocol."""
    assert {name for name in imports(path) if name.startswith("wirelake.protocols")} <= LAYOUT_USES


@pytest.mark.parametrize(
    "path",
    [path for package in ("layout", "protocols", "workbench") for path in sorted((SOURCE / package).rglob("*.py"))],
    ids=lambda path: path.stem,
)
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
    [path for package in ("pipeline", "lake", "tracing") for path in sorted((SOURCE / package).rglob("*.py"))],
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
        allowed = (ast.Expr, ast.ImportFrom, ast.Assign) if package_of(path) in PUBLIC_NAMES else ast.Expr
        assert all(isinstance(node, allowed) for node in ast.parse(text).body)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_that_say_nothing_are_not_used(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}


# ── parts take what they need, not the whole gateway

GATEWAY_BUILDERS = ("cli/",)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_parts_do_not_take_the_whole_gateway(path: Path) -> None:
    place = path.relative_to(SOURCE).as_posix()
    if not place.startswith(GATEWAY_BUILDERS):
        assert "wirelake.gateway.gateway" not in set(imports(path))


# ── no protocol is named outside its own package

PROTOCOLS = {name for built_in in registry.BUILT_IN for name in (built_in, *registry.get(built_in).aliases)}
NAMED_IN_CODE = ("clients/", "simulator/", *(f"protocols/{name}/" for name in registry.BUILT_IN))
SERVICE = "redis"  # also the gateway's own service for values, in services/redis/, which clients know by this name
SERVICE_MODULES = ("services/redis/", "gateway/builtin_services.py")
# Modules that are not clean yet. The list may only shrink.
STILL_NAMED = set[str]()


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes that are docstrings: prose, in which a protocol may be named."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def words(identifier: str) -> set[str]:
    """Return the words of snake_case, CamelCase and UPPER_CASE."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def identifiers(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield name.rpartition(".")[2]
            yield other or ""
        case _:
            pass


def protocols_named(path: Path) -> set[str]:
    """Return the protocols that a module's code names: in imports, identifiers and string constants."""
    tree = ast.parse(path.read_text())
    prose = docstrings(tree)
    found = {
        parts[2] for name in imports(path) if name.startswith("wirelake.protocols.") and (parts := name.split("."))
    }
    for node in ast.walk(tree):
        for identifier in identifiers(node):
            found |= words(identifier)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = node.value
            found |= {name for name in PROTOCOLS if text == name or text.startswith((f"{name}.", f"{name}_"))}
    return found & PROTOCOLS


def test_the_core_names_no_protocol() -> None:
    naming = set()
    for path in modules():
        place = path.relative_to(SOURCE).as_posix()
        named = protocols_named(path) - ({SERVICE} if place.startswith(SERVICE_MODULES) else set())
        if named and not place.startswith(NAMED_IN_CODE):
            naming.add(place)
    assert naming - STILL_NAMED == set(), "these modules name a protocol: let the Protocol object offer what they need"
    assert STILL_NAMED - naming == set(), "these modules are clean: take them off the list"


# ── one word, one thing

# Names that are not unique yet. The list may only shrink.
STILL_SHARED = set[str]()


def test_no_two_classes_share_a_name() -> None:
    """A protocol's package has its own frames, and parts parallel to those of its siblings."""
    places = defaultdict(list)
    for path in modules():
        place = path.relative_to(SOURCE).as_posix()
        if place.startswith(tuple(f"protocols/{name}/" for name in registry.BUILT_IN)):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(place)
    shared = {name for name, found in places.items() if len(found) > 1}
    assert shared - STILL_SHARED == set(), "two classes have this name: give each its own"
    assert STILL_SHARED - shared == set(), "these names are unique now: take them off the list"
