"""Read samples from text: one frame per line, in hex."""

from wirelake.errors import InputError
from wirelake.protocols.text import parse_hex
from wirelake.workbench.evidence import Sample


def parse_samples(text: str) -> list[Sample]:
    """Return the frames. Spaces, empty lines, and lines that begin with # are ignored; InputError names the line."""
    samples = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            try:
                samples.append(Sample(parse_hex(stripped)))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from error
    if not samples:
        raise InputError("no frames given: write one per line, in hex")
    return samples
