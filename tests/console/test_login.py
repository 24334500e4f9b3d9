from pathlib import Path

from browsing import Browser
from gateway.http.calling import BOB, calling
from gateway.running_gateway import Running
from playwright.async_api import Page, expect

from console.visiting import visit

FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


def test_in_and_out(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_role("heading", name="Log in").wait_for()
        await page.goto(f"http://127.0.0.1:{running.port('http')}/")
        assert page.url.endswith("/login")
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("invalid token")
        await browser.screenshot(page, "login")

    visit(browser, tmp_path, story, forgiving=("401",))


def test_an_identity_sees_less(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page, running: Running) -> None:
        await expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
        for title in ("Overview", "Quarantine", "Workbench", "Tables", "Identities"):
            assert await page.get_by_role("link", name=title).count() == 0, "the menu has what it may see"
        for path, message in (
            ("/", "access denied: see overview"),
            ("/quarantine", "access denied: see log"),
            ("/identities", "admin only"),
        ):
            await page.goto(f"http://127.0.0.1:{running.port('http')}{path}")
            await expect(page.get_by_role("heading", name="You may not see this")).to_be_visible()
            await expect(page.get_by_role("alert")).to_contain_text(message)

    visit(browser, tmp_path, story, token=":".join(BOB), identities=[BOB], forgiving=("403",))


async def test_the_cookie_is_for_the_consoles_own_pages(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        form = f"token={caller.admin_token}&to=//elsewhere"
        foreign = await caller.call(
            "POST", "/login", content=form, headers=FORM | {"sec-fetch-site": "same-site"}, bearer=None
        )
        assert foreign.status_code == 403
        entered = await caller.call("POST", "/login", content=form, headers=FORM, bearer=None)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        about = entered.headers["set-cookie"].lower()
        assert "httponly" in about
        assert "samesite=strict" in about
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        for site, status in (("same-origin", 200), ("none", 200), ("same-site", 401), ("cross-site", 401)):
            asked = await caller.call("GET", "/api/sessions", headers=cookie | {"sec-fetch-site": site}, bearer=None)
            assert asked.status_code == status, site
        asked = await caller.call(
            "GET", "/api/sessions", headers=cookie | {"origin": "http://127.0.0.1:1"}, bearer=None
        )
        assert asked.status_code == 401
        await caller.call("POST", "/logout", headers=cookie | {"sec-fetch-site": "same-origin"}, bearer=None)
        assert (await caller.call("GET", "/api/sessions", headers=cookie, bearer=None)).status_code == 401


async def test_a_removed_identity_is_out(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        entered = await caller.call("POST", "/login", content="token=" + ":".join(BOB), headers=FORM, bearer=None)
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        assert (await caller.call("GET", "/api/topics", headers=cookie, bearer=None)).status_code == 200
        await caller.call("DELETE", "/api/identities/bob")
        assert (await caller.call("GET", "/api/topics", headers=cookie, bearer=None)).status_code == 401


async def test_forms_that_are_none(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for body, status in (("", 401), ("token=", 401), ("x" * 9000, 413), ("&".join(["a=1"] * 9), 400)):
            answer = await caller.call("POST", "/login", content=body, headers=FORM, bearer=None)
            assert answer.status_code == status
