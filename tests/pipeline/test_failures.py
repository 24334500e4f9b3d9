from pathlib import Path

import pytest

from wirelake.errors import StorageError
from wirelake.limits import PIPELINE_RESTART_FIRST_S, PIPELINE_RESTART_MAX_S, PIPELINE_SENTENCE_MAX
from wirelake.pipeline.failures import Failures, pause_s, sentence


def test_failures_of_one_batch_are_counted_across_processes(tmp_path: Path) -> None:
    Failures(tmp_path).note(3, "no memory")
    Failures(tmp_path).note(3, "no memory again")
    failures = Failures(tmp_path)
    assert failures.times(3) == 2
    assert failures.times(4) == 0
    last = failures.last()
    assert last is not None
    assert last.text == "no memory again"
    failures.note(4, "another")
    assert failures.times(4) == 1
    failures.clear()
    assert failures.last() is None


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_s(times) for times in range(1, 20)]
    assert pauses[0] == PIPELINE_RESTART_FIRST_S
    assert pauses == sorted(pauses)
    assert pauses[3] == 8 * PIPELINE_RESTART_FIRST_S
    assert pauses[-1] == PIPELINE_RESTART_MAX_S


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageError("the disk is full\nreally"), "the disk is full\nreally"),
        (
            RuntimeError(
                "[STREAM_FAILED] Query terminated with exception: no such thing SQLSTATE: XXKST\n=== Plan ===\nScan x"
            ),
            "[STREAM_FAILED] Query terminated with exception: no such thing SQLSTATE: XXKST",
        ),
        (
            RuntimeError("Job aborted\njava.lang.Thread\n  ValueError: the frame is too long\n\tat java.base"),
            "ValueError: the frame is too long",
        ),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 9_999), "x" * PIPELINE_SENTENCE_MAX),
    ],
)
def test_one_sentence_says_what_went_wrong(error: Exception, said: str) -> None:
    assert sentence(error) == said
