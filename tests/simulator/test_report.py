from wirelake.simulator.limits import SIMULATOR_REASONS_MAX
from wirelake.simulator.report import Report, SimulationCounts


def test_the_sum_of_all() -> None:
    report = Report()
    report.counts_of("apostol", "status").sent += 3
    report.counts_of("apostol", "status").acknowledged += 2
    report.counts_of("comet", "notification").received += 5
    assert report.counts_of("apostol", "status") == SimulationCounts(3, 2)
    assert report.total() == SimulationCounts(3, 2, 5, 0)


def test_reasons_are_distinguished_by_their_words() -> None:
    report = Report()
    for number in range(5):
        report.add_reason(f"no receipt after {number} repeats")
    report.add_reason("something else")
    assert report.reasons == {"no receipt after … repeats": 5, "something else": 1}
    for number in range(2 * SIMULATOR_REASONS_MAX):
        report.add_reason("x" * (number + 1))
    assert len(report.reasons) == SIMULATOR_REASONS_MAX + 1
    assert report.reasons["other"] == SIMULATOR_REASONS_MAX + 2
