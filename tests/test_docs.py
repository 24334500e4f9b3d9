"""The generated parts of the docs are what the code says."""

import re
from pathlib import Path

import pytest

import docs
from wirelake import layout
from wirelake.message import Message, Op
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Session
from wirelake.protocols.state_machine import StateMachine


@pytest.mark.parametrize("path", sorted(docs.pages()), ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == docs.pages()[path], "run ./dev docs"


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_each_protocol_has_its_generated_parts(name: str) -> None:
    page = (docs.DOCS / f"{name}.md").read_text()
    wanted = {"server", "client", "losses"} | ({"frames"} if registry.get(name).layout is not None else set())
    wanted |= {"esnp": {"lines"}, "sisnet": {"binary"}}.get(name, set())  # parts of their messages are described
    assert {found["what"] for found in docs.PART.finditer(page)} == wanted
    assert "stateDiagram-v2" in page


def test_the_reference_lists_what_authors_use() -> None:
    page = (docs.DOCS / "reference.md").read_text()
    for name in (*layout.__all__, *Message.__struct_fields__, *Protocol.__struct_fields__):
        assert re.search(rf"`[^`]*\b{name}\b", page), name
    for kind in (Session, StateMachine):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert f"`{name}" in page, f"{kind.__name__}.{name}"
    for op in Op:
        assert f"`app {op}`" in page
