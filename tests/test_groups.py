"""Test that a group of tests runs in one worker: pytest-xdist finds the group at the end of a test's id."""

import pytest


@pytest.mark.xdist_group("spark")
def test_the_id_of_a_test_names_its_group(request: pytest.FixtureRequest) -> None:
    is_grouped = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@spark") == is_grouped
