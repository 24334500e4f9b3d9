"""The services that the fleet provides for itself: one adds numbers, one echoes what terminals ask."""

from typing import Any

from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.simulator.report import Counts
from wirelake.simulator.topics import ADDER, USER_SERVICE

SERVICES = (ADDER, USER_SERVICE)


class Provider:
    """Of all it is asked, it refuses what is said to be refused: the askers expect that."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    async def answer(self, request: ServiceRequest) -> Any:
        self._counts.received += 1
        if request.service == ADDER and isinstance(request.value, dict):
            numbers = request.value.get("numbers", [])
            if len(numbers) < 2:
                raise ServiceError("adding takes two numbers", 400)
            self._counts.acknowledged += 1
            return {"sum": sum(numbers)}
        if request.service == USER_SERVICE:
            self._counts.acknowledged += 1
            return request.value
        raise ServiceError("not understood", 400)
