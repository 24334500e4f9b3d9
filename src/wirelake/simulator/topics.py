"""Names that the whole fleet uses."""

from random import Random
from typing import Final

from wirelake.simulator.limits import SIMULATOR_KEYS, SIMULATOR_TOPICS

QUOTES: Final = "sim/quotes"  # a live name
SDB: Final = "sim_quote"
FIELDS: Final = [["time", "U", 8, 1], ["newp", "F", 8, 1], ["vol", "U", 4, 1]]  # newp: the newest price
ADDER: Final = "sim-adder"  # a service of the fleet's own
USER_COMMAND: Final = 16  # the first that is the users' in magline
USER_SERVICE: Final = f"magline/{USER_COMMAND}"


def topic(number: int) -> str:
    return f"@sim/news/{number % SIMULATOR_TOPICS}"


def any_topic(random: Random) -> str:
    return topic(random.randrange(SIMULATOR_TOPICS))


def key(number: int) -> str:
    return f"sim{number % SIMULATOR_KEYS:04}"


def price(random: Random, number: int) -> float:
    """Around a level of the key's own, in hundredths."""
    return round(10 + number % SIMULATOR_KEYS + random.gauss(0, 0.25), 2)
