"""The notebooks of the examples, executed from the first to the last cell."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from examples.installed import EXAMPLES, WAIT_S

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def load(path: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


@pytest.mark.xdist_group("spark-processes")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    notebook = load(path)
    client = NotebookClient(notebook, timeout=WAIT_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises what a cell raises: the cells check their results
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not list(tmp_path.iterdir()), "it writes into a temporary folder only"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_results(path: Path) -> None:
    notebook = load(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


def test_there_is_one_about_the_tables() -> None:
    assert "spark-tables" in {path.stem for path in NOTEBOOKS}
