"""Propose how unknown frames are laid out: those in the quarantine, or frames that are pasted into a form."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wirelake.console.page import PageServer, Values, check_own_page, page_route, read_form
from wirelake.errors import InputError
from wirelake.gateway.http.limiter import ConcurrencyLimit, busy
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.limits import (
    CONSOLE_ANALYSES_MAX,
    CONSOLE_ANALYSIS_S,
    CONSOLE_QUARANTINE_RECORDS_MAX,
    CONSOLE_SAMPLES_BYTES_MAX,
)
from wirelake.tracing.search import Search
from wirelake.workbench.analysis import Analysis, analyse
from wirelake.workbench.evidence import Sample
from wirelake.workbench.samples import parse_samples


class WorkbenchPages:
    def __init__(self, server: PageServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._limit = ConcurrencyLimit(CONSOLE_ANALYSES_MAX, busy("analyses", "CONSOLE_ANALYSES_MAX"))

    def routes(self) -> tuple[BoundRoute, ...]:
        bind = self._server.bind
        return (bind(SHOW, "workbench.html", self.show), bind(ANALYSE, "workbench.html", self.analyse))

    async def show(self, context: RequestContext) -> Values:
        """Show the form, or the analysis of what was quarantined as one protocol."""
        protocol = context.query("protocol")
        if not protocol:
            return _values()
        samples = await asyncio.to_thread(self._quarantined, protocol)
        if not samples:
            return _values(protocol=protocol, failed=f"The quarantine of the log has no bytes of {protocol}.")
        return _values(protocol=protocol, found=await self._analyse(samples, are_segments=True))

    async def analyse(self, context: RequestContext) -> Values:
        check_own_page(context)
        text = (await read_form(context, CONSOLE_SAMPLES_BYTES_MAX)).get("frames", "")
        try:
            samples = parse_samples(text)
        except InputError as error:
            return _values(frames=text, failed=str(error))
        return _values(frames=text, found=await self._analyse(samples, are_segments=False))

    async def _analyse(self, samples: Sequence[Sample], *, are_segments: bool) -> Analysis:
        with self._limit.slot():
            return await asyncio.to_thread(
                analyse, samples, time.monotonic, are_segments=are_segments, within_s=CONSOLE_ANALYSIS_S
            )

    def _quarantined(self, protocol: str) -> list[Sample]:
        records = Search(self._folder / "log").newest({"quarantine", "fault"}, 0, CONSOLE_QUARANTINE_RECORDS_MAX)
        return [
            Sample(record.frame, f"{record.session} {record.direction}")
            for record in reversed(records)
            if record.protocol == protocol
        ]


def _values(frames: str = "", protocol: str = "", failed: str = "", found: Analysis | None = None) -> Values:
    return {"frames": frames, "protocol": protocol, "failed": failed, "found": found}


SHOW: Final = page_route("/workbench")
ANALYSE: Final = Route(method="POST", path="/workbench", summary="Analyse frames.", access=Access.ANYBODY)
ROUTES: Final = (SHOW, ANALYSE)
