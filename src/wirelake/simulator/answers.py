"""What an answer has to be."""

from collections.abc import Awaitable
from typing import Any

from wirelake.errors import AnswerError
from wirelake.simulator.serving import TOO_FEW


async def told(asking: Awaitable[Any], wanted: Any) -> None:
    """This one."""
    if await asking != wanted:
        raise AnswerError("unexpected response", 0)


async def refused(asking: Awaitable[Any]) -> None:
    """A refusal by the service itself."""
    try:
        await asking
    except AnswerError as error:
        if TOO_FEW in error.text:
            return
        raise
    raise AnswerError("the service accepted an invalid request", 0)
