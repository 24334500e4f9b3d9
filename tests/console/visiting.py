"""Open the console of a real gateway in a real browser, logged in."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from browsing import Browser
from gateway.running_gateway import HOST, Running, running_gateway
from playwright.async_api import Page

# None of these characters may be parsed as HTML, wherever they are shown.
NASTY = "<img src=x onerror=\"document.title='hit'\">'\"&</script><script>document.title='hit'</script>"

Visit = Callable[[Page, Running], Awaitable[None]]


def visit(
    browser: Browser,
    folder: Path,
    story: Visit,
    *listeners: str,
    token: str = "",
    forgiving: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """Log in as the admin, or with `token`, and run `story` on the next page. `context` goes to the browser."""
    context = options.pop("context", {})

    async def run(page: Page) -> None:
        async with running_gateway(folder, "http", *listeners, **options) as running:
            foreign: list[str] = []
            home = f"http://{HOST}:{running.port('http')}/"
            page.on("request", lambda request: foreign.append(request.url) if not _is_own(request.url, home) else None)
            await page.goto(home)
            await page.get_by_label("Token").fill(token or running.gateway.keys.admin_token())
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("button", name="Log out").wait_for()
            await story(page, running)
            assert not foreign, "nothing is loaded from elsewhere"
            assert await page.title() != "hit"
            await page.goto("about:blank")  # pages poll, and the gateway stops

    browser.run(run, forgiving=forgiving, **context)


def _is_own(url: str, home: str) -> bool:
    return url.startswith((home, "data:", "blob:"))
