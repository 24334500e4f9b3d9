from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.apostol_client import Meter, report
from gateway.comet_client import Phone
from gateway.http.calling import BOB, Calling, calling
from gateway.running_gateway import until
from wirelake.gateway.metrics import Histogram
from wirelake.lake.progress import JobProgress, write_progress
from wirelake.protocols.apostol.constants import SEALED
from wirelake.protocols.comet import frames


async def scraped(caller: Calling) -> dict[tuple[str, tuple[str, ...]], float]:
    response = await caller.call("GET", "/metrics", bearer=None)
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_what_happened_is_counted(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", identities=[BOB]) as caller:
        async with await Phone.connect(caller.port("comet"), *BOB) as phone:
            await phone.ask(frames.Subscribe(("@a",)))
            await caller.call("POST", "/api/topics/%40a/notifications", {"content": "x"})
            await phone.receive()
            found = await scraped(caller)
            assert found["wirelake_connections", ("comet",)] == 1
            assert found["wirelake_connections_accepted_total", ("comet",)] == 1
            assert found["wirelake_frames_total", ("in", "comet")] == 2
            assert found["wirelake_frames_total", ("out", "comet")] == 3
            assert found["wirelake_frames_total", ("in", "http")] == 1
            assert found["wirelake_deliveries_total", ("durable",)] == 1
            assert found["wirelake_topics", ("durable",)] == 1
            assert found["wirelake_log_blocks_total", ()] > 0
            assert found["wirelake_log_commit_seconds_count", ()] > 0
            assert (
                found["wirelake_log_commit_seconds_bucket", ("+Inf",)] == found["wirelake_log_commit_seconds_count", ()]
            )
            assert found["wirelake_state_commits_total", ()] > 0
            route = "/api/topics/{topic}/notifications"
            assert found["wirelake_http_requests_total", ("POST", route, "201")] == 1
            assert found["process_resident_memory_bytes", ()] > 1_000_000
            assert found["wirelake_admitted", ()] == 2
            phone.write(b"\x00\x01\x63")
            await phone.receive()
        await until(lambda: not caller.gateway.connections)
        await caller.call("GET", "/api/topics", bearer="bob:wrong")
        later = await scraped(caller)
        assert later["wirelake_quarantined_total", ("comet",)] == 1
        assert later["wirelake_errors_total", ("comet", "unknown_type")] == 1
        assert later["wirelake_errors_total", ("http", "unauthorized")] == 1
        assert later["wirelake_logins_total", ("wrong_token", "http")] == 1
        assert later["wirelake_connections", ("comet",)] == 0
        falling = {key for key, value in found.items() if key[0].endswith("_total") and later.get(key, -1) < value}
        assert not falling, "a counter never falls, also when a connection ends"


async def test_commands_that_expire_or_are_refused_are_counted(tmp_path: Path) -> None:
    async with calling(tmp_path, "apostol", devices=[("m1", 0, None)], apostol={"assembly_s": 0.05}) as caller:
        failed = "wirelake_device_commands_failed_total"
        async with await Meter.connect(caller.port("apostol")) as meter:
            meter.send(report("m1", 1, b"good")[0])
            meter.send(report("m1", 2, b"x" * 100, data_bytes=60)[0])  # the second packet never arrives
            for number in (3, 4):  # complete but not decodable: the first alone, the others in a batch
                meter.send(report("m1", number, bytes.fromhex("01 01 02 ff"), command_type=4)[0])
            meter.send(report("m1", 5, b"x", params=SEALED, seal_with=(bytes(16), bytes(12)))[0])
            for _ in range(5):
                assert (await meter.receive()).receipt
            await until(lambda: ("expired", "assembly_timeout") in caller.gateway.counters.device_commands)
            found = {key[1]: value for key, value in (await scraped(caller)).items() if key[0] == failed}
            assert found == {
                ("assembly_timeout", "expired"): 1,
                ("short", "refused"): 2,
                ("no_key", "refused"): 1,
            }


async def test_invented_methods_and_paths_make_no_new_series(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for method in ("BREW", "PROPFIND"):
            await caller.client.request(method, "/healthz")
            await caller.client.request(method, f"/{method}")
        labels = {key[1] for key in await scraped(caller) if key[0] == "wirelake_http_requests_total"}
        assert labels == {("other", "/healthz", "405")}


def test_a_histogram_counts_up_to_each_bound() -> None:
    seen = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        seen.observe(value)
    assert list(seen.cumulated()) == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert (seen.count, seen.sum) == (4, 7.65)


async def test_the_lag_of_the_loop_is_measured(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        await until(lambda: caller.http.stats.loop_lag_s.count > 0)
        assert (await scraped(caller))["wirelake_loop_lag_seconds_count", ()] > 0


async def test_a_pipeline_that_runs_beside_it_is_shown(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        folder = caller.gateway.folder
        now_ms = caller.gateway.now_ms()
        told = JobProgress(pid=1, written_at_ms=now_ms, next_seq=0, at_us=now_ms * 1000, rows=70, batches=3)
        told.dropped, told.noted = {"calls_given_up": 4}, {"acks_repeated": 2}
        told.phases_s, told.open_rows = {"ingest": 0.5}, {"silver.calls": 3}
        told.state_bytes, told.files = 1000, 6
        write_progress(folder, told)
        found = await scraped(caller)
        assert found["wirelake_pipeline_rows_total", ()] == 70
        assert found["wirelake_pipeline_dropped_total", ("calls_given_up",)] == 4
        assert found["wirelake_pipeline_noted_total", ("acks_repeated",)] == 2
        assert found["wirelake_pipeline_phase_seconds", ("ingest",)] == 0.5
        assert found["wirelake_pipeline_open_rows", ("silver.calls",)] == 3
        assert found["wirelake_pipeline_state_bytes", ()] == 1000
        assert found["wirelake_pipeline_batch_files", ()] == 6
        assert found["wirelake_pipeline_behind_rows", ("silver",)] == caller.gateway.log.next_seq
        assert 0 <= found["wirelake_pipeline_behind_seconds", ("silver",)] < 60
        assert ("wirelake_pipeline_behind_seconds", ("gold",)) not in found  # it has processed nothing yet
        told.written_at_ms = now_ms - 3_600_000
        write_progress(folder, told)
        assert ("wirelake_pipeline_rows_total", ()) not in await scraped(caller)  # it no longer runs
