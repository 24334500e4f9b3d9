"""A real browser for tests: one for all tests of a process, and a profile of its own for each of them.

The browser runs in an event loop of its own, in a thread, as long as the tests run; a test's story runs there too,
with its gateway and clients:

    def test_a_page(browser: Browser, tmp_path: Path) -> None:
        async def story(page: Page) -> None:
            async with running_gateway(tmp_path, "http") as running:
                await page.goto(f"http://{HOST}:{running.port('http')}/")
                await browser.screenshot(page, "start")

        browser.run(story)

Errors on the page's console, uncaught exceptions and failed requests make the test
fail, unless `forgiving` has a part of the text. build/screenshots has the last screenshot of a failed test too.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser as Chromium
from playwright.async_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Playwright,
    Request,
    async_playwright,
    expect,
)

SCREENSHOTS = Path(__file__).parent.parent / "build" / "screenshots"
STORY_S = 180.0  # only a failing test takes so long
PAGE_MS = 60_000.0  # for what a page should do at once; only a failing test waits so long
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

expect.set_options(timeout=PAGE_MS)  # it has a timeout of its own otherwise

Story = Callable[[Page], Awaitable[None]]


class Browser:
    """Run stories in a browser, which starts with the first story: a run without browser tests starts none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None

    def run(self, story: Story, *, forgiving: Sequence[str] = (), **context: Any) -> None:
        """Run a story; `context` goes to the browser's new_context: viewport, color_scheme, reduced_motion …"""
        self._wait(self._tell(story, forgiving, context))

    async def screenshot(self, page: Page, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        await page.screenshot(path=path)
        return path

    def close(self) -> None:
        if not self._thread.is_alive():
            self._loop.close()
            return
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _tell(self, story: Story, forgiving: Sequence[str], options: dict[str, Any]) -> None:
        chromium = await self._started()
        context = await chromium.new_context(**options)
        context.set_default_timeout(PAGE_MS)
        faults = Faults(context)
        try:
            page = await context.new_page()
            try:
                await _in_time(story(page))
            except BaseException as error:
                error.add_note(f"the browser's last sight: {await self._last_sight(page)}")
                for fault in faults.found:
                    error.add_note(f"the browser said: {fault}")
                raise
        finally:
            await context.close()
        unforgiven = [fault for fault in faults.found if not any(part in fault for part in forgiving)]
        assert not unforgiven, "the browser said: " + "; ".join(unforgiven)

    async def _last_sight(self, page: Page) -> Path | str:
        test = os.environ.get("PYTEST_CURRENT_TEST", "story").split(" ")[0].rpartition("::")[2]
        try:
            return await self.screenshot(page, f"failed-{''.join(c if c.isalnum() else '-' for c in test)}")
        except Error as error:
            return f"none: {error}"

    async def _started(self) -> Chromium:
        if self._chromium is None:
            program = shutil.which("chromium")
            assert program is not None, "chromium is not installed: ./dev test installs it where it may"
            self._playwright = await async_playwright().start()
            self._chromium = await self._playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        return self._chromium

    async def _stop(self) -> None:
        if self._chromium is not None:
            await self._chromium.close()
        if self._playwright is not None:
            await self._playwright.stop()


async def _in_time(work: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(STORY_S):
            await work
    except TimeoutError as error:  # which would lose its notes on the way to the test's thread
        raise AssertionError(f"the story took longer than {STORY_S:g} s, or waited in vain") from error


class Faults:
    """Collect the errors of the pages of a context."""

    def __init__(self, context: BrowserContext) -> None:
        self.found: list[str] = []
        context.on("console", self._said)
        context.on("weberror", lambda fault: self.found.append(f"not caught: {fault.error}"))
        context.on("requestfailed", self._failed)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.found.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure == "net::ERR_ABORTED":
            return  # the browser left the page that sent the request
        self.found.append(f"{request.method} {request.url} failed: {request.failure}")
