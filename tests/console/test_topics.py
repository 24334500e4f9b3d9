from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from browsing import Browser
from gateway.running_gateway import HOST, Running, until
from lake.writing import write
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.clients.comet import CometClient
from wirelake.lake.tables import NOTIFICATIONS

ANN = ("ann", "anns")
NASTY_TOPIC = "@" + NASTY


def address(running: Running, topic: str) -> str:
    return f"http://{HOST}:{running.port('http')}/topics/{quote(topic, safe='')}"


def test_the_list_a_topic_and_publishing(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        topics = running.gateway.state.topics
        await topics.subscribe("away", "@news")
        async with CometClient(HOST, running.port("comet"), *ANN) as phone:
            await phone.subscribe("@news")
            await running.publish("@news", '{"a":[1,{},[]],"n":12345678901234567890,"text":"gr\\"ü,ß"}')
            await running.publish("@news", b"\xff\x00\x10")
            await running.publish(NASTY_TOPIC, NASTY)
            await page.get_by_role("link", name="Topics").click()
            row = page.get_by_role("row", name="@news")
            await expect(row.locator("td")).to_have_text(["@news", "durable", "2", "1", "2", "2"])
            await expect(page.locator("#topics")).to_contain_text(NASTY_TOPIC)
            await browser.screenshot(page, "topics")
            await page.get_by_role("link", name="@news").click()
            await expect(page.locator("#who")).to_contain_text("away")
            await expect(page.get_by_role("row", name="away").locator("td").nth(2)).to_have_text("2")
            contents = page.locator("#last pre")
            await expect(contents.first).to_have_text("ff00 10")
            said = '{\n  "a": [\n    1,\n    {},\n    []\n  ],\n  "n": 12345678901234567890,\n  "text": "gr\\"ü,ß"\n}'
            assert await contents.last.text_content() == said, "no digit is lost"

            await page.get_by_label("Content", exact=True).fill(NASTY)
            await page.get_by_label("Type", exact=True).fill("7")
            await page.get_by_label("Retain", exact=True).check()
            await page.get_by_role("button", name="Publish").click()
            await expect(page.locator("#answer")).to_contain_text("on disk")
            await expect(contents.first).to_have_text(NASTY)
            await expect(page.locator("#retained pre")).to_have_text(NASTY)
            published = await page.locator("#answer a").text_content()
            assert await page.locator("#answer a").get_attribute("href") == f"/trace?id={published}"
            await browser.screenshot(page, "topic")
            async with aclosing(phone.notifications()) as told:
                heard = [await anext(told) for _ in range(3)]
            assert (heard[2].id, heard[2].content, heard[2].type) == (published, NASTY.encode(), 7)

            await page.get_by_label("Format").select_option("hex")
            await page.get_by_label("Content", exact=True).fill("fe 01")
            await page.get_by_role("button", name="Publish").click()
            await expect(contents.first).to_have_text("fe01")
            await page.get_by_label("Content", exact=True).fill("xy")
            await page.get_by_role("button", name="Publish").click()
            await expect(page.locator("#answer")).to_contain_text("not hex")
            assert "admin" not in topics.subscribers("@news"), "to look is not to subscribe"

            await page.goto(address(running, NASTY_TOPIC))
            await expect(page.get_by_role("heading", level=1)).to_contain_text(NASTY_TOPIC)
            await expect(contents.first).to_have_text(NASTY)

    visit(browser, tmp_path, story, "comet", identities=[ANN])


def test_what_is_no_longer_kept_comes_from_the_tables(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await running.publish("@news", "kept")
        rows = [
            {"id": f"old-{n}", "topic": "@news", "position": n, "type": 0, "publisher": NASTY, "content": content}
            for n, content in ((0, NASTY.encode()), (-1, b"\xff\x01"))
        ]
        at = datetime(2026, 1, 2, tzinfo=UTC)
        lake = running.gateway.folder / "lake"
        write(lake, NOTIFICATIONS, *[row | {"received_at": at, "day": at.date()} for row in rows])
        await page.goto(address(running, "@news"))
        await expect(page.locator("#last pre")).to_have_text(["kept", NASTY, "ff01"])
        await expect(page.locator("#last")).to_contain_text(f"by {NASTY}")

    visit(browser, tmp_path, story)


def test_a_live_name_is_listened_to_while_the_page_is_open(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.goto(address(running, "quotes/a b?"))
        await expect(page.locator("#subscription")).to_have_text("Subscribed.")
        await running.publish("quotes/a b?", NASTY)
        await expect(page.locator("#last pre")).to_have_text(NASTY)
        await expect(page.locator("#connected")).to_have_text("1")
        await page.get_by_label("Content", exact=True).fill("mine")
        await page.get_by_role("button", name="Publish").click()
        await expect(page.locator("#answer")).to_contain_text("1 receiver:")
        await expect(page.locator("#last pre").first).to_have_text("mine")
        await browser.screenshot(page, "topic-live")
        await page.goto(f"http://{HOST}:{running.port('http')}/topics")
        await until(lambda: not running.gateway.broker.live.names())

    visit(browser, tmp_path, story)


def test_an_identity_sees_its_own_and_loses_nothing_by_looking(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        topics = running.gateway.state.topics
        await topics.subscribe("ann", "@hers")
        await running.publish("@hers", "for ann")
        await running.publish("@others", "secret")
        await page.get_by_role("link", name="Topics").click()
        await expect(page.get_by_role("link", name="@hers")).to_be_visible()
        await expect(page.get_by_role("link", name="@others")).to_have_count(0)
        await page.get_by_role("link", name="@hers").click()
        await expect(page.locator("#last")).to_contain_text("for ann")
        await expect(page.locator("#lag")).to_have_text("1")
        assert [each.content for each in running.waiting("ann")] == [b"for ann"]
        await page.goto(address(running, "@others"))
        await expect(page.locator("#nothing")).to_contain_text("not subscribed")
        await page.get_by_label("Content", exact=True).fill("a word")
        await page.get_by_role("button", name="Publish").click()
        await expect(page.locator("#answer")).to_contain_text("on disk")
        assert topics.head("@others") == 2

    visit(browser, tmp_path, story, token="ann:anns", identities=[ANN], forgiving=("403",))


def test_at_phone_width_and_in_the_dark(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await running.publish("@" + "long" * 50, '{"key":"' + "x" * 300 + '"}')
        for path in ("/topics", "/topics/" + quote("@" + "long" * 50, safe="")):
            await page.goto(f"http://{HOST}:{running.port('http')}{path}")
            await expect(page.get_by_text("longlong").first).to_be_visible()
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0, f"{path} does not scroll sideways"
        await expect(page.locator("#last pre")).to_be_visible()
        await browser.screenshot(page, "topic-phone-dark")

    visit(browser, tmp_path, story, context={"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"})


def test_the_way_back_after_the_login_keeps_the_whole_address(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("Token").wait_for()
        await page.goto(address(running, "@a/b?c&d%") + "?x=1")
        await page.get_by_label("Token").fill(running.gateway.keys.admin_token())
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("@a/b?c&d%")
        assert page.url.endswith("?x=1")

    visit(browser, tmp_path, story)
