"""Check what every store promises, in a folder and on S3."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from wirelake.errors import InputError, InUseError, StorageError
from wirelake.lake.object_store import LeaseHolder, ObjectStore
from wirelake.lake.store import LocalStore, Lock, Store, open_store
from wirelake.limits import LAKE_PART_BYTES, LAKE_WHOLE_BYTES

if TYPE_CHECKING:
    from object_storage import S3Server

WAIT_S = 30.0


@pytest.fixture(params=["folder", "moto", "versity"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return LocalStore(tmp_path / "not yet there")
    server: S3Server = request.getfixturevalue({"moto": "s3_server", "versity": "versity_server"}[request.param])
    return server.new_lake()


def test_files_are_written_replaced_and_deleted(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.read("a/b.json")
    assert store.size("a/b.json") is None
    store.write("a/b.json", b"one")
    store.write("a/b.json", b"another")
    assert store.read("a/b.json") == b"another"
    assert store.size("a/b.json") == len(b"another")
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert store.size("a/b.json") is None


def test_of_two_that_create_a_file_one_does(store: Store) -> None:
    outcomes: list[tuple[int, bool]] = []
    start = threading.Barrier(8)

    def attempt(number: int) -> None:
        start.wait()
        outcomes.append((number, store.create("some/manifest.json", str(number).encode())))

    threads = [threading.Thread(target=attempt, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, created in outcomes if created]
    assert len(winners) == 1
    assert store.read("some/manifest.json") == str(winners[0]).encode()
    assert store.list("some") == ["some/manifest.json"]


def test_files_are_listed_by_folder(store: Store) -> None:
    for path in ("intents/2.json", "intents/10.json", "intents/deep/1.json", "intents.bak/1.json", "day=2026-01-02/x"):
        store.write(path, b"")
    assert store.list("intents") == ["intents/10.json", "intents/2.json", "intents/deep/1.json"]
    assert len(store.list()) == 5
    assert store.list("nothing") == []
    assert store.has_files("intents")
    assert not store.has_files("inten")
    below = store.at("intents")
    assert below.list() == ["10.json", "2.json", "deep/1.json"]
    assert below.at("deep").list() == ["1.json"]
    assert below.url == f"{store.url}/intents"
    below.delete_all("")
    assert store.list("intents") == []
    assert store.list("intents.bak") == ["intents.bak/1.json"]
    store.delete_all("nothing")


@pytest.mark.parametrize("size", [0, 1, LAKE_PART_BYTES + 1, 2 * LAKE_PART_BYTES + 7])
def test_a_file_is_visible_once_it_is_closed(store: Store, size: int) -> None:
    data = os.urandom(size)
    output = store.open_output("part.bin")
    output.sink.write(data[: size // 2])
    output.sink.write(data[size // 2 :])
    assert store.list() == []
    assert store.size("part.bin") is None
    assert output.close() == size
    assert store.read("part.bin") == data


def test_nothing_is_left_of_a_file_that_is_discarded(store: Store) -> None:
    output = store.open_output("part.bin")
    output.sink.write(b"half")
    output.discard()
    assert store.list() == []
    if isinstance(store, LocalStore):
        assert list(store.folder.iterdir()) == []


def test_what_a_killed_process_left_is_cleaned(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("0001.arrow", b"whole")
    store.open_output("0002.arrow").sink.write(b"half")
    assert store.list() == ["0001.arrow"]
    store.clean("")
    assert [path.name for path in tmp_path.iterdir()] == ["0001.arrow"]


@pytest.mark.parametrize("size", [10, LAKE_WHOLE_BYTES // 8 + 10_000])
def test_arrow_and_parquet_files(store: Store, size: int) -> None:
    table = pa.table({"x": pa.array(range(size)), "y": pa.array(os.urandom(8) for _ in range(size))})
    output = store.open_output("rows.parquet")
    pq.write_table(table, output.sink, compression="none", use_dictionary=False)
    output.close()
    with store.open_input("rows.parquet") as source:
        assert pq.ParquetFile(source).read() == table
    with store.open_input("rows.parquet") as source:
        assert pq.read_metadata(source).num_rows == size
    output = store.open_output("rows.arrow")
    with pa.ipc.new_file(output.sink, table.schema) as writer:
        writer.write_table(table)
    output.close()
    with store.open_input("rows.arrow") as source:
        read = pa.ipc.open_file(source).read_all()
    assert read == table
    with pytest.raises(FileNotFoundError):
        store.open_input("else.parquet")


def test_executors_get_the_store_with_their_tasks(store: Store) -> None:
    store.write("x", b"1")
    other = pickle.loads(pickle.dumps(store))  # noqa: S301 our own
    assert other == store
    assert other.read("x") == b"1"


def test_deltalake_reads_and_writes_tables(store: Store) -> None:
    uri, options = store.table_uri("bronze/frames"), store.delta_options
    for number in range(3):
        write_deltalake(uri, pa.table({"x": [number]}), mode="append", storage_options=options)
    assert len(DeltaTable(uri, storage_options=options).file_uris()) == 3
    assert store.has_files("bronze/frames/_delta_log")
    assert store.size("bronze/frames/_delta_log/00000000000000000002.json")


def hold_forever(store: Store, held: Event) -> None:
    store.hold("lock", "somebody")
    held.set()
    time.sleep(WAIT_S)


def test_a_lock_has_one_holder_and_ends_with_its_process(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=hold_forever, args=[store, held])
    process.start()
    assert process.pid is not None
    assert held.wait(WAIT_S)
    with pytest.raises(InUseError, match=f"^it is in use in process {process.pid}"):
        store.hold("lock", "it is in use")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    own = store.hold("lock", "it is in use")
    own.check()
    own.release()
    own.release()
    store.hold("lock", "it is in use").release()


def test_a_lock_is_waited_for(store: Store) -> None:
    inside, order = threading.Event(), []

    def first() -> None:
        with store.lock("batch.lock"):
            inside.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with store.lock("batch.lock", shared=True):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_lease_that_is_renewed_lasts(s3_server: "S3Server") -> None:
    store = s3_server.new_lake(lease_s=0.6)
    held = store.hold("lock", "taken")
    time.sleep(1.2)
    held.check()
    with pytest.raises(InUseError, match="taken in process"):
        store.hold("lock", "taken")
    held.release()
    store.hold("lock", "taken").release()


def test_the_holder_of_a_lease_that_another_process_took_learns_of_it(s3_server: "S3Server") -> None:
    store = s3_server.new_lake(lease_s=0.6)
    held = store.hold("lock", "taken")
    other = LeaseHolder("another", "7 on elsewhere")
    _until(lambda: store.put_lease("lock", other, _version(store)) is not None)  # unless it is renewed in between
    _until(lambda: _is_lost(held))
    held.release()
    found = store.get_lease("lock")
    assert found is not None
    assert found[0] == other, "a lock that is lost is not released"


def test_a_store_that_cannot_be_reached_says_so() -> None:
    options = {"aws_endpoint": "http://127.0.0.1:1", "aws_allow_http": "true", "aws_region": "x"}
    store = open_store("s3://bucket/prefix", {**options, "aws_access_key_id": "a", "aws_secret_access_key": "hidden"})
    assert "hidden" not in repr(store) + str(store)
    with pytest.raises(StorageError, match=r"s3://bucket/prefix/x cannot be read or written: .*check lake\.url"):
        store.read("x")


def test_where_a_store_is() -> None:
    assert open_store("file:///srv/the%20lake") == LocalStore(Path("/srv/the lake"))
    assert open_store("file:///srv/lake").url == "file:///srv/lake"
    assert open_store("here") == LocalStore(Path("here").absolute())
    assert open_store(Path("here")) == LocalStore(Path("here").absolute())
    assert str(open_store("s3://bucket/prefix/")) == "s3://bucket/prefix"
    with pytest.raises(InputError, match="three slashes"):
        open_store("file://srv/lake")


def _until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _version(store: ObjectStore) -> str:
    found = store.get_lease("lock")
    assert found is not None
    return found[1]


def _is_lost(lock: Lock) -> bool:
    try:
        lock.check()
    except InUseError:
        return True
    return False
