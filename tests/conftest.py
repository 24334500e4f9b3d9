from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from browsing import Browser

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile(
    "untimed",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One for all tests of this process."""
    from browsing import Browser  # only tests that want one pay for it

    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()
