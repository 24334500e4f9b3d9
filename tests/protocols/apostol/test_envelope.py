import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import EncodeError, LimitError, ProtocolError, SealError
from wirelake.protocols.apostol.constants import ANSWER, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import (
    associated_data,
    build_packets,
    inflate,
    join,
    open_command,
    seal,
    unseal,
)
from wirelake.protocols.apostol.frames import decode
from wirelake.protocols.frame import Sender

KEY = bytes(range(16))
NONCE = bytes(range(12))
WHOSE = associated_data(6, "1234", 7)


@given(st.binary(max_size=2000), st.sampled_from([0, ZIPPED, SEALED, ZIPPED | SEALED]), st.integers(10, 400))
def test_a_command_goes_into_packets_and_back(command: bytes, bits: int, data_bytes: int) -> None:
    packets = build_packets(command, bits | TO_DEVICE, 6, "1234", 7, data_bytes, (KEY, NONCE))
    assert [packet.packet_no for packet in packets] == list(range(len(packets)))
    assert [packet.first for packet in packets] == [True] + [False] * (len(packets) - 1)
    assert [packet.last for packet in packets] == [False] * (len(packets) - 1) + [True]
    assert {packet.params & ~3 for packet in packets} == {bits | TO_DEVICE}
    assert max(len(packet.data) for packet in packets) <= data_bytes
    joined = join({packet.packet_no: packet.data for packet in reversed(packets)})
    assert open_command(joined, bits, 6, "1234", 7, KEY) == command


def test_a_recorded_command_zipped_and_sealed_opens() -> None:
    recorded = (
        "360131010ed182d0b5d0bbd0b5d184d0bed0bd0400000102030405060708090a0bebf0fcd8aa083090db43fb19a50cf049b126940b262a",
        "280132010ed182d0b5d0bbd0b5d184d0bed0bd040159fbb9b11d89f29b21118e73618f45bd73280eb7",
    )
    packets = [decode(bytes.fromhex(wire), Sender.CLIENT) for wire in recorded]
    joined = join({packet.packet_no: packet.data for packet in packets})
    clear = open_command(joined, packets[0].params, 1, "телефон", 4, KEY)
    assert clear == bytes.fromhex("a6530c5e0200") + b"hello hello hello hello"


def test_zlib_comes_before_the_seal() -> None:
    (packet,) = build_packets(bytes(500), ZIPPED | SEALED | ANSWER, 6, "1234", 7, 1024, (KEY, NONCE))
    assert len(packet.data) == 12 + len(zlib.compress(bytes(500))) + 16
    assert packet.data[:12] == NONCE


def test_every_flipped_bit_of_a_sealed_command_is_refused() -> None:
    (packet,) = build_packets(b"hello", SEALED, 6, "1234", 7, 1024, (KEY, NONCE))
    for bit in range(len(packet.data) * 8):
        changed = bytearray(packet.data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            open_command(bytes(changed), SEALED, 6, "1234", 7, KEY)


def test_without_a_key_a_sealed_command_stays_closed() -> None:
    with pytest.raises(SealError) as caught:
        open_command(bytes(40), SEALED, 6, "1234", 7, None)
    assert caught.value.code == "no_key"


def test_a_command_may_inflate_up_to_the_limit_and_no_further() -> None:
    assert inflate(zlib.compress(bytes(1000)), 1000) == bytes(1000)
    with pytest.raises(LimitError) as caught:
        inflate(zlib.compress(bytes(1001)), 1000)
    assert caught.value.code == "inflated_bytes_max"
    bomb = zlib.compress(bytes(100_000_000))
    with pytest.raises(LimitError):
        open_command(bomb, ZIPPED, 6, "1234", 7, None)


@given(st.binary(max_size=60))
def test_any_bytes_inflate_or_are_refused_by_name(data: bytes) -> None:
    refused: ProtocolError | None = None
    try:
        assert len(inflate(data, 100)) <= 100
    except ProtocolError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(data)


def test_bad_zlib_data_is_refused() -> None:
    good = zlib.compress(b"hello")
    for data, code, offset in (
        (b"nonsense", "bad_zlib", 0),
        (b"", "bad_zlib", 0),
        (good[:-1], "bad_zlib", len(good) - 1),
        (good + b"xx", "trailing", len(good)),
        (good[:-1] + bytes([good[-1] ^ 1]), "bad_zlib", 0),
    ):
        with pytest.raises(ProtocolError) as caught:
            inflate(data, 100)
        assert (caught.value.code, caught.value.offset) == (code, offset)


def test_a_command_has_at_most_256_packets() -> None:
    assert len(build_packets(bytes(2560), 0, 6, "1234", 7, 10)) == 256
    with pytest.raises(EncodeError, match="256 packets"):
        build_packets(bytes(2561), 0, 6, "1234", 7, 10)


def test_an_empty_command_is_one_packet() -> None:
    (packet,) = build_packets(b"", 0, 6, "1234", 7, 10)
    assert packet.single


def test_sealing_takes_a_key() -> None:
    with pytest.raises(EncodeError, match="key"):
        build_packets(b"x", SEALED, 6, "1234", 7, 10)


# ── the seal: known answers (NIST's AES-GCM test cases), round trips, and every bit flipped


def test_known_answer_without_associated_data() -> None:
    """The GCM specification's test case 2: a zero key, nonce and block."""
    sealed = seal(bytes(16), bytes(16), bytes(12), b"")
    assert sealed.hex() == bytes(12).hex() + "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"


def test_known_answer_with_associated_data() -> None:
    """The GCM specification's test case 4."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308")
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = seal(plain, key, nonce, associated)
    assert sealed[12:-16].hex() == (
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
        "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
    )
    assert sealed[-16:].hex() == "5bc94fbc3221a5db94fae95ae7121a47"
    assert unseal(sealed, key, associated) == plain


def test_the_associated_data_is_device_type_size_serial_command_no() -> None:
    assert WHOSE.hex() == "06" + "04" + "31323334" + "07"
    assert associated_data(255, "é", 0).hex() == "ff02c3a900"


def test_a_command_opens_for_its_own_device_number_and_key_only() -> None:
    sealed = seal(b"hello", KEY, NONCE, WHOSE)
    assert unseal(sealed, KEY, WHOSE) == b"hello"
    for other in ((5, "1234", 7), (6, "1235", 7), (6, "1234", 8)):
        with pytest.raises(SealError):
            unseal(sealed, KEY, associated_data(*other))
    with pytest.raises(SealError):
        unseal(sealed, bytes(16), WHOSE)


def test_every_flipped_bit_of_sealed_bytes_is_refused() -> None:
    sealed = seal(b"hello", KEY, NONCE, WHOSE)
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            unseal(bytes(changed), KEY, WHOSE)


def test_every_truncation_of_sealed_bytes_is_refused() -> None:
    sealed = seal(b"hello", KEY, NONCE, WHOSE)
    for size in range(len(sealed)):
        with pytest.raises(SealError):
            unseal(sealed[:size], KEY, WHOSE)


def test_a_key_of_another_size_and_a_serial_too_long_are_errors_of_ours() -> None:
    for size in (0, 15, 24, 32):
        with pytest.raises(EncodeError, match="16 bytes"):
            seal(b"", bytes(size), NONCE, b"")
    with pytest.raises(EncodeError, match="256 bytes"):
        associated_data(0, "x" * 256, 0)
