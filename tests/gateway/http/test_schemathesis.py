"""Let schemathesis, in another process, call the API with requests that match its description and that do not."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from gateway.http.calling import calling

CONFIG: Final = Path(__file__).with_name("schemathesis.toml")
EXAMPLES: Final = 5  # of each operation in each phase
REQUEST_S: Final = 60  # on a busy machine
WRONG_TOKENS_MAX: Final = 1_000_000  # so that responses to them are not delayed


async def test_the_api_is_what_its_description_says(tmp_path: Path) -> None:
    async with calling(tmp_path, limits={"failed_logins": WRONG_TOKENS_MAX}) as caller:
        await caller.call("POST", "/api/topics/%40news/notifications", {"content": "hello"})
        command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIG}", "run"]
        command += [
            f"{caller.client.base_url}/api/openapi.json",
            f"--header=Authorization: Bearer {caller.admin_token}",
        ]
        command += [
            f"--max-examples={EXAMPLES}",
            f"--request-timeout={REQUEST_S}",
            "--seed=1",
            "--workers=1",  # it calls ast.parse, which CPython 3.11.7 cannot run in two threads at once
            "--no-color",
        ]
        command += ["--generation-database=none", "--warnings=off", "--continue-on-failure"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
