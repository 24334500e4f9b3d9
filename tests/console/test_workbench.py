"""The page that proposes how unknown frames are laid out."""

from pathlib import Path
from typing import Any

from browsing import Browser
from gateway.http.calling import BOB, calling
from gateway.running_gateway import HOST, Running
from playwright.async_api import Page, expect
from workbench.traffic import beacon_samples

from console.visiting import NASTY, visit

FRAMES = [sample.frame for sample in beacon_samples(80)]


def test_pasted_frames_are_analysed(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, _: Running) -> None:
        await page.get_by_role("link", name="Workbench").click()
        await page.get_by_label("Frames (hex, one per line)").fill("\n".join(frame.hex(" ") for frame in FRAMES))
        await page.get_by_role("button", name="Analyse").click()
        await expect(page.locator("#findings tr[data-kind=length]")).to_contain_text("80 of 80")
        await expect(page.locator("#draft")).to_contain_text("class DraftEnvelope(Envelope")
        await browser.screenshot(page, "workbench")
        await page.get_by_label("Frames (hex, one per line)").fill(NASTY)
        await page.get_by_role("button", name="Analyse").click()
        await expect(page.get_by_role("alert")).to_contain_text("line 1")

    visit(browser, tmp_path, story)


async def test_the_quarantine_of_a_protocol_is_analysed(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        log = caller.gateway.log
        for number, frame in enumerate(FRAMES):
            log.append(number, "pager", "quarantine", "in", "s1", "", "", frame, '{"code":"magic"}')
        log.append(0, "pager", "fault", "in", "s1", "", "", b"\xbe", '{"code":"magic"}').wait(10)
        page = (await caller.call("GET", "/workbench?protocol=pager")).text
        assert 'data-kind="length"' in page
        assert "in the quarantine of pager" in page
        assert "/workbench?protocol=pager" in (await caller.call("GET", "/quarantine")).text
        nothing = (await caller.call("GET", "/workbench?protocol=%3Cb%3E")).text
        assert "has no bytes of &lt;b&gt;" in nothing


async def test_only_admins_analyse_and_only_from_the_page(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        form = {"content-type": "application/x-www-form-urlencoded"}
        host = f"http://{HOST}:{caller.port('http')}"
        sent: dict[str, Any] = {"content": "frames=00", "headers": form | {"origin": host}}
        assert (await caller.call("POST", "/workbench", **sent)).status_code == 200
        assert (await caller.call("POST", "/workbench", bearer=":".join(BOB), **sent)).status_code == 403
        sent["headers"] = form | {"origin": "http://elsewhere.example"}
        assert (await caller.call("POST", "/workbench", **sent)).status_code == 403
