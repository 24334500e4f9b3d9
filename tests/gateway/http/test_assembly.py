"""Check what HTTP and the console are built from."""

import ast
from pathlib import Path

import pytest

import wirelake

SOURCE = Path(wirelake.__file__).parent
MODULES = sorted([*(SOURCE / "gateway" / "http").rglob("*.py"), *(SOURCE / "console").rglob("*.py")])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_depends_on_the_whole_gateway(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=name) | ast.alias(name=name):
                assert name != "wirelake.gateway.gateway"
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                assert name not in {"Gateway", "gateway", "_gateway"}
            case ast.Constant(value=str(text)):
                assert text != "Gateway", "not even as a quoted annotation"
            case _:
                pass
