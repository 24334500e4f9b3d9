"""The services that the fleet provides for itself: one adds numbers, one echoes what terminals ask."""

from random import Random
from typing import Any, Final

from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.simulator.report import SimulationCounts
from wirelake.simulator.topics import ADDER, USER_SERVICE

SERVICES: Final = (ADDER, USER_SERVICE)
BAD_QUESTIONS: Final = 0.1  # asked so that the service refuses
TOO_FEW: Final = "add needs two numbers"


def question(random: Random) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """For the adder, and its answer; None where it is to refuse."""
    if random.random() < BAD_QUESTIONS:
        return {"numbers": [1]}, None
    numbers = [random.randrange(1000) for _ in range(5)]
    return {"numbers": numbers}, {"sum": sum(numbers)}


class Provider:
    """Of all it is asked, it refuses what is said to be refused: the askers expect that."""

    def __init__(self, counts: SimulationCounts) -> None:
        self._counts = counts

    async def answer(self, request: ServiceRequest) -> Any:
        self._counts.received += 1
        if request.service == ADDER and isinstance(request.value, dict):
            numbers = request.value.get("numbers", [])
            if len(numbers) < 2:
                raise ServiceError(TOO_FEW, 400)
            self._counts.acknowledged += 1
            return {"sum": sum(numbers)}
        if request.service == USER_SERVICE:
            self._counts.acknowledged += 1
            return request.value
        raise ServiceError("invalid request", 400)
