from datetime import UTC, datetime
from pathlib import Path

import pytest
from browsing import Browser
from gateway.running_gateway import HOST, Running, running_gateway
from lake.writing import write
from playwright.async_api import Page, expect
from redis.asyncio import Redis

from console.visiting import NASTY, visit
from wirelake.lake.progress import JobProgress, write_progress
from wirelake.lake.tables import LEDGER

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)


def test_figures_that_move_and_a_ledger(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await expect(page.locator("#verdict")).to_contain_text("No ledger yet")
        client = Redis(port=running.port("redis"), username="ann", password="anns")
        for number in range(50):
            await client.publish("quotes", number)
        row = page.locator("#protocols tr", has_text="redis")
        await expect(row.locator("td").nth(7)).to_have_text(str(running.gateway.counters.frames_in["redis"]))
        await expect(page.locator("#connections")).not_to_have_text("–")
        assert await page.locator("#frames-plot path.line").get_attribute("d")
        await expect(page.locator("#lag")).to_have_text("–")
        await expect(page.locator("#lag-note")).to_have_text("No pipeline has run yet.")
        write_progress(running.gateway.folder, JobProgress(pid=1, next_seq=running.gateway.log.next_seq - 7))
        await expect(page.locator("#lag")).to_have_text("7")
        await expect(page.locator("#lag-note")).to_have_text("The pipeline is not running.")
        lake = running.gateway.folder / "lake"
        sums = {"hour": HOUR, "received": 51, "decoded": 51}
        write(lake, LEDGER, {**sums, "protocol": "redis", "balanced": True})
        await page.reload()
        await expect(page.locator("#verdict")).to_have_text("Balanced: 51 frames received, each in exactly one state.")
        await browser.screenshot(page, "overview")
        write(lake, LEDGER, {**sums, "protocol": NASTY, "balanced": False, "why": "received 51, but decoded = 50"})
        await page.reload()
        await expect(page.locator("#verdict")).to_contain_text("Not balanced")
        await expect(page.locator("#verdict")).to_contain_text("received 51, but decoded = 50")
        await expect(page.locator("#verdict")).to_contain_text(NASTY)
        await browser.screenshot(page, "overview-unbalanced")
        await client.aclose()

    visit(browser, tmp_path, story, "redis", identities=[("ann", "anns")])


@pytest.mark.parametrize("path", ["/", "/tables", "/topics"])
def test_a_page_left_open_while_the_gateway_is_started_anew(browser: Browser, tmp_path: Path, path: str) -> None:
    async def story(page: Page) -> None:
        async with running_gateway(tmp_path, "http") as running:
            port, token = running.port("http"), running.gateway.keys.admin_token()
            await page.goto(f"http://{HOST}:{port}{path}")
            await log_in(page, token)
            await page.wait_for_load_state("load")  # its scripts run
        await expect(page.locator("#message")).to_contain_text("does not respond")
        async with running_gateway(tmp_path, "http", ports={"http": port}):
            await log_in(page, token)  # it redirects to the login by itself
            assert page.url == f"http://{HOST}:{port}{path}"
            await page.goto("about:blank")

    browser.run(story, forgiving=("net::ERR_", "401"))


async def log_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("button", name="Log out").wait_for()


def test_dark_and_at_phone_width(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await expect(page.locator("#connections")).not_to_have_text("–")
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, "the page itself does not scroll sideways"
        await browser.screenshot(page, "overview-phone-dark")
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.get_by_role("button", name="Switch theme").click()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != dark

    size = {"width": 390, "height": 844}
    visit(browser, tmp_path, story, "redis", context={"viewport": size, "color_scheme": "dark"})
