from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from browsing import Browser
from gateway.http.calling import BOB
from gateway.running_gateway import HOST, Running
from lake.writing import write
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.clients.comet import CometClient
from wirelake.lake.tables import NOTIFICATIONS
from wirelake.protocols.text import write_json

TOPIC = f"@{NASTY}"
PUBLISH = """async ([topic, body]) => {
  const headers = {"content-type": "application/json"};
  const path = `/api/topics/${encodeURIComponent(topic)}/notifications`;
  return (await fetch(path, {method: "POST", body, headers})).json();
}"""


async def published(page: Page, running: Running) -> str:
    """Publish from the console, deliver to bob, ack, and return the id."""
    await running.gateway.state.topics.subscribe("bob", TOPIC)
    answer: Any = await page.evaluate(PUBLISH, [TOPIC, write_json({"content": NASTY}).decode()])
    async with CometClient(HOST, running.port("comet"), *BOB) as phone:
        await anext(phone.notifications())
        await phone.ack(answer["id"])
        await running.recorded("ack")
    return str(answer["id"])


def test_a_notifications_way_on_one_line(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        id_ = await published(page, running)
        at, (published_as,) = datetime.now(UTC), running.records("publish")
        of_it = {
            "seq": published_as["seq"],
            "received_at": at,
            "day": date.today(),
            "id": id_,
            "topic": TOPIC,
            "position": 1,
            "type": 0,
        }
        write(running.gateway.folder / "lake", NOTIFICATIONS, of_it | {"publisher": NASTY, "content": b"x"})
        await page.get_by_role("link", name="Trace").click()
        await page.get_by_label("Notification id").fill(id_)
        await page.get_by_role("button", name="Trace").click()
        whats = await page.locator("ol.line > li").evaluate_all("items => items.map(item => item.dataset.what)")
        assert whats[:3] == ["frame", "publish", "route"]
        await expect(page.locator("[data-what=frame]").first).not_to_contain_text("probably")
        assert whats[-4:] == ["frame", "deliver", "frame", "ack"]
        await expect(page.locator("[data-what=ack]")).to_contain_text("acked by bob")
        await expect(page.locator(".facts")).to_contain_text(NASTY)
        await expect(page.locator(".facts")).to_contain_text("1 acked")
        await expect(page.get_by_role("region", name="Rows of silver.notifications")).to_contain_text(NASTY)
        topic = await page.locator(".facts a").get_attribute("href")
        assert topic is not None
        assert topic.startswith("/topics/%40%3Cimg")
        await browser.screenshot(page, "trace")
        await page.set_viewport_size({"width": 375, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a phone"
        box = await page.get_by_label("Notification id").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] < 360
        await browser.screenshot(page, "trace-phone")
        await page.set_viewport_size({"width": 1280, "height": 800})

        out = page.locator("[data-what=frame]", has_text="comet frame to bob")
        await out.get_by_role("link", name="decode").click()
        await expect(page.locator("#tree")).to_contain_text(id_)
        await page.go_back()
        await page.locator("[data-what=deliver]").get_by_role("link").last.click()
        await expect(page.get_by_role("heading", name="Session")).to_be_visible()
        await expect(page.locator("[data-what=login]")).to_contain_text("bob logged in")

    visit(browser, tmp_path, story, "comet", identities=[BOB])


def test_a_link_is_followed_after_the_login_and_what_is_not_known_is_told(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("button", name="Log out").click()
        await page.goto(f"http://{HOST}:{running.port('http')}/trace?id=a-1-1%26<")
        await page.get_by_label("Token").fill(running.gateway.keys.admin_token())
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_label("Notification id")).to_have_value("a-1-1&<")
        await expect(page.get_by_role("alert")).to_contain_text("no message 'a-1-1&<'")

    visit(browser, tmp_path, story)


def test_an_identity_sees_its_own_part(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await running.gateway.state.topics.subscribe("bob", "@a")
        id_ = await running.publish("@a", "hello")
        async with CometClient(HOST, running.port("comet"), *BOB) as phone:
            await anext(phone.notifications())
            await running.recorded("deliver")
        await page.goto(f"http://{HOST}:{running.port('http')}/trace?id={id_}")
        await expect(page.locator("[data-what=deliver]")).to_contain_text("written to bob")
        assert await page.locator("#rows-title").count() == 0
        await page.get_by_role("link", name="decode").click()
        await expect(page.locator("#tree")).to_contain_text(b"hello".hex())

    visit(browser, tmp_path, story, "comet", token=":".join(BOB), identities=[BOB], forgiving=("403",))
