"""What the gold tables cost beside bronze and silver, at 20,000 frames a second: CPU-seconds.

    ./dev bench pipeline gold [--before FOLDER]

Batches of one second each go through the pipeline, and gold is refreshed as often as a running job does that. The same
without gold is subtracted. The tasks of a batch sum its rows in either case: what that costs is measured on its own.
"""

from rich.table import Table

from lakeside.bench import Bench
from lakeside.process_tree import KINDS
from lakeside.whole import Run, measure_versions

GOAL = 0.25  # of what bronze and silver cost
GOAL_REFRESH_S = 5.0


def run(bench: Bench) -> None:
    _show(bench, measure_versions(bench, "gold_run.py", lambda found: found.cpu.total()))


def _show(bench: Bench, best: dict[tuple[str, str], Run]) -> None:
    table = Table(title=f"gold beside bronze and silver, {bench.rows:,} records", title_justify="left")
    for heading in ("", *(f"{kind}, CPU-s" for kind in KINDS), "gold to silver", "goal", "slowest refresh", "goal"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in [name for what, name in best if what == "gold"]:
        silver, both = best["silver", name], best["gold", name]
        slowest_s, partials_s = both.notes
        without_s = silver.cpu.total() - partials_s
        ratio = (both.cpu.total() - without_s) / without_s
        table.add_row(f"{name}: bronze and silver", *(f"{silver.cpu[kind]:.1f}" for kind in KINDS))
        table.add_row(f"{name}: of these, partials", "", "", f"{partials_s:.1f}")
        table.add_row(
            f"{name}: gold",
            *(f"{both.cpu[kind] - silver.cpu[kind]:.1f}" for kind in KINDS),
            f"{ratio:.2f}",
            f"< {GOAL:g} {'✓' if ratio < GOAL else '✗'}",
            f"{slowest_s:.2f} s",
            f"< {GOAL_REFRESH_S:g} {'✓' if slowest_s < GOAL_REFRESH_S else '✗'}",
        )
    bench.console.print(table)
