from pathlib import Path

import pytest

from layout.export.kaitai_compiler import install_compiler


@pytest.fixture(scope="session")
def kaitai(pytestconfig: pytest.Config) -> Path:
    """Provide the folder with the Kaitai Struct compiler."""
    return install_compiler(pytestconfig)
