"""Known answers (NIST's AES-GCM test cases), round trips, and every bit flipped."""

import pytest

from wirelake.errors import EncodeError, SealError
from wirelake.protocols.apostol import crypto

KEY = bytes(range(16))
NONCE = bytes(range(12))
WHOSE = crypto.associated_data(6, "1234", 7)


def test_known_answer_without_associated_data() -> None:
    """The GCM specification's test case 2: a zero key, nonce and block."""
    sealed = crypto.seal(bytes(16), bytes(16), bytes(12), b"")
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
    sealed = crypto.seal(plain, key, nonce, associated)
    assert sealed[12:-16].hex() == (
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
        "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
    )
    assert sealed[-16:].hex() == "5bc94fbc3221a5db94fae95ae7121a47"
    assert crypto.unseal(sealed, key, associated) == plain


def test_the_associated_data_is_device_type_size_serial_command_no() -> None:
    assert WHOSE.hex() == "06" + "04" + "31323334" + "07"
    assert crypto.associated_data(255, "é", 0).hex() == "ff02c3a900"


def test_a_command_opens_for_its_own_device_number_and_key_only() -> None:
    sealed = crypto.seal(b"hello", KEY, NONCE, WHOSE)
    assert crypto.unseal(sealed, KEY, WHOSE) == b"hello"
    for other in ((5, "1234", 7), (6, "1235", 7), (6, "1234", 8)):
        with pytest.raises(SealError):
            crypto.unseal(sealed, KEY, crypto.associated_data(*other))
    with pytest.raises(SealError):
        crypto.unseal(sealed, bytes(16), WHOSE)


def test_every_flipped_bit_of_a_sealed_command_is_refused() -> None:
    sealed = crypto.seal(b"hello", KEY, NONCE, WHOSE)
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            crypto.unseal(bytes(changed), KEY, WHOSE)


def test_every_truncation_of_a_sealed_command_is_refused() -> None:
    sealed = crypto.seal(b"hello", KEY, NONCE, WHOSE)
    for size in range(len(sealed)):
        with pytest.raises(SealError):
            crypto.unseal(sealed[:size], KEY, WHOSE)


def test_a_key_of_another_size_and_a_serial_too_long_are_errors_of_ours() -> None:
    for size in (0, 15, 24, 32):
        with pytest.raises(EncodeError, match="16 bytes"):
            crypto.seal(b"", bytes(size), NONCE, b"")
    with pytest.raises(EncodeError, match="256 bytes"):
        crypto.associated_data(0, "x" * 256, 0)
