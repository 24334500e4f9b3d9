"""Extract a data folder as the previous version left it.

previous-version.tar.xz has a log with traffic of all protocols, of which the pipeline has processed a part in five
batches: while sessions, a call, a command, two deliveries and the counters of the last interval were open. The tables
have columns named `at` and `offset`, and open rows in partitions `settled=false`.
"""

import tarfile
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "previous-version.tar.xz"


def extract_previous_version(folder: Path) -> Path:
    """Return the data folder."""
    with tarfile.open(ARCHIVE) as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(folder, **safely)  # noqa: S202 (our own)
    return folder / "data"
