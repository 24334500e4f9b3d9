"""Who did what, on a page."""

from pathlib import Path
from urllib.parse import quote

import pytest
from browsing import Browser
from gateway.http.calling import BOB, calling
from gateway.running_gateway import HOST, Running
from lake.writing import write
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.lake.tables import AUDIT

MENU_PIXELS = 1200  # a window so wide shows the menu in one line


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_newest_events_by_filter(browser: Browser, tmp_path: Path, scheme: str) -> None:
    async def story(page: Page, running: Running) -> None:
        write(running.gateway.folder / "lake", AUDIT, {"action": "login"})
        admin = {"authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        home = f"http://{HOST}:{running.port('http')}"
        await page.request.post(f"{home}/api/identities", data={"name": NASTY}, headers=admin)
        await page.request.put(f"{home}/api/identities/bob/roles", data={"roles": ["observer"]}, headers=admin)
        await page.request.post(f"{home}/api/lake/query", data={"sql": "SELECT 42"}, headers=admin)
        await page.request.get(f"{home}/api/topics", headers={"authorization": "Bearer bob:wrong"})
        await page.request.delete(
            f"{home}/api/identities/bob", headers={"authorization": f"Bearer {quote(BOB[0])}:{BOB[1]}"}
        )
        await page.get_by_role("link", name="Audit").click()
        rows = page.locator("#events tbody tr").filter(has_not_text="gold.ledger")  # the first page queries that
        await expect(rows).to_have_count(6)
        await expect(rows.nth(0)).to_contain_text("DELETE /api/identities/bob")
        await expect(rows.nth(2)).to_contain_text("sql SELECT 42")
        await expect(rows.nth(3)).to_contain_text("""before [], after ["observer"]""")
        await expect(rows.nth(4)).to_contain_text(NASTY)
        await expect(rows.nth(5)).to_contain_text("login")
        await browser.screenshot(page, f"audit-{scheme}")
        await page.get_by_label("Outcome").select_option("refused")
        await page.get_by_role("button", name="Show").click()
        await expect(rows).to_have_count(2)
        await page.get_by_label("Identity").fill("bob")
        await page.get_by_label("Time").select_option("last hour")
        await page.get_by_role("button", name="Show").click()
        await expect(rows).to_have_count(1)
        await expect(rows.nth(0)).to_contain_text("administer")
        await page.get_by_label("Action").fill("nothing")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator("#none")).to_have_text("No such event.")
        await page.get_by_role("link", name="Query the table").click()
        await expect(page.get_by_role("heading", name="Tables", exact=True)).to_be_visible()

    context = {"viewport": {"width": MENU_PIXELS, "height": 800}, "color_scheme": scheme}
    visit(browser, tmp_path, story, identities=[BOB], context=context)


def test_the_menu_fits_in_one_line(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, _running: Running) -> None:
        tops = await page.locator("nav a").evaluate_all("links => links.map((link) => link.offsetTop)")
        assert len(tops) == 11
        assert len(set(tops)) == 1

    visit(browser, tmp_path, story, context={"viewport": {"width": MENU_PIXELS, "height": 800}})


async def test_it_takes_a_right(tmp_path: Path) -> None:
    roles = {"auditor": {"see": ["audit"]}}
    async with calling(tmp_path, identities=[(*BOB, "auditor")], roles=roles) as caller:
        bob = ":".join(BOB)
        shown = await caller.call("GET", "/audit", bearer=bob)
        assert (shown.status_code, "Query the table" in shown.text) == (200, False)
        assert (await caller.call("GET", "/audit?before=x", bearer=bob)).status_code == 400
        await caller.assign("bob")
        refused = await caller.call("GET", "/audit", bearer=bob)
        assert (refused.status_code, "access denied: see audit" in refused.text) == (403, True)
        assert 'href="/audit"' not in refused.text
