import asyncio
from pathlib import Path

from browsing import Browser
from gateway.running_gateway import HOST, Running, until
from playwright.async_api import Page, expect
from redis.asyncio import Redis

from console.visiting import NASTY, visit
from wirelake.clients.comet import CometClient

ANN = (NASTY, "anns")


def test_who_is_connected_how_fast_and_an_end_to_it(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        client = Redis(port=running.port("redis"), username="bob", password="bobs")
        await client.ping()
        async with CometClient(HOST, running.port("comet"), *ANN) as phone:
            await phone.subscribe("@news")
            await page.get_by_role("link", name="Sessions").click()
            row = page.get_by_role("row", name=NASTY)
            await expect(row).to_contain_text("comet")
            await expect(row).to_contain_text("up to date")
            other = page.get_by_role("row", name="bob")
            await expect(other).to_contain_text("redis")

            async def busy() -> None:
                while not is_seen:
                    await client.ping()
                    await asyncio.sleep(0.02)

            is_seen = False
            pinging = asyncio.create_task(busy())
            await expect(other.locator("td").nth(4)).not_to_have_text("0 / 0")
            await browser.screenshot(page, "sessions")
            is_seen = True  # the client may take a cancellation for its own
            await pinging

            button = row.get_by_role("button", name="Disconnect")
            await button.focus()
            for _ in range(2):
                async with page.expect_response("**/api/sessions?*"):
                    pass
            await expect(button).to_be_focused()
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_contain_text(NASTY)
            await browser.screenshot(page, "sessions-disconnect")
            await page.keyboard.press("Escape")
            await expect(dialog).to_be_hidden()
            assert any(each.identity == NASTY for each in running.gateway.connections.values()), "asked, and kept"
            old = {each.id for each in running.gateway.connections.values() if each.identity == NASTY}
            await button.press("Enter")
            await dialog.get_by_role("button", name="Disconnect").press("Enter")
            await expect(page.locator("#message")).to_contain_text("was disconnected")
            await until(lambda: not old & running.gateway.connections.keys())
        await client.aclose()

    visit(browser, tmp_path, story, "comet", "redis", identities=[ANN, ("bob", "bobs")])


def test_by_protocol_from_the_overview_and_a_slow_one_says_why(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        client = Redis(port=running.port("redis"), username="bob", password="bobs")
        await client.ping()
        async with CometClient(HOST, running.port("comet"), "ann", "anns"):
            await page.get_by_role("link", name="redis").click()
            await expect(page.get_by_label("Protocol")).to_have_value("redis")
            await expect(page.get_by_role("row", name="bob")).to_be_visible()
            await expect(page.get_by_role("row", name="ann")).to_have_count(0)
            await page.get_by_label("Protocol").select_option("comet")
            row = page.get_by_role("row", name="ann")
            await expect(row).to_be_visible()
            assert "protocol=comet" in page.url
            # A peer that does not read: nothing is sent, only its outbox says that much is pending.
            (connection,) = [each for each in running.gateway.connections.values() if each.identity == "ann"]
            connection.is_congested = True
            await expect(row).to_contain_text("slow consumer: not reading")
            connection.is_congested = False
            await expect(row).to_contain_text("up to date")
        await client.aclose()

    visit(browser, tmp_path, story, "comet", "redis", identities=[("ann", "anns"), ("bob", "bobs")])


def test_an_identity_sees_and_ends_its_own(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        client = Redis(port=running.port("redis"), username="bob", password="bobs")
        await client.ping()
        async with CometClient(HOST, running.port("comet"), "ann", "anns"):
            await page.get_by_role("link", name="Sessions").click()
            await expect(page.get_by_role("heading", name="Your sessions")).to_be_visible()
            row = page.get_by_role("row", name="bob")
            await expect(row).to_be_visible()
            await expect(page.get_by_role("row", name="ann")).to_have_count(0)
            await expect(page.get_by_role("link", name="Frames")).to_have_count(0)
            await row.get_by_role("button", name="Disconnect").click()
            await page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
            await expect(page.locator("#message")).to_contain_text("was disconnected")
            await until(lambda: {each.identity for each in running.gateway.connections.values()} == {"ann"})
        await client.aclose()

    people = [("ann", "anns"), ("bob", "bobs")]
    visit(browser, tmp_path, story, "comet", "redis", token="bob:bobs", identities=people)
