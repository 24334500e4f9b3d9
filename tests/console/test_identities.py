"""Roles and rights of the identities."""

from pathlib import Path

from browsing import Browser
from gateway.http.calling import BOB, calling
from gateway.running_gateway import HOST, Running
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit

ROLES = {"phone": {"subscribe": ["@news/**", f"@{NASTY.replace('**', '')}"], "see": ["topics/@news/*"]}}


def test_the_admin_changes_roles_and_sees_the_rights(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("link", name="Identities").click()
        await expect(page.get_by_role("row", name="bob").locator("td").nth(1)).to_have_text("member")
        await browser.screenshot(page, "identities")
        await page.get_by_role("link", name="bob").click()
        await expect(page.locator("[data-action=publish]")).to_contain_text("** (member)")
        await expect(page.locator("[data-action=query]")).to_contain_text("nothing")
        await page.get_by_label("phone").check()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("[data-action=publish]")).to_contain_text("nothing")
        await expect(page.locator("[data-action=subscribe]")).to_contain_text(f"@news/** (phone), @{NASTY}")
        await expect(page.get_by_label("phone")).to_be_checked()
        assert running.gateway.state.identities.roles_of("bob") == ("phone",)
        await browser.screenshot(page, "identity")
        await page.get_by_label("phone").uncheck()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("[data-action=publish]")).to_contain_text("** (member)")

    visit(browser, tmp_path, story, identities=[BOB], roles=ROLES)


def test_an_identity_sees_its_own_rights(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("link", name="bob").click()
        await expect(page.locator("#assigned")).to_have_text("phone")
        await expect(page.locator("[data-action=see]")).to_contain_text("topics/@news/* (phone)")
        await expect(page.get_by_role("button", name="Save")).to_have_count(0)
        await page.goto(f"http://{HOST}:{running.port('http')}/identities/ann")
        await expect(page.get_by_role("alert")).to_contain_text("admin only")

    people = [(*BOB, "phone"), ("ann", "anns")]
    visit(browser, tmp_path, story, token=":".join(BOB), identities=people, roles=ROLES, forgiving=("403",))


async def test_pages_of_roles_with_few_rights(tmp_path: Path) -> None:
    """No page fails, and none shows what the roles do not allow."""
    roles = {"nothing": {}, "reader": {"query": ["gold.ledger"]}, "chief": {"see": ["overview", "log"]}}
    async with calling(tmp_path, identities=[(*BOB, "nothing")], devices=[("m1", 0, None)], roles=roles) as caller:
        bob = ":".join(BOB)
        await caller.publish("@secret", "hidden")

        async def shown(path: str) -> str:
            response = await caller.call("GET", path, bearer=bob)
            assert response.status_code == 200, path
            return response.text

        topic = await shown("/topics/%40secret")
        assert "may not see this topic" in topic
        assert "You may not publish to this topic" in topic
        assert "You may not subscribe to this topic" in await shown("/topics/live")
        assert "your roles allow no SQL" in await shown("/tables")
        assert "Your sessions" in await shown("/sessions")
        device = await caller.call("GET", "/devices/m1", bearer=bob)
        assert (device.status_code, "access denied: see devices/m1" in device.text) == (403, True)
        await caller.assign("bob", "reader")
        tables = await shown("/tables")
        assert 'data-table="gold.ledger"' in tables
        assert "silver.messages" not in tables
        assert "Pipeline" not in tables
        await caller.assign("bob", "chief")
        assert "You may not query the ledger" in await shown("/")
        for path in ("/quarantine", "/workbench", "/inspector"):
            await shown(path)
        assert "log-session" in await shown("/inspector")
        await caller.assign("bob", "member")
        assert "You may not send commands to this device" in await shown("/devices/m1")
        assert (await caller.call("GET", "/identities/nobody")).status_code == 404


async def test_a_revoked_role_ends_the_live_snapshots(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[(*BOB, "observer")]) as caller:
        headers = {"authorization": "Bearer " + ":".join(BOB)}
        async with caller.client.stream("GET", "/console/live", headers=headers) as response:
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            await caller.assign("bob")
            assert len([line async for line in lines]) <= 4, "one that was under way, at most"
        refused = await caller.call("GET", "/console/live", bearer=":".join(BOB))
        assert refused.json()["error"]["message"] == "access denied: see overview"
