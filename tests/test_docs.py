"""The generated parts of the docs are what the code says."""

from pathlib import Path

import pytest

import docs
from wirelake.protocols import registry


@pytest.mark.parametrize("path", sorted(docs.pages()), ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == docs.pages()[path], "run ./dev docs"


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_each_protocol_has_its_three_generated_parts(name: str) -> None:
    page = (docs.DOCS / f"{name}.md").read_text()
    assert {found["what"] for found in docs.PART.finditer(page)} == {"server", "client", "losses"}
    assert "stateDiagram-v2" in page
