import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from browsing import Browser
from gateway.apostol_client import Meter, report
from gateway.devices.station_protocol import FRAMES, Answer, Login, Ok, Report
from gateway.installed_protocol import installed_protocols
from gateway.running_gateway import HOST, Running
from lake.writing import write
from playwright.async_api import Page, expect

from console.visiting import NASTY, visit
from wirelake.clients.apostol import ApostolDevice, Data, DeviceError, DeviceRequest
from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, READINGS
from wirelake.protocols.apostol.commands import Reading, Status
from wirelake.protocols.frame import Sender

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SERIAL = "<b onclick='hit'>&1"  # as long as a serial may be


async def answers(request: DeviceRequest) -> Data:
    if request.command_type == 129:
        return Status(3, 2, 1_700_000_000, 2, 1_700_000_100)
    if request.command_type == 132:
        return [Reading(1, 500), Reading(2, 21.5)]
    if request.command_type == 130:
        return bytes(reversed(request.data))
    raise DeviceError(3)


def fill_tables(running: Running, serial: str) -> None:
    lake = running.gateway.folder / "lake"
    rows = [
        {"received_at": NOON + timedelta(minutes=n), "serial": serial, "type": kind, "value": value, "day": NOON.date()}
        for n in range(40)
        for kind, value in ((1, 500.0 + n), (2, 20 + (n % 7) / 2))
    ]
    write(lake, READINGS, *[row | {"device_time": row["received_at"]} for row in rows])
    newest = {"status": json.dumps({"state": 3, "tariff": 2}), "readings": json.dumps({"1": 539, "2": 22.0})}
    write(lake, DEVICE_LATEST, {"serial": serial, "received_at": NOON, "status_at": NOON, **newest})
    command = {
        "received_at": NOON,
        "serial": serial,
        "command_no": 7,
        "direction": "in",
        "packets": 3,
        "day": NOON.date(),
    }
    write(
        lake,
        DEVICE_COMMANDS,
        {**command, "state": "complete", "command_type": 2, "data": NASTY.encode()},
        {**command, "state": "refused", "reason": NASTY},
    )


def test_the_list_a_device_and_commands_to_it(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        fill_tables(running, SERIAL)
        port = running.port("apostol")
        async with ApostolDevice(HOST, port, SERIAL, handler=answers) as device:
            await device.readings({1: 500, 2: 21.5})
            await page.get_by_role("link", name="Devices").click()
            row = page.get_by_role("row", name=SERIAL)
            await expect(row).to_contain_text("online")
            await expect(row).to_contain_text("state 3, tariff 2")
            await expect(row).to_contain_text("voltage 500 V, energy 21.5 Wh")
            await expect(page.get_by_role("row", name="quiet")).to_contain_text("offline")
            await browser.screenshot(page, "devices")
            await page.get_by_role("link", name=SERIAL).click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(SERIAL)
            await expect(page.locator("#online")).to_have_text("online")
            await expect(page.locator("#status")).to_have_text("state 3, tariff 2")
            await expect(page.locator("#plots")).to_contain_text("2026-01-02 12:00:00")
            await expect(page.locator("#plots svg path")).to_have_count(2)
            await expect(page.locator("#commands")).to_contain_text(NASTY)

            answer = page.locator("#answer")
            await page.get_by_role("button", name="Send").click()
            await expect(answer).to_contain_text("tariff")
            await expect(answer).to_contain_text("2023-11-14 22:13:20")
            await page.get_by_label("Known commands").select_option("readings")
            await page.get_by_role("button", name="Send").click()
            await expect(answer).to_contain_text("21.5")
            await page.get_by_label("Type", exact=True).fill("130")
            await page.get_by_label("Data (hex)").fill("0a0b0c")
            await page.get_by_role("button", name="Send").click()
            await expect(answer).to_contain_text("0c0b0a")
            await browser.screenshot(page, "device")
            await page.locator("#commands").scroll_into_view_if_needed()
            await browser.screenshot(page, "device-readings")
            await page.get_by_label("Type", exact=True).fill("200")
            await page.get_by_role("button", name="Send").click()
            await expect(answer).to_contain_text("bad format")
            await page.locator("#topic a").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(f"@devices/{SERIAL}")
            await expect(page.locator("#last")).to_contain_text("readings")

            await device.readings({1: 500, **{kind: kind for kind in range(20, 25)}})
            await page.get_by_role("link", name="Devices", exact=True).click()
            await expect(page.get_by_role("row", name=SERIAL)).to_contain_text("and 3 more")

    visit(browser, tmp_path, story, "apostol", devices=[(SERIAL, 6, None), ("quiet", 0, bytes(16))])


def test_what_it_reports_is_plotted_at_once_without_the_tables(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        seconds = count(1_700_000_000)  # of its clock: no two reports have the same time
        async with ApostolDevice(HOST, running.port("apostol"), "m1", time_s=lambda: next(seconds)) as device:
            await device.readings({1: 500})
            await page.goto(f"http://{HOST}:{running.port('http')}/devices/m1")
            await expect(page.locator("#plots .dot")).to_have_count(1)
            await expect(page.locator("#status")).to_have_text("–")
            await device.readings({1: 501, 7: 2.5})
            await device.status(4, tariff=1)
            await running.publish("@devices/m1", "not of the device")
            await expect(page.locator("#plots .dot")).to_have_count(3)
            await expect(page.locator("#plots")).to_contain_text("voltage: 501 V")
            await expect(page.locator("#plots")).to_contain_text("reading 7: 2.5")
            await expect(page.locator("#status")).to_have_text("state 4, tariff 1")

    visit(browser, tmp_path, story, "apostol", devices=[("m1", 0, None)])


def test_a_client_of_any_protocol_that_reports(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        reader, writer = await asyncio.open_connection(HOST, running.port("station"))

        async def receive() -> Any:
            head = await reader.readexactly(2)
            return FRAMES.decode(head + await reader.readexactly(int.from_bytes(head)), Sender.SERVER)

        for sent in (Login("north", "n0rth"), *(Report("", 215 + n, 40, door=n % 2 == 0) for n in range(4))):
            writer.write(sent.encode())
            assert await receive() == Ok()
        lake = running.gateway.folder / "lake"
        newest = json.dumps({"celsius": {"value": 7.5, "unit": "°C", "at_us": 0}})
        write(lake, DEVICE_LATEST, {"serial": "south", "received_at": NOON, "protocol": "beacon", "newest": newest})
        await page.get_by_role("link", name="Devices").click()
        row = page.get_by_role("row", name="north")
        await expect(row).to_contain_text("temperature 21.8 °C, humidity 40 %, door 0")
        await expect(row).to_contain_text("station")
        await expect(row).to_contain_text("accepted")
        await expect(page.get_by_role("row", name="south")).to_contain_text("celsius 7.5 °C")
        await expect(page.get_by_role("row", name="south")).to_contain_text("beacon")
        await browser.screenshot(page, "devices-reporting")
        await page.get_by_role("link", name="north").click()
        await expect(page.locator("#protocol")).to_have_text("station")
        await expect(page.locator("#plots")).to_contain_text("temperature: 21.8 °C")
        await expect(page.locator("#plots .dot")).to_have_count(12)
        await expect(page.get_by_label("Known commands")).to_be_hidden()
        await expect(page.locator("#reassembly-card")).to_be_hidden()
        await page.get_by_label("Type", exact=True).fill("reboot")
        await page.get_by_label("Data (hex)").fill("0102")
        await page.get_by_label("Fields (JSON)").fill("{")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#answer .bad")).to_contain_text("not valid JSON")
        await page.get_by_label("Fields (JSON)").fill("")
        await page.get_by_role("button", name="Send").click()
        command = await receive()
        assert (command.word, command.content) == ("reboot", b"\x01\x02")
        writer.write(Answer(command.number, 0, b"\xca\xfe").encode())
        await expect(page.locator("#answer")).to_contain_text("cafe")
        await browser.screenshot(page, "device-reporting")
        writer.close()

    with installed_protocols({"station": "gateway.devices.station_protocol:PROTOCOL"}):
        visit(
            browser,
            tmp_path,
            story,
            "station",
            identities=[("north", "n0rth")],
            devices=[("south", 0, None)],
        )


def test_packets_that_wait_for_others(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        async with await Meter.connect(running.port("apostol")) as meter:
            packets = report("m1", 9, bytes(30), data_bytes=10)
            for number in (0, 2, 3):
                meter.send(packets[number])
                await meter.receive()
            await page.goto(f"http://{HOST}:{running.port('http')}/devices/m1")
            row = page.locator("#reassembly tbody tr")
            await expect(row).to_contain_text("3 of 4")
            await expect(row.locator("td").nth(3)).to_have_text("1")
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0
            await browser.screenshot(page, "device-phone-dark")
            meter.send(packets[1])
            await expect(page.locator("#whole")).to_be_visible()
            await page.get_by_label("Data (hex)").fill("zz")
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator("#answer .bad")).to_contain_text("z")
        await page.goto(f"http://{HOST}:{running.port('http')}/devices/{quote(NASTY, safe='')}")
        await expect(page.get_by_role("alert")).to_contain_text("no device")

    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    visit(browser, tmp_path, story, "apostol", devices=[("m1", 0, None)], forgiving=("400", "404"), context=phone)


def test_an_identity_sends_commands_too_and_sees_no_tables(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        fill_tables(running, "m1")
        async with ApostolDevice(HOST, running.port("apostol"), "m1", handler=answers) as device:
            await device.status(3)
            await page.get_by_role("link", name="Devices").click()
            await page.get_by_role("link", name="m1").click()
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator("#answer")).to_contain_text("tariff")
            assert await page.locator("#commands").count() == 0

    visit(
        browser,
        tmp_path,
        story,
        "apostol",
        token="bob:bobs",
        identities=[("bob", "bobs", "member", "operator")],
        roles={"operator": {"command": ["m*"]}},
        devices=[("m1", 0, None)],
        forgiving=("403",),
    )
