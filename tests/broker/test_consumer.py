import itertools

from wirelake.broker.consumer import InFlight

RESEND_S = 32.0  # so that one run takes what is written within two seconds


def span(unacked: InFlight, now_s: float) -> tuple[int, int] | None:
    run = unacked.due(now_s, RESEND_S)
    return None if run is None else (run.first, run.last)


def test_what_is_written_at_about_the_same_time_is_one_run() -> None:
    unacked = InFlight()
    for position, at_s in enumerate((0.0, 1.0, 1.9, 2.5), start=1):
        unacked.on_write(position, position, at_s, RESEND_S)
    assert [(run.first, run.last) for run in unacked.fresh] == [(1, 3), (4, 4)]
    assert span(unacked, 33.0) is None, "not before its last one has waited long enough"
    assert span(unacked, 33.9) == (1, 3)


def test_the_number_of_runs_does_not_grow_with_what_is_written() -> None:
    unacked = InFlight()
    for turn in range(10_000):
        now_s = turn * 0.05
        unacked.on_write(turn + 1, turn + 1, now_s, RESEND_S)
        while (run := unacked.due(now_s, RESEND_S)) is not None:
            unacked.on_resend(run, run.last, (run.first, run.last), now_s)
        assert len(unacked.fresh) <= 18
    assert unacked.again is not None
    assert unacked.again.first == 1


def test_sent_again_it_waits_with_the_others_and_never_comes_early() -> None:
    unacked = InFlight()
    unacked.on_write(1, 1, 0.0, RESEND_S)
    unacked.on_write(2, 2, 10.0, RESEND_S)
    sent: dict[int, list[float]] = {1: [0.0], 2: [10.0]}
    for tick in range(200):
        now_s = float(tick)
        while (run := unacked.due(now_s, RESEND_S)) is not None:
            for position in range(run.first, run.last + 1):
                sent[position].append(now_s)
            unacked.on_resend(run, run.last, (run.first, run.last), now_s)
    for times in sent.values():
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses[0] == RESEND_S
        assert all(RESEND_S <= pause <= 2 * RESEND_S for pause in pauses)
        assert len(pauses) >= 3


def test_a_slice_leaves_the_rest_due() -> None:
    unacked = InFlight()
    unacked.on_write(1, 10, 0.0, RESEND_S)
    run = unacked.due(40.0, RESEND_S)
    assert run is not None
    unacked.on_resend(run, 4, (2, 4), 40.0)
    assert span(unacked, 40.0) == (5, 10)
    run = unacked.due(40.0, RESEND_S)
    assert run is not None
    unacked.on_resend(run, 10, None, 41.0)
    assert span(unacked, 41.0) is None
    assert span(unacked, 72.0) == (2, 4)


def test_with_everything_acked_nothing_is_left() -> None:
    unacked = InFlight()
    unacked.on_write(1, 10, 0.0, RESEND_S)
    run = unacked.due(40.0, RESEND_S)
    assert run is not None
    unacked.on_resend(run, 10, None, 40.0)
    assert unacked.oldest_s is None
    assert unacked == InFlight()


def test_postponed_it_waits_once_more() -> None:
    unacked = InFlight()
    unacked.on_write(1, 1, 0.0, RESEND_S)
    unacked.on_write(2, 2, 3.0, RESEND_S)
    unacked.on_write(3, 3, 30.0, RESEND_S)
    unacked.postpone(40.0, RESEND_S)
    assert span(unacked, 61.9) is None
    assert span(unacked, 62.0) == (3, 3)
    assert span(unacked, 72.0) == (1, 2)
