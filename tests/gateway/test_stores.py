"""The log, state and checkpoint of a data folder belong together: what is missing is restored or refused."""

import random
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.running_gateway import HOST, Running, running_gateway
from wirelake.errors import LossError, StorageError
from wirelake.gateway.stores import open_stores
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.high_watermark import read_data_id, write_data_id
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings
from wirelake.message import GATEWAY_SERVICE, Kind, Message, Op, Operation
from wirelake.protocols.batches import PublishBatch
from wirelake.state.store import StateStore

BEFORE_IDS = Path(__file__).parent / "folders" / "folder-without-id.tar.xz"
SMALL: dict[str, Any] = {"log": {"segment_mb": 1}}
CUTS = 12


async def on_disk(running: Running) -> None:
    """Wait until everything so far is durable in both stores."""
    await running.gateway.state.barrier()
    await running.gateway.recorder.event(_Nobody(), "open", {})


class _Nobody:
    id = protocol = identity = address = ""


def copied(data: Path, folder: Path) -> Path:
    """Copy the data folder as a power failure would leave it now."""
    shutil.copytree(data, folder / "data", ignore=shutil.ignore_patterns("*.lock", "lock", "*-shm"))
    return folder


def seen(store: StateStore) -> dict[str, Any]:
    """Return what clients can observe of the topics; times and rows on disk may differ."""
    topics = store.topics
    found: dict[str, Any] = {}
    for name in sorted(topics.names()):
        retained = topics.retained(name)
        found[name] = {
            "head": topics.head(name),
            "ids": topics.id_prefix(name),
            "retained": retained and (retained.id, retained.content),
            "of": {each: topics.delivery_counts(each, name) for each in sorted(topics.subscribers(name))},
            "waiting": {
                each: [(row.id, row.position, row.type, row.publisher, row.content) for row in topics.backlog(each)]
                for each in sorted(topics.subscribers(name))
            },
        }
    return found


def cut_wal(folder: Path, share: float) -> None:
    wal = folder / "data" / "state.db-wal"
    whole = wal.read_bytes()
    wal.write_bytes(whole[: int(len(whole) * share)])


def reopened(folder: Path, *, accept_loss: bool = False) -> dict[str, Any]:
    stores = open_stores(folder / "data", LogSettings(), accept_loss=accept_loss)
    try:
        return seen(stores.state)
    finally:
        stores.state.close()
        stores.log.close()


class Subscriber:
    """Subscribe as a peer of the broker that receives only answers and pulls its backlog."""

    protocol = "test"
    sends_acks = True
    takes_commands = False
    takes_broadcasts = False
    is_admin = False
    address = ""
    pulls_backlog = True
    encoding_key = None
    is_congested = False
    bytes_in = bytes_written = bytes_drained = 0

    def __init__(self, running: Running, identity: str) -> None:
        self.identity = identity
        self.id = running.gateway.sessions.new_id()
        self._gateway = running.gateway

    def encode_notification(self, message: Message) -> bytes:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, closing: object) -> None:
        raise NotImplementedError

    def send(self, message: Message) -> None:
        assert message.kind is not Kind.RESPONSE or message.failure is None, message

    def ask(self, op: Op, **fields: Any) -> None:
        message = Message(kind=Kind.CONTROL, target=Operation(GATEWAY_SERVICE, op), fields=fields, correlation="1")
        self._gateway.broker.handle(self, message, self._gateway.now_s(), self._gateway.now_ms())


class Several(PublishBatch):
    def contents(self) -> list[bytes]:
        return self.frames


async def publish_many(running: Running, topic: str, count: int) -> list[str]:
    return [await running.publish(topic, f"number {number}", type=number % 3) for number in range(count)]


async def mixed(running: Running, chance: random.Random, steps: int) -> None:
    """Change topics in every way, in random order; each step is durable before the next."""
    people = [Subscriber(running, name) for name in ("ann", "bob", "cid")]
    gateway = running.gateway
    for step in range(steps):
        who, topic = chance.choice(people), chance.choice(["@a", "@b", "@c"])
        match chance.randrange(9):
            case 0 | 1:
                who.ask(Op.SUBSCRIBE, topics=[topic])
            case 2:
                if chance.random() < 0.3:
                    who.ask(Op.UNSUBSCRIBE, topics=[topic])
            case 3:
                waiting = [row.id for row in gateway.state.topics.backlog(who.identity)]
                who.ask(Op.ACK, ids=sorted(chance.sample(waiting, len(waiting) // 2)))
            case 4:
                gateway.broker.publish_batch(who, "1", Several(topic, [b"a%d" % step, b"b%d" % step]), gateway.now_ms())
            case 5:
                if chance.random() < 0.2:
                    swept = gateway.sweeper.step(gateway.now_ms() + 10**10)
                    await gateway.state.barrier()
                    for gone in swept.expired:
                        note = {"first": gone.first, "last": gone.last}
                        gateway.recorder.topic("expire", gone.topic, b"", note)
            case _:
                retain = {"retain": chance.random() < 0.3}
                message = Message(kind=Kind.NOTIFICATION, payload=b"%d" % step, headers=retain, type=step)
                gateway.broker.publish(topic, message, "test", gateway.now_ms())
        await on_disk(running)


async def test_whatever_the_state_lost_of_its_topics_is_replayed(tmp_path: Path) -> None:
    """Cut the write-ahead log anywhere: afterwards the state is the same as without the cut."""
    chance = random.Random(5)
    async with running_gateway(tmp_path / "live", **SMALL) as running:
        await mixed(running, chance, 150)
        whole = seen(running.gateway.state)
        copies = [copied(running.gateway.folder, tmp_path / str(cut)) for cut in range(CUTS)]
    assert any(waiting for topic in whole.values() for waiting in topic["waiting"].values())
    behind = 0
    for copy in copies:
        cut_wal(copy, chance.random())
        store = StateStore(copy / "data" / "state.db")
        behind += seen(store) != whole
        store.close()
        assert reopened(copy) == whole
        assert reopened(copy) == whole, "and stays so"
    assert behind > CUTS / 2


async def test_a_state_that_lost_half_of_its_write_ahead_log_owes_everything_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "live", **SMALL) as running:
        ann = Subscriber(running, "ann")
        ann.ask(Op.SUBSCRIBE, topics=["@news"])
        ids = await publish_many(running, "@news", 120)
        await on_disk(running)
        copy = copied(running.gateway.folder, tmp_path / "copy")
    cut_wal(copy, 0.5)
    store = StateStore(copy / "data" / "state.db")
    assert store.topics.head("@news") < 100, "the cut took something"
    store.close()
    async with running_gateway(copy, **SMALL) as running:
        waiting = running.waiting("ann")
        assert [each.id for each in waiting] == ids
        assert [each.content.decode() for each in waiting] == [f"number {number}" for number in range(120)]
        assert await running.publish("@news", "next") == f"{ids[0].rpartition('-')[0]}-{121:x}"


async def test_a_publication_that_only_the_log_has_keeps_its_position(tmp_path: Path) -> None:
    """Crash between the two syncs: the record is in the log, but the publication was not acknowledged."""
    async with running_gateway(tmp_path / "live", **SMALL) as running:
        Subscriber(running, "ann").ask(Op.SUBSCRIBE, topics=["@news"])
        await publish_many(running, "@news", 3)
        await on_disk(running)
        copy = copied(running.gateway.folder, tmp_path / "copy")
        await publish_many(running, "@news", 2)
        await on_disk(running)
        shutil.rmtree(copy / "data" / "log")
        shutil.copytree(running.gateway.folder / "log", copy / "data" / "log", ignore=shutil.ignore_patterns("lock"))
    async with running_gateway(copy, **SMALL) as running:
        await running.publish("@news", "next")
        await on_disk(running)
        positions = [each["note"]["position"] for each in running.records("publish")]
        assert positions == [1, 2, 3, 4, 5, 6]
        assert [each.content for each in running.waiting("ann")][3:] == [b"number 0", b"number 1", b"next"]


async def test_what_the_log_cannot_restore_is_refused_and_named(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "live", **SMALL) as running:
        Subscriber(running, "ann").ask(Op.SUBSCRIBE, topics=["@news"])
        await on_disk(running)
        older = copied(running.gateway.folder, tmp_path / "copy")
        ids = await publish_many(running, "@news", 3)
        await running.add_identity("dora", "secret")
        await on_disk(running)
        shutil.copytree(
            running.gateway.folder / "log",
            older / "data" / "log",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("lock"),
        )
    for _ in range(2):
        with pytest.raises(LossError, match=r"changes that the log cannot restore, of: identities.*--accept-loss"):
            reopened(older)
    async with running_gateway(older, accept_loss=True, **SMALL) as running:
        waiting = running.waiting("ann")
        assert [each.content for each in waiting] == [b"number 0", b"number 1", b"number 2"]
        assert not {each.id for each in waiting} & set(ids), "no id is given twice"
        (note,) = [each["note"] for each in running.records("state") if "lost" in each["note"]]
        assert "identities" in note["lost"][0]
        await on_disk(running)
    reopened(older)  # the loss is reported once only


async def test_what_was_changed_while_no_gateway_ran_is_missed_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 1)
    shutil.copy(tmp_path / "data" / "state.db", tmp_path / "older.db")
    store = StateStore(tmp_path / "data" / "state.db")
    store.devices.add("1234", 6, None, 1).wait(10)
    store.close()
    async with running_gateway(tmp_path, **SMALL) as running:
        await on_disk(running)
    shutil.copy(tmp_path / "older.db", tmp_path / "data" / "state.db")
    with pytest.raises(LossError, match="cannot restore, of: devices"):
        reopened(tmp_path)


async def test_sessions_and_a_clean_start_need_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 3)
    async with running_gateway(tmp_path, **SMALL):
        pass
    assert "replayed" not in caplog.text


async def test_an_older_copy_of_the_state_is_brought_up_to_the_log(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        Subscriber(running, "ann").ask(Op.SUBSCRIBE, topics=["@news"])
        await publish_many(running, "@news", 3)
    shutil.copy(tmp_path / "data" / "state.db", tmp_path / "older.db")
    async with running_gateway(tmp_path, **SMALL) as running:
        ids = [each.id for each in running.waiting("ann")]
        Subscriber(running, "ann").ask(Op.ACK, ids=ids[:2])
        await publish_many(running, "@other", 2)
        await publish_many(running, "@news", 4)
        whole = seen(running.gateway.state)
    shutil.copy(tmp_path / "older.db", tmp_path / "data" / "state.db")
    assert reopened(tmp_path) == whole


async def test_an_older_copy_than_the_log_goes_back_to_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 3)
    shutil.copy(tmp_path / "data" / "state.db", tmp_path / "older.db")
    for _ in range(3):
        async with running_gateway(tmp_path, **SMALL) as running:
            await publish_many(running, "@news", 3)
    segments = sorted((tmp_path / "data" / "log").glob("*.seg"))
    for path in segments[:-1]:
        path.unlink()
    shutil.copy(tmp_path / "older.db", tmp_path / "data" / "state.db")
    with pytest.raises(LossError, match="removed by retention"):
        reopened(tmp_path)
    assert reopened(tmp_path, accept_loss=True)["@news"]["head"] == 12


async def test_a_deleted_log_is_refused_and_never_begins_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        Subscriber(running, "ann").ask(Op.SUBSCRIBE, topics=["@news"])
        ids = await publish_many(running, "@news", 5)
    end = LogReader(tmp_path / "data" / "log").next_seq
    shutil.rmtree(tmp_path / "data" / "log")
    for _ in range(2):
        with pytest.raises(LossError, match=r"the log ends at record 0, and state.db has seen it up to \d+"):
            reopened(tmp_path)
    async with running_gateway(tmp_path, accept_loss=True, **SMALL) as running:
        await running.publish("@news", "next")
        await on_disk(running)
        rows = running.records()
        assert rows[0]["seq"] == end, "it goes on right behind what was there"
        waiting = running.waiting("ann")
        assert [each.position for each in waiting] == [1, 2, 3, 4, 5, 6]
        assert not {each.id for each in waiting} & set(ids)
    reopened(tmp_path)


async def test_a_log_that_was_cut_goes_on_behind_a_hole(tmp_path: Path) -> None:
    """Lose the segment of the second of two runs: its records are reported as lost, and no seq is reused."""
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 5)
    shutil.copytree(tmp_path / "data" / "log", tmp_path / "older")
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 5)
    shutil.rmtree(tmp_path / "data" / "log")
    shutil.copytree(tmp_path / "older", tmp_path / "data" / "log")
    with pytest.raises(LossError, match="deleted, cut, or restored"):
        reopened(tmp_path)
    before = LogReader(tmp_path / "data" / "log").next_seq
    async with running_gateway(tmp_path, accept_loss=True, **SMALL) as running:
        await on_disk(running)
        reader = LogReader(running.gateway.log.folder)
        seqs = [seq for batch in reader.read() for seq in batch["seq"].to_pylist()]
        lost = reader.rows_lost
        assert lost >= 5
        assert seqs == [*range(before), *range(before + lost, reader.next_seq)]
        assert running.gateway.log.recovery.clean


async def test_a_log_behind_a_consumer_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL):
        pass
    ConsumerOffsets(tmp_path / "data" / "log").commit("backup", 10_000, 1)
    with pytest.raises(LossError, match="a consumer has read it up to 10000"):
        reopened(tmp_path)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_a_missing_state_is_refused_and_replayed_if_accepted(tmp_path: Path, how: str) -> None:
    async with running_gateway(tmp_path, identities=[("ann", "secret")], **SMALL) as running:
        ann = Subscriber(running, "ann")
        ann.ask(Op.SUBSCRIBE, topics=["@news"])
        ids = await publish_many(running, "@news", 5)
        ann.ask(Op.ACK, ids=ids[:2])
    file = tmp_path / "data" / "state.db"
    file.unlink() if how == "deleted" else file.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(LossError, match=r"state.db is missing or empty.*identities, devices"):
            reopened(tmp_path)
    async with running_gateway(tmp_path, accept_loss=True, **SMALL) as running:
        assert running.gateway.state.identities.find("ann") is None
        waiting = running.waiting("ann")
        assert [(each.position, each.content) for each in waiting] == [(n, b"number %d" % (n - 1)) for n in (3, 4, 5)]
        assert not {each.id for each in waiting} & set(ids)
    reopened(tmp_path)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
async def test_a_truncated_state_is_refused_with_the_reason(tmp_path: Path, share: float) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 50)
    file = tmp_path / "data" / "state.db"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(StorageError, match=r"damaged.*restore state.db from a backup.*--accept-loss"):
        reopened(tmp_path)
    file.rename(tmp_path / "aside.db")
    assert reopened(tmp_path, accept_loss=True)["@news"]["head"] == 50


async def test_a_state_of_another_folder_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        async with running_gateway(tmp_path / name, **SMALL) as running:
            await publish_many(running, f"@{name}", 3)
    own = tmp_path / "one" / "data" / "state.db"
    shutil.copy(tmp_path / "other" / "data" / "state.db", own)
    with pytest.raises(LossError, match="belongs to another data folder"):
        reopened(tmp_path / "one")
    assert set(reopened(tmp_path / "one", accept_loss=True)) == {"@other"}
    assert set(reopened(tmp_path / "one")) == {"@other"}


async def test_a_state_from_before_ids_beside_a_log_with_one_is_refused(tmp_path: Path) -> None:
    with tarfile.open(BEFORE_IDS) as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copy(tmp_path / "data" / "state.db", tmp_path / "older.db")
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 3)
    shutil.copy(tmp_path / "older.db", tmp_path / "data" / "state.db")
    with pytest.raises(LossError, match="written before this log"):
        reopened(tmp_path)
    assert reopened(tmp_path, accept_loss=True)["@news"]["head"] == 8


async def test_a_folder_from_before_ids_is_adopted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tarfile.open(BEFORE_IDS) as archive:
        archive.extractall(tmp_path, filter="data")
    async with running_gateway(tmp_path, **SMALL) as running:
        waiting = running.waiting("ann")
        assert [each.id for each in waiting] == ["cf394d34-1-3", "cf394d34-1-4", "cf394d34-1-5"]
        assert running.gateway.state.identities.find("ann") is not None
        assert await running.publish("@news", "next") == "cf394d34-1-6"
        data_id = running.gateway.state.database.meta("data_id")
    assert read_data_id(tmp_path / "data" / "log") == data_id != ""
    assert not [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
    reopened(tmp_path)


async def test_an_adopted_folder_without_its_log_is_refused(tmp_path: Path) -> None:
    with tarfile.open(BEFORE_IDS) as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.rmtree(tmp_path / "data" / "log")
    with pytest.raises(LossError, match=r"the log is missing, and state.db has topics"):
        reopened(tmp_path)


async def test_a_crash_while_the_id_is_given_does_no_harm(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL):
        pass
    data_id = read_data_id(tmp_path / "data" / "log")
    (tmp_path / "data" / "log" / "id").unlink()
    reopened(tmp_path)
    assert read_data_id(tmp_path / "data" / "log") == data_id
    write_data_id(tmp_path / "data" / "log", "0f")
    with pytest.raises(LossError, match="another data folder"):
        reopened(tmp_path)


def damage(file: Path, share: float) -> None:
    """Overwrite a page in the middle of the file."""
    raw = bytearray(file.read_bytes())
    page = int(len(raw) // 4096 * share) * 4096
    raw[page : page + 4096] = b"\xa5" * 4096
    file.write_bytes(raw)


async def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, **SMALL) as running:
        await publish_many(running, "@news", 300)
    damage(tmp_path / "data" / "state.db", 0.7)
    with pytest.raises(StorageError, match=r"state.db cannot be opened: it is damaged.*--accept-loss"):
        async with running_gateway(tmp_path, **SMALL):
            raise AssertionError("it was opened")


async def test_a_damaged_page_found_at_run_time_makes_it_not_ready(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "http", **SMALL) as running:
        Subscriber(running, "ann").ask(Op.SUBSCRIBE, topics=["@news"])
        for number in range(40):
            await running.publish("@news", b"%d" % number * 4000)
        url = f"http://{HOST}:{running.port('http')}/readyz"
        async with httpx.AsyncClient() as client:
            assert (await client.get(url)).status_code == 200
            database = running.gateway.state.database
            database.write_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with closing(sqlite3.connect(database.path)) as looking:
                (root,) = looking.execute("SELECT rootpage FROM sqlite_master WHERE name = 'notifications'").fetchone()
            with database.path.open("r+b") as file:
                file.seek((root - 1) * 4096)
                file.write(b"\xa5" * 4096)
            database.reader._connection.execute("PRAGMA shrink_memory")
            with pytest.raises(StorageError, match=r"state.db is damaged"):
                running.gateway.state.topics.find(running.gateway.state.topics.id_prefix("@news") + "1")
            answer = await client.get(url)
            assert answer.status_code == 503
            assert "state.db is damaged" in answer.text
            assert "--accept-loss" in answer.text
