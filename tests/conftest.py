import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from browsing import Browser
    from object_storage import S3Server

    from wirelake.lake.object_store import ObjectStore

# The duration of an example depends on how busy the machine is, so it says nothing about the code.
settings.register_profile(
    "untimed",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

# Tests start hundreds of Python processes, which would each compile our sources, and dozens of JVMs, which live too
# short to gain from the slower of Java's two compilers.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
FAST_START = "-XX:TieredStopAtLevel=1"
os.environ.setdefault("SPARK_SUBMIT_OPTS", FAST_START)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", FAST_START)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", FAST_START)

EVENT_LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a test on asyncio's event loop, or on those its `asyncio` mark names; `wirelake serve` uses uvloop."""
    marker = item.get_closest_marker("asyncio")
    if marker is not None and "loop_factories" in marker.kwargs:
        return EVENT_LOOPS
    return {"asyncio": EVENT_LOOPS["asyncio"]}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Append its group to the id of a test, from which pytest-xdist schedules groups.

    pytest-xdist 3.8 does so itself, but where pytest 9.2 no longer keeps the id, so groups had no effect.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = "_".join(sorted({mark.args[0] for mark in item.iter_markers("xdist_group")}))
        if group and not item.nodeid.endswith(f"@{group}"):
            item._id = item.id.parse(f"{item.nodeid}@{group}")


def pytest_runtest_teardown() -> None:
    """Release what a failed test left open: the warning about an open socket would else fail a later test."""
    if getattr(sys, "last_value", None) is not None:  # where pytest keeps the exception until the next test
        sys.last_type = sys.last_value = sys.last_traceback = None
        if sys.version_info >= (3, 12):
            sys.last_exc = None
        gc.collect()


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Provide one browser for all tests of this process."""
    from browsing import Browser  # imported here so that only tests with a browser need it

    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    """Provide one S3 server for all tests of this process."""
    from object_storage import run_s3_server  # imported here so that only tests with a store need it

    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def versity_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    """Provide a server that checks signatures and conditions as S3 does, where there is one or go can build it."""
    from object_storage import find_versity_server, run_versity_server

    with run_versity_server(find_versity_server(), tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture
def s3_lake(s3_server: "S3Server") -> "ObjectStore":
    """Return an empty lake in a bucket of the S3 server."""
    return s3_server.new_lake()
