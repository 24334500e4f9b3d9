import pytest

from state.conftest import Reopen
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_SEALS_BYTES_MAX
from wirelake.state.devices import RegisteredDevice
from wirelake.state.store import StateStore

KEY = bytes(range(16))


def test_devices_are_kept(store: StateStore, reopen: Reopen) -> None:
    store.devices.add("b", 6, KEY, 10)
    store.devices.add("a", 0, None, 20)
    store = reopen()
    assert store.devices.list() == [RegisteredDevice("a", 0, None, 20), RegisteredDevice("b", 6, KEY, 10)]


def test_removed_means_unknown(store: StateStore, reopen: Reopen) -> None:
    store.devices.add("a", 0, None, 1)
    assert store.devices.remove("a") is not None
    assert store.devices.remove("a") is None
    assert reopen().devices.find("a") is None


@pytest.mark.parametrize(("serial", "type_number", "key"), [("", 0, None), ("a", 256, None), ("a", 0, b"short")])
def test_bad_devices_are_refused(store: StateStore, serial: str, type_number: int, key: bytes | None) -> None:
    with pytest.raises(InputError):
        store.devices.add(serial, type_number, key, 1)


def test_a_serial_is_taken_once_and_its_key_is_not_shown(store: StateStore) -> None:
    store.devices.add("a", 0, KEY, 1)
    with pytest.raises(ConflictError):
        store.devices.add("a", 1, KEY, 1)
    assert str(KEY) not in repr(store.devices.find("a"))


def test_what_is_known_of_sealed_commands_goes_with_the_device(store: StateStore, reopen: Reopen) -> None:
    assert store.devices.save_seals("a", 6, b"1") is None
    store.devices.add("a", 6, KEY, 1)
    store.devices.save_seals("a", 6, b"1")
    store.devices.save_seals("a", 6, b"2")
    store.devices.save_seals("a", 7, b"3")
    assert store.devices.seals("a") == {6: b"2", 7: b"3"}
    store = reopen()
    assert store.devices.seals("a") == {6: b"2", 7: b"3"}
    assert store.devices.seals("b") == {}
    with pytest.raises(FullError):
        store.devices.save_seals("a", 6, bytes(STATE_SEALS_BYTES_MAX + 1))
    store.devices.remove("a")
    store.devices.add("a", 6, KEY, 2)
    assert store.devices.seals("a") == {}
    assert reopen().devices.seals("a") == {}
