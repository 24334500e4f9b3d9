from pathlib import Path

from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.running_gateway import until
from wirelake.protocols.comet import frames


async def test_the_counters_agree_with_the_log(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", identities=[BOB]) as caller:
        async with await Phone.connect(caller.port("comet"), *BOB) as phone:
            await phone.ask(frames.Subscribe(("@a",)))
            await caller.call("POST", "/api/topics/%40a/notifications", {"content": "x"})
            await phone.receive()
            open_ = (await caller.call("GET", "/api/ledger")).json()
            assert open_["protocols"]["comet"]["connections"] == 1
            phone.write(b"\x00\x01\x63")  # no such type
            await phone.receive()
        await until(lambda: not caller.gateway.connections)
        ledger = (await caller.call("GET", "/api/ledger")).json()
        for protocol in ("comet", "http"):
            counts = ledger["protocols"][protocol]
            assert counts["frames_in"] == len(caller.records("frame", protocol=protocol, direction="in"))
        comet = ledger["protocols"]["comet"]
        assert (comet["connections"], comet["accepted"], comet["quarantined"], comet["errors"]) == (0, 1, 1, 1)
        assert comet["frames_out"] >= open_["protocols"]["comet"]["frames_out"] > 0
        assert comet["bytes_in"] > 0
        assert ledger["deliveries"]["durable"] == 1
        assert ledger["log"]["next_seq"] == caller.gateway.log.next_seq
        assert ledger["since_ms"] <= ledger["at_ms"]
