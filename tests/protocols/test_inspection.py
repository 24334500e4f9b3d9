from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import inspect
from wirelake.protocols.protocol import Carrier


def test_offsets_count_from_the_first_byte_of_the_input() -> None:
    found = inspect(bytes.fromhex("000106 000c030200024061000440622f63"), registry.get("comet"), Sender.CLIENT)
    assert [tree.root.offset for tree in found.trees] == [0, 3]
    assert found.trees[1].root.find("topic 1").offset == 13
    assert found.failure is None


def test_the_first_fault_is_the_failure_and_frames_after_it_are_shown() -> None:
    found = inspect(bytes.fromhex("000109 000106 00"), registry.get("comet"), Sender.CLIENT)
    assert [tree.error is None for tree in found.trees] == [False, True]
    assert found.failure is not None
    assert (found.failure.code, found.failure.offset) == ("unknown_type", 2)
    assert found.rest == b"\x00"


def test_a_transports_own_prefix_is_shown_as_a_field() -> None:
    message = b'n1:{"ans":0}'
    found = inspect(bytes([len(message)]) + message, registry.get("sisnet"), Sender.SERVER, Carrier.TCP)
    (tree,) = found.trees
    assert (tree.root.offset, tree.root.size) == (0, len(message) + 1)
    assert next((leaf.offset, leaf.size) for leaf in tree.root.leaves()) == (0, 1)
    assert sum(leaf.size for leaf in tree.root.leaves()) == len(message) + 1


def test_a_part_that_cannot_be_read_is_a_failure_too() -> None:
    """esnp: the message stands, but its DATA line has a name that is not UTF-8."""
    good, bad = "00000000", "1500000302ff0500000000"
    found = inspect(bytes.fromhex(good + bad), registry.get("esnp"), Sender.CLIENT)
    assert [tree.error for tree in found.trees] == [None, None]
    assert found.failure is not None
    assert (found.failure.code, found.failure.offset) == ("bad_utf8", 4 + 5)
