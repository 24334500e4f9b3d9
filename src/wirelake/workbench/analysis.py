"""Analyse many frames of an unknown protocol: search for one kind of field after the other.

A search leaves out the bytes that an earlier one has explained, so the order matters: a length and a checksum explain
themselves, while a constant or an opcode may be a part of something else.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from wirelake.workbench.checksums import find_checksums
from wirelake.workbench.columns import find_constants, find_counters, find_opcodes, find_timestamps
from wirelake.workbench.draft import draft_layout
from wirelake.workbench.evidence import Proposal, Sample
from wirelake.workbench.lengths import cut_streams, find_lengths, find_records
from wirelake.workbench.limits import (
    WORKBENCH_BYTES_MAX,
    WORKBENCH_CONFIDENT_BITS,
    WORKBENCH_ENUMERATIONS_SHOWN_MAX,
    WORKBENCH_FRAME_BYTES_MAX,
    WORKBENCH_FRAMES_MAX,
    WORKBENCH_S,
    WORKBENCH_SEGMENT_SHARE_MIN,
)
from wirelake.workbench.texts import find_texts

FRAMES_MIN: Final = 4  # that differ; fewer are evidence for nothing
_CUTS_TRIED: Final = 8


class Analysis(Struct, frozen=True, kw_only=True):
    """What was found, the surest first by kind, and a description to start from."""

    frames: int
    distinct: int
    left_out: int  # empty, too long, or beyond the limits
    was_cut: bool  # streams were cut into frames with the length that was found
    is_complete: bool  # the time was enough for all searches
    findings: tuple[Proposal, ...] = ()
    draft: str = ""
    draft_decodes: int = 0  # of the distinct frames

    def best(self, kind: str) -> Proposal | None:
        return next((finding for finding in self.findings if finding.kind == kind), None)


def analyse(
    samples: Sequence[Sample],
    now_s: Callable[[], float],
    *,
    are_segments: bool = False,
    within_s: float = WORKBENCH_S,
) -> Analysis:
    """Analyse samples. With `are_segments`, they are pieces of streams, in which frames may begin anywhere."""
    deadline_s = now_s() + within_s
    usable = limit(samples)
    left_out = len(samples) - len(usable)
    was_cut = False
    if are_segments and (cut := _cut(usable)) is not None:
        usable, was_cut = limit(cut), True
    frames = list(dict.fromkeys(sample.frame for sample in usable))
    search = _Search(usable, frames, lambda: now_s() > deadline_s)
    findings = search.run() if len(frames) >= FRAMES_MIN else []
    draft, decoded = draft_layout(frames, findings) if findings else ("", 0)
    return Analysis(
        frames=len(usable),
        distinct=len(frames),
        left_out=left_out,
        was_cut=was_cut,
        is_complete=not search.is_over(),
        findings=tuple(findings),
        draft=draft,
        draft_decodes=decoded,
    )


def limit(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples within the limits. Of too many, take runs of neighbours, evenly: counters need those."""
    usable = [sample for sample in samples if 0 < len(sample.frame) <= WORKBENCH_FRAME_BYTES_MAX]
    if len(usable) > WORKBENCH_FRAMES_MAX:
        run = WORKBENCH_FRAMES_MAX // 10
        step = len(usable) / 10
        usable = [sample for part in range(10) for sample in usable[int(part * step) :][:run]]
    total, kept = 0, []
    for sample in usable:
        total += len(sample.frame)
        if total > WORKBENCH_BYTES_MAX:
            break
        kept.append(sample)
    return kept


def _cut(samples: Sequence[Sample]) -> list[Sample] | None:
    """Return the frames of streams, cut by a length with which most segments begin; None if there is none."""
    streams: dict[str, list[bytes]] = {}
    for sample in samples:
        streams.setdefault(sample.stream, []).append(sample.frame)
    whole = {name: b"".join(parts) for name, parts in streams.items()}
    segments = list(dict.fromkeys(sample.frame for sample in samples))
    if len(segments) < FRAMES_MIN:
        return None
    candidates = find_lengths(segments, WORKBENCH_SEGMENT_SHARE_MIN)
    sure = [each for each in candidates if each.bits >= WORKBENCH_CONFIDENT_BITS]
    for length in sure[:_CUTS_TRIED]:
        cut = cut_streams(whole.values(), length)
        if cut is not None:
            return [Sample(frame, name) for name, frames in zip(whole, cut, strict=True) for frame in frames]
    return None


class _Search:
    def __init__(self, samples: Sequence[Sample], frames: Sequence[bytes], is_over: Callable[[], bool]) -> None:
        self.is_over = is_over
        self._samples = samples
        self._frames = frames
        self._found: list[Proposal] = []
        self._taken: set[int] = set()

    def run(self) -> list[Proposal]:
        frames = self._frames
        self._take(find_lengths(frames), 1)
        if not self._found:
            self._take(find_records(frames), 1)
        self._take(find_checksums(frames, self.is_over), 1)
        if not self.is_over():
            self._take(find_counters(self._samples, self._taken), 2)
            self._take(find_timestamps(self._samples, self._taken), 2)
            self._take(find_constants(frames, self._taken), len(frames[0]))
            self._take_opcodes()
        if not self.is_over():
            self._take(find_texts(frames), len(frames))
        return self._found

    def _take(self, findings: Sequence[Proposal], count: int) -> None:
        """Take the surest findings that do not overlap with others."""
        for finding in findings:
            is_free = finding.kind == "text" or not self._taken & set(finding.places)
            if count and finding.bits >= WORKBENCH_CONFIDENT_BITS and is_free:
                self._found.append(finding)
                count -= 1
                if finding.kind != "text" and finding.offset >= 0:
                    self._taken |= set(finding.places)

    @property
    def _tail_bytes(self) -> int:
        return max((each.size for each in self._found if each.offset < 0), default=0)

    def _take_opcodes(self) -> None:
        found = [
            each
            for each in find_opcodes(self._frames, self._taken, self._tail_bytes)
            if each.bits >= WORKBENCH_CONFIDENT_BITS
        ]
        for index, each in enumerate(found[:WORKBENCH_ENUMERATIONS_SHOWN_MAX]):
            opcode = Proposal(
                kind="opcode",
                text=each.text,
                agree=each.agree,
                of=each.of,
                bits=each.bits,
                offset=each.offset,
                values=each.values,
            )
            self._found.append(each if index else opcode)
