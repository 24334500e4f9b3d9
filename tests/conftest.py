from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browsing import Browser


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One for all tests of this process."""
    from browsing import Browser  # only tests that want one pay for it

    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()
