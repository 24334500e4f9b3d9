from pathlib import Path

from gateway.http.calling import calling


async def test_the_browsers_client_is_given_to_anybody(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("GET", "/client.js", bearer=None)
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["access-control-allow-origin"] == "*"
        assert "export class SisnetClient" in response.text
        head = await caller.call("HEAD", "/client.js", bearer=None)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(response.content))


async def test_a_browser_that_has_it_need_not_fetch_it_again(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        etag = (await caller.call("GET", "/client.js", bearer=None)).headers["etag"]
        for known in (etag, f'"other", W/{etag}', "*"):
            response = await caller.call("GET", "/client.js", bearer=None, headers={"if-none-match": known})
            assert (response.status_code, response.content) == (304, b"")
            assert response.headers["etag"] == etag
        changed = await caller.call("GET", "/client.js", bearer=None, headers={"if-none-match": '"other"'})
        assert changed.status_code == 200
