from pathlib import Path

import pytest
from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.store import LocalStore
from wirelake.pipeline.batch import build_manifest
from wirelake.pipeline.commit import manifests as module
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore, Rebucketing, StateFile
from wirelake.pipeline.reports import BucketReport, SpanReport


def file(table: str, name: str, rows: int = 1) -> FileAction:
    return FileAction(table, name, 10, rows, {"day": "2030-01-01"})


def manifest(batch: int) -> Manifest:
    return Manifest(batch=batch, from_seq=batch * 10, until_seq=batch * 10 + 10, now_us=1, rows=10)


def test_an_intent_is_what_it_was(tmp_path: Path) -> None:
    manifest = Manifest(
        batch=3,
        from_seq=0,
        until_seq=10,
        now_us=5,
        rows=9,
        adds={"bronze.frames": [file("bronze.frames", "a")]},
        open={"silver.calls": {2: [file("silver.calls", "b")]}},
        states={2: [StateFile("2.arrow", 5, 7)]},
        partials="partials/3",
    )
    ManifestStore(LocalStore(tmp_path)).create(manifest)
    assert ManifestStore(LocalStore(tmp_path)).last() == manifest
    assert manifest.tables == ["bronze.frames"]
    assert ManifestStore(LocalStore(tmp_path)).get(2) is None


def test_old_ones_go_but_none_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIPELINE_MANIFESTS_KEPT", 3)
    manifests = ManifestStore(LocalStore(tmp_path))
    for batch in range(8):
        manifests.create(manifest(batch))
    assert [each.batch for each in manifests.prune(needed=2)] == [0, 1, 2]
    assert manifests.batches() == [3, 4, 5, 6, 7]
    manifests.prune(needed=7)
    assert [each.batch for each in manifests.since(5)] == [6, 7]


def test_a_file_that_holds_none_is_named(tmp_path: Path) -> None:
    manifests = ManifestStore(LocalStore(tmp_path))
    LocalStore(tmp_path).write("intents/000000000001.json", b"{}")
    with pytest.raises(StorageError, match=r"000000000001\.json is not a manifest"):
        manifests.last()


def test_open_rows_of_a_bucket_take_the_place_of_those_before() -> None:
    old, other, new = (file("silver.calls", name) for name in ("old", "other", "new"))
    before = Manifest(
        batch=0,
        from_seq=0,
        until_seq=10,
        now_us=5,
        rows=10,
        open={"silver.calls": {0: [old], 1: [other]}, "silver.sessions": {0: [file("silver.sessions", "s")]}},
        whole_states={0: "a", 1: "b"},
    )
    landed = SpanReport(10, 20, 9, 10, [file("bronze.frames", "f", 10)], poison=[13])
    bucketed = BucketReport(0, [StateFile("c")], [file("silver.calls", "final")], {"silver.calls": [new]})
    after = build_manifest(1, [landed, bucketed, BucketReport(1)], before)
    assert (after.from_seq, after.until_seq, after.now_us, after.rows, after.poison) == (10, 20, 9, 10, [13])
    assert [each.path for each in after.adds["silver.calls"]] == ["final", "new"]
    assert after.removes == {"silver.calls": [old]}
    assert after.open == {"silver.calls": {0: [new], 1: [other]}, "silver.sessions": before.open["silver.sessions"]}
    assert after.states == {0: [StateFile("c")], 1: [StateFile("b")]}
    settled = build_manifest(2, [landed, BucketReport(0, [StateFile("d")], [], {"silver.calls": []})], after)
    assert settled.removes == {"silver.calls": [new]}
    assert settled.open["silver.calls"] == {1: [other]}


def test_the_newest_division_into_buckets_counts_until_the_next_batch(tmp_path: Path) -> None:
    manifests = ManifestStore(LocalStore(tmp_path))
    calls = file("silver.calls", "old")
    first = replace(manifest(7), whole_states={0: "a"}, open={"silver.calls": {0: [calls]}})
    manifests.create(first)
    for buckets in (3, 2):
        name = manifests.next_rebucketing(7)
        states = {bucket: [StateFile(f"{buckets}-{bucket}", 5, 6)] for bucket in range(buckets)}
        assert manifests.rebucket(name, Rebucketing(7, buckets, states))
        assert not manifests.rebucket(name, Rebucketing(7, 9, {})), "of two processes, one does"
        last = manifests.last()
        assert last is not None
        assert (last.buckets, last.bucket_states, last.rebucketed) == (buckets, states, True)
    assert manifests.batches() == [7]
    assert manifests.get(7) == first, "what was committed is what it was"
    new = file("silver.calls", "new")
    landed = SpanReport(70, 80, 9, 10, [file("bronze.frames", "f", 10)])
    bucketed = BucketReport(0, [StateFile("c")], [], {"silver.calls": [new]})
    after = build_manifest(8, [landed, bucketed, BucketReport(1)], last)
    assert after.removes == {"silver.calls": [calls]}
    assert after.open == {"silver.calls": {0: [new]}}
    assert after.states == {0: [StateFile("c")], 1: [StateFile("2-1", 5, 6)]}
    manifests.create(after)
    assert manifests.last() == after


def test_divisions_go_with_their_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIPELINE_MANIFESTS_KEPT", 1)
    manifests = ManifestStore(LocalStore(tmp_path))
    for batch in (1, 2):
        manifests.create(manifest(batch))
        manifests.rebucket(manifests.next_rebucketing(batch), Rebucketing(batch, 3, {}))
    manifests.prune(needed=2)
    assert sorted(path.name for path in (tmp_path / "intents").iterdir()) == [
        "000000000002-0000.buckets",
        "000000000002.json",
    ]


def test_a_manifest_of_an_earlier_version_has_one_file_for_each_bucket(tmp_path: Path) -> None:
    (tmp_path / "intents").mkdir()
    text = '{"batch": 4, "from_seq": 0, "until_seq": 9, "now_us": 1, "rows": 9, "carry": {"0": "a", "3": "b"}}'
    (tmp_path / "intents" / "000000000004.json").write_text(text)
    last = ManifestStore(LocalStore(tmp_path)).last()
    assert last is not None
    assert last.bucket_states == {0: [StateFile("a")], 3: [StateFile("b")]}
    assert (last.state_names, last.buckets) == ({"a", "b"}, 0)
