from collections.abc import Iterator

import pytest
from browsing import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of this process."""
    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()
