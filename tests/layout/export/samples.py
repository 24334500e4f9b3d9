"""Frames of a described protocol, made by its Hypothesis strategies: the same ones in every run."""

from typing import Any

from gateway.installed_protocol import example
from hypothesis import Phase, given, settings

from layout.sampler import SETS, frames_of
from layout.test_variants import MESSAGES, PACKETS
from wirelake.layout import FrameSet
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

SAMPLES = 60
PROTOCOLS = [*registry.all_protocols(), example("beacon").PROTOCOL]
BUILT_IN = [layout for each in PROTOCOLS for layout in (each.layout, each.part_layout) if layout is not None]
LAYOUTS = [*BUILT_IN, *SETS, MESSAGES, PACKETS]


def samples(frames: FrameSet) -> list[tuple[Sender, bytes]]:
    """Return encoded frames of all classes, with their senders."""
    found: list[tuple[Sender, bytes]] = []

    @settings(max_examples=SAMPLES, derandomize=True, database=None, phases=[Phase.generate])
    @given(frames_of(frames))
    def collect(frame: Any) -> None:
        found.append((frame.sender or Sender.CLIENT, frame.encode()))

    collect()
    return found
