from pathlib import Path

from browsing import Browser
from gateway.http.calling import BOB
from gateway.running_gateway import Running
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.protocols.comet.frames import Auth, ReportEnviron

STATUS = "1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7"  # an apostol packet: a device's status


async def lit(page: Page) -> list[int]:
    places = await page.locator(".byte.lit").evaluate_all("cells => cells.map(cell => Number(cell.dataset.offset))")
    return [int(place) for place in places]


def test_a_field_lights_its_bytes_and_a_byte_its_field(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("link", name="Inspector").click()
        await page.get_by_label("Bytes (hex)").fill(STATUS)
        await page.get_by_role("button", name="Decode").click()
        await expect(page.locator("#guesses")).to_contain_text("Looks like apostol, sent by the client")
        serial = page.locator("[data-field=serial]")
        await serial.locator(".field").first.hover()
        assert await lit(page) == [5, 6, 7, 8]
        await browser.screenshot(page, "inspector")
        await page.locator(".byte[data-offset='29']").hover()
        await expect(page.locator("[data-field=crc].lit")).to_be_visible()
        await serial.focus()
        await page.keyboard.press("ArrowDown")
        assert await lit(page) == [9], "the keys walk through the fields"
        shared = await page.locator("#link").get_attribute("href")
        assert shared is not None
        await page.goto(f"http://127.0.0.1:{running.port('http')}{shared}")
        await expect(page.locator("[data-field=serial]")).to_contain_text("1234")

    visit(browser, tmp_path, story)


def test_bad_bytes_are_marked_where_they_are(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        broken = STATUS[:-4] + "0000"
        await page.goto(f"http://127.0.0.1:{running.port('http')}/inspector?protocol=apostol&from=client&hex={broken}")
        await expect(page.locator("#fault")).to_contain_text("byte 29")
        await expect(page.locator(".bad-byte")).to_have_attribute("data-offset", "29")
        await browser.screenshot(page, "inspector-bad")
        await page.get_by_label("Bytes (hex)").fill("zz")
        await page.get_by_role("button", name="Decode").click()
        await expect(page.locator("#message")).to_contain_text("'z'")

    visit(browser, tmp_path, story, forgiving=("400",))


def test_a_frame_from_the_log_and_text_that_stays_text(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        frame = ReportEnviron(1, 0, NASTY, ("hello",)).encode()
        await page.goto(f"http://127.0.0.1:{running.port('http')}/inspector?protocol=comet&hex={frame.hex()}")
        await expect(page.locator("#tree")).to_contain_text(NASTY)
        running.gateway.recorder.frames(Somebody(), "in", [frame])
        await page.get_by_label("Session").fill("nobody's")
        await page.get_by_role("button", name="Show latest").click()
        await expect(page.locator("#no-records")).to_be_visible()
        await page.get_by_label("Session").fill("")
        await page.get_by_role("button", name="Show latest").click()
        await page.get_by_role("button", name="Open").first.click()
        await expect(page.locator("#tree")).to_contain_text("hello")
        running.gateway.recorder.frames(Somebody(), "in", [Auth("ann", "s3cret").encode()])  # as earlier versions did
        await page.get_by_role("button", name="Show latest").click()
        await page.get_by_role("button", name="Open").first.click()
        await expect(page.locator("#tree")).to_contain_text("******")
        assert "s3cret" not in await page.content()

    visit(browser, tmp_path, story)


class Somebody:
    id, protocol, identity, address = "s-1", "comet", NASTY, "127.0.0.1:5"


def test_an_identity_may_inspect_too_but_not_the_log(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.goto(f"http://127.0.0.1:{running.port('http')}/inspector?hex={STATUS}")
        await expect(page.locator("[data-field=serial]")).to_contain_text("1234")
        assert await page.locator("#records").count() == 0

    visit(browser, tmp_path, story, token=":".join(BOB), identities=[BOB], forgiving=("403",))
