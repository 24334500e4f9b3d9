"""Cut histories into pieces."""

from random import Random

from pipeline.histories import Record


def cut(records: list[Record], chance: Random, pieces: int) -> list[list[Record]]:
    """Return the records in so many pieces, some of which may be empty."""
    places = sorted(chance.randrange(len(records) + 1) for _ in range(pieces - 1))
    return [records[start:end] for start, end in zip([0, *places], [*places, len(records)], strict=True)]
