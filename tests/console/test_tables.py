from datetime import UTC, datetime, timedelta
from pathlib import Path

from browsing import Browser
from gateway.running_gateway import Running
from lake.writing import write
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.lake.tables import TRAFFIC_MINUTE

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_browse_ask_and_plot(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        rows = [
            {"minute": NOON + timedelta(minutes=n), "protocol": protocol, "name": NASTY, "frames": n * size}
            for n in range(30)
            for protocol, size in (("comet", 1), ("esnp", 2))
        ]
        write(running.gateway.folder / "lake", TRAFFIC_MINUTE, *rows)
        await page.get_by_role("link", name="Tables").click()
        await expect(page.get_by_role("row", name="gold.traffic_minute")).to_contain_text("60")
        await expect(page.locator("#stream")).to_contain_text("No pipeline has run")
        await page.get_by_role("button", name="gold.traffic_minute").click()
        await expect(page.locator("#about")).to_contain_text("60 rows in")
        await expect(page.locator("#rows")).to_contain_text(NASTY)
        await page.get_by_label("Examples").select_option("traffic by minute")
        await page.get_by_role("button", name="Plot").click()
        await expect(page.locator("#plot svg path")).to_have_count(2)
        await expect(page.locator(".legend")).to_contain_text("esnp")
        await browser.screenshot(page, "tables")
        await page.get_by_label("SQL").fill("SELECT 9007199254740993 AS large, 1 AS small")
        await page.get_by_role("button", name="Run").click()
        await expect(page.locator("#rows td")).to_have_text(["9007199254740993", "1"])
        await page.get_by_label("SQL").fill("SELECT nothing")
        await page.get_by_role("button", name="Run").click()
        await expect(page.locator("#message")).to_contain_text("nothing")

    visit(browser, tmp_path, story, forgiving=("400",))


def test_a_question_in_the_address_is_not_run_without_a_click(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "linked" in (request.post_data or "") else None)
        await page.goto(f"{page.url.rstrip('/')}/tables?sql=SELECT+1+AS+linked")
        await expect(page.get_by_label("SQL")).to_have_value("SELECT 1 AS linked")
        await expect(page.locator("#about")).to_contain_text("not run")
        await expect(page.locator("#stream")).to_contain_text("No pipeline has run")
        assert not asked
        await page.get_by_role("button", name="Run").click()
        await expect(page.locator("#rows td")).to_have_text(["1"])
        assert len(asked) == 1

    visit(browser, tmp_path, story)
