"""Check with axe that no page has a serious fault, in the light and the dark theme."""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from axe_playwright_python.async_playwright import Axe
from browsing import Browser
from gateway.running_gateway import HOST, Running
from playwright.async_api import Page
from redis.asyncio import Redis

from console.visiting import visit
from wirelake.clients.apostol import ApostolDevice
from wirelake.console.page import TITLES
from wirelake.console.pages import PAGES

SERIAL: Final = "meter-1"
NAMES: Final = {"topic": quote("@news", safe=""), "serial": SERIAL, "name": "ann"}
FILES: Final = {"/console/{name}", "/console/live", "/favicon.ico"}  # no pages
PATHS: Final = sorted(
    re.sub(r"\{(\w+)\}", lambda name: NAMES[name[1]], route.path)
    for route in PAGES
    if route.method == "GET" and route.path not in FILES
)

KNOWN: Final[dict[str, Any]] = {"identities": [("ann", "anns")], "devices": [(SERIAL, 6, None)]}
FILLED: Final = {  # present once the page's script has run
    "/": "#protocols tbody tr",
    "/sessions": "#sessions tbody tr",
    "/topics": "#topics tbody tr",
    "/topics/%40news": "#last li",
    "/devices": "#devices tbody tr",
    f"/devices/{SERIAL}": "#online.good",
    "/inspector": "#records tbody tr",
}


def test_every_page_of_the_menu_is_looked_at() -> None:
    assert {path for path in TITLES if any(route.path == path for route in PAGES)} <= set(PATHS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious(browser: Browser, tmp_path: Path, scheme: str) -> None:
    async def story(page: Page, running: Running) -> None:
        client = Redis(port=running.port("redis"), username="ann", password="anns")
        await client.ping()
        await running.gateway.state.topics.subscribe("ann", "@news")
        id_ = await running.publish("@news", '{"a": 1}')
        async with ApostolDevice(HOST, running.port("apostol"), SERIAL) as device:
            await device.status(3)
            found: list[str] = []
            for path in PATHS:
                await page.goto(f"http://{HOST}:{running.port('http')}{path}")
                await page.locator(FILLED.get(path, "h1")).first.wait_for()
                found += [f"{path}: {fault}" for fault in await serious(page)]
            await page.goto(f"http://{HOST}:{running.port('http')}/sessions")
            await page.get_by_role("button", name="Disconnect").first.click()
            found += [f"the dialog: {fault}" for fault in await serious(page)]
            await page.goto(f"http://{HOST}:{running.port('http')}/inspector?hex={STATUS}")
            await page.locator("[data-field=serial]").wait_for()
            found += [f"decoded bytes: {fault}" for fault in await serious(page)]
            await page.goto(f"http://{HOST}:{running.port('http')}/trace?id={id_}")
            await page.locator("[data-what=publish]").wait_for()
            found += [f"a trace: {fault}" for fault in await serious(page)]
        assert not found, "\n".join(found)
        await client.aclose()

    visit(browser, tmp_path, story, "redis", "apostol", context={"color_scheme": scheme}, **KNOWN)


def test_no_page_scrolls_sideways_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        client = Redis(port=running.port("redis"), username="ann", password="anns")
        await client.ping()
        await running.publish("@news", "x" * 500)
        async with ApostolDevice(HOST, running.port("apostol"), SERIAL) as device:
            await device.status(3)
            for path in PATHS:
                await page.goto(f"http://{HOST}:{running.port('http')}{path}")
                await page.locator(FILLED.get(path, "h1")).first.wait_for()
                root = "document.documentElement"
                assert await page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0, path
            await page.goto(f"http://{HOST}:{running.port('http')}/sessions")
            await page.locator(FILLED["/sessions"]).first.wait_for()
            await browser.screenshot(page, "sessions-phone")
        await client.aclose()

    visit(browser, tmp_path, story, "redis", "apostol", context={"viewport": {"width": 390, "height": 844}}, **KNOWN)


STATUS: Final = "1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7"


async def serious(page: Page) -> list[str]:
    results = await Axe().run(page)
    found: list[dict[str, Any]] = results.response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]
