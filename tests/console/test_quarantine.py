import asyncio
from datetime import UTC, date, datetime
from pathlib import Path

from browsing import Browser
from gateway.http.calling import BOB
from gateway.running_gateway import HOST, Running
from lake.writing import write
from playwright.async_api import Page, expect
from tracing.writing import Written

from console.visiting import NASTY, visit
from wirelake.console.tables import find_quarantined
from wirelake.lake.progress import JobProgress, write_progress
from wirelake.lake.store import open_lake
from wirelake.lake.tables import QUARANTINE

ROW = {
    "seq": 0,
    "received_at": datetime(2026, 1, 2, tzinfo=UTC),
    "protocol": "comet",
    "day": date(2026, 1, 2),
    "direction": "in",
}
WRONG = {"reason": "bad_utf8", "text": NASTY, "identity": NASTY, "session": "s-1", "byte_offset": 4}
BROKEN = bytes.fromhex("0007 03 01 0003ff6f62")  # a subscribe whose topic is not UTF-8


async def send(running: Running, listener: str, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, running.port(listener))
    writer.write(data)
    writer.write_eof()
    await reader.read()
    writer.close()


def test_groups_of_bad_bytes_open_in_the_inspector(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        write(running.gateway.folder / "lake", QUARANTINE, ROW | WRONG | {"frame": BROKEN})
        await page.get_by_role("link", name="Quarantine").click()
        old = page.locator(".group[data-protocol=comet]")
        await expect(old.locator(".count")).to_have_text("1")
        await expect(old).to_contain_text(NASTY)
        for data in (BROKEN, BROKEN, b"\x00\x01\xee"):
            await send(running, "comet", data)
        await send(running, "esnp", b"\xff\xff\xff\xff\xff\xff\xff\xff")
        await running.recorded("close", 4)
        await page.get_by_role("link", name="Refresh").click()
        await expect(page.locator(".group[data-reason=bad_utf8] .count")).to_have_text("3")
        assert await page.locator(".group").count() == 3
        await browser.screenshot(page, "quarantine")
        await page.locator(".group[data-reason=bad_utf8]").get_by_role("link", name="Open").first.click()
        await expect(page.locator(".bad-byte")).to_have_attribute("data-offset", "6")
        await browser.screenshot(page, "quarantine-inspector")
        await page.go_back()
        await page.locator(".group[data-protocol=esnp]").get_by_role("link", name="Open").click()
        await expect(page.locator(".bad-byte")).to_have_attribute("data-offset", "0")

    visit(browser, tmp_path, story, "comet", "esnp")


def test_nothing_there_and_nothing_for_others(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await page.get_by_role("link", name="Quarantine").click()
        await expect(page.locator(".card.good")).to_contain_text("The quarantine is empty")
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("Token").fill(":".join(BOB))
        await page.get_by_role("button", name="Log in").click()
        await page.goto(f"http://{HOST}:{running.port('http')}/quarantine")
        await expect(page.get_by_role("alert")).to_contain_text("access denied: see log")

    visit(browser, tmp_path, story, identities=[BOB], forgiving=("403",))


def test_what_the_tables_have_is_not_counted_again(tmp_path: Path) -> None:
    written = Written(tmp_path)
    note = {"code": "bad_utf8", "offset": 4, "text": "no"}
    seqs = [written.add("fault", BROKEN, direction="in", protocol="comet", note=note) for _ in range(5)]
    written.close()
    groups = find_quarantined(tmp_path, open_lake(tmp_path)).groups
    assert [(group.reason, group.count) for group in groups] == [("bad_utf8", 5)]
    write_progress(tmp_path, JobProgress(pid=1, next_seq=seqs[3]))
    assert [group.count for group in find_quarantined(tmp_path, open_lake(tmp_path)).groups] == [2]
    write(tmp_path / "lake", QUARANTINE, *(ROW | WRONG | {"seq": seq, "frame": BROKEN} for seq in seqs[:3]))
    (group,) = find_quarantined(tmp_path, open_lake(tmp_path)).groups
    assert group.count == 5
    assert [bad.seq for bad in group.newest] == seqs[::-1]
    assert {bad.link for bad in group.newest} == {f"/inspector?seq={seq}" for seq in seqs}


def test_what_the_log_has_no_more_opens_by_its_bytes(tmp_path: Path) -> None:
    Written(tmp_path).close()
    write(tmp_path / "lake", QUARANTINE, ROW | WRONG | {"seq": -1, "frame": BROKEN})
    (group,) = find_quarantined(tmp_path, open_lake(tmp_path)).groups
    assert group.newest[0].link == f"/inspector?protocol=comet&from=client&hex={BROKEN.hex()}"
