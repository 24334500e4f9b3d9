"""A preview finds, without Spark, what a dry run of `redecode` finds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from msgspec.structs import asdict

from pipeline.conftest import PLUGIN
from pipeline.redecode.test_redecode import again, once, say
from pipeline.traffic import START_US, fill
from wirelake.cli.main import wirelake
from wirelake.errors import InputError
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.redecode.preview import PREVIEW_EXAMPLES_MAX, RowChange, preview
from wirelake.protocols import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch, codec: Path) -> Iterator[None]:
    """Install `mended` in this process too, in its first version."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    registry.refresh()
    codec.unlink(missing_ok=True)
    yield
    codec.unlink(missing_ok=True)
    monkeypatch.undo()
    registry.refresh()


def test_what_would_change(spark: "SparkSession", log: SegmentLog, data: Path, codec: Path) -> None:
    fill(log, 50)
    one, two, three, _ = say(log)
    later = say(log, (b"more=1", b"more=2", b"more=3"), START_US + 60_000_000)
    once(spark, data)
    same = preview(data, "mended")
    assert (same.frames, same.messages.same, same.is_changing, same.changes) == (7, 5, False, {})
    codec.write_text("2")
    progress: list[tuple[int, int]] = []
    found = preview(data, "mended", on_progress=lambda done, rows: progress.append((done, rows)))
    dry = again(spark, data, dry=True)
    assert asdict(found.messages) == asdict(dry.tables["silver.messages"])
    assert asdict(found.quarantine) == asdict(dry.tables["silver.quarantine"])
    assert (found.frames, found.decoded, found.refused) == (dry.frames, dry.decoded, dry.refused)
    assert found.is_changing
    assert found.decoders == {"mended/1", "mended/2"}
    assert progress[-1][0] == progress[-1][1] > 0
    assert {kind: changes.count for kind, changes in found.changes.items()} == {
        "said: topic": 4,
        "said: no longer decoded": 1,
        "said: decoded now": 1,
    }
    topics = found.changes["said: topic"].examples
    assert len(topics) == PREVIEW_EXAMPLES_MAX
    assert topics[0] == RowChange(one, {"topic": ("News", "news")})
    reason = "no_topic: nothing says what it is about"
    moved = {"quarantine": (reason, None), "fields": (None, "{}")}
    assert found.changes["said: decoded now"].examples == [RowChange(two, moved)]
    moved = {"quarantine": (None, reason), "fields": ("{}", None)}
    assert found.changes["said: no longer decoded"].examples == [RowChange(three, moved)]
    assert preview(data, "mended", START_US + 60_000_000).frames == len(later)

    result = CliRunner().invoke(wirelake, ["protocol", "check", "mended", "--data", str(data), "--examples", "3"])
    assert result.exit_code == 1, "its splitter is not implemented, and a law says so"
    assert "✗ any bytes" in result.output
    assert "NotImplementedError" in result.output
    assert f"seq {one}  topic: News → news" in result.output
    assert "wirelake pipeline redecode --protocol mended" in result.output
    result = CliRunner().invoke(wirelake, ["protocol", "check", "mended", "--data", str(data), "--json"])
    values = json.loads(result.stdout)["history"]
    assert values["tables"]["silver.messages"]["changed"] == 4
    assert {each["what"]: each["rows"] for each in values["changes"]}["said: decoded now"] == 1


def test_without_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no tables"):
        preview(tmp_path, "mended")
