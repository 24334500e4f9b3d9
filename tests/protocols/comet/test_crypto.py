"""Known answers (NIST's AES-GCM test cases), round trips, and every bit flipped."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from wirelake.errors import ProtocolError, SealError
from wirelake.protocols.comet import crypto

SECRET = bytes(range(32))
NONCE = bytes(range(12))


@pytest.fixture(scope="module")
def private() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(crypto.RSA_EXPONENT, crypto.RSA_BITS)


def test_known_answer_aes128_gcm() -> None:
    """The GCM specification's test case 2: a zero key, nonce and block, with no associated data."""
    sealed = crypto.seal_content(bytes(16), "", bytes(16), bytes(12))
    assert sealed.hex() == bytes(12).hex() + "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"


def test_known_answer_aes256_gcm() -> None:
    """The GCM specification's test case 14."""
    sealed = crypto.seal_content(bytes(16), "", bytes(32), bytes(12))
    assert sealed.hex() == bytes(12).hex() + "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"


def test_content_opens_with_its_own_id_and_secret_only() -> None:
    sealed = crypto.seal_content(b"hello", "m1", SECRET, NONCE)
    assert crypto.open_content(sealed, "m1", SECRET) == b"hello"
    with pytest.raises(SealError):
        crypto.open_content(sealed, "m2", SECRET)
    with pytest.raises(SealError):
        crypto.open_content(sealed, "m1", bytes(32))


def test_every_flipped_bit_of_sealed_content_is_refused() -> None:
    sealed = crypto.seal_content(b"hello", "m1", SECRET, NONCE)
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            crypto.open_content(bytes(changed), "m1", SECRET)


def test_every_truncation_of_sealed_content_is_refused() -> None:
    sealed = crypto.seal_content(b"hello", "m1", SECRET, NONCE)
    for size in range(len(sealed)):
        with pytest.raises(SealError):
            crypto.open_content(sealed[:size], "m1", SECRET)


@pytest.mark.parametrize("size", crypto.SECRET_BYTES)
def test_a_secret_travels(private: rsa.RSAPrivateKey, size: int) -> None:
    wrapped = crypto.wrap_secret(SECRET[:size], crypto.encrypt_key(private))
    assert len(wrapped) == crypto.RSA_BITS // 8
    assert crypto.unwrap_secret(wrapped, private) == SECRET[:size]


def test_a_changed_secret_is_refused(private: rsa.RSAPrivateKey) -> None:
    wrapped = bytearray(crypto.wrap_secret(SECRET, crypto.encrypt_key(private)))
    for byte in range(0, len(wrapped), 16):
        changed = bytes(wrapped[:byte]) + bytes([wrapped[byte] ^ 1]) + bytes(wrapped[byte + 1 :])
        with pytest.raises(SealError):
            crypto.unwrap_secret(changed, private)
    with pytest.raises(SealError):
        crypto.unwrap_secret(b"short", private)


def test_a_secret_of_another_size_is_refused(private: rsa.RSAPrivateKey) -> None:
    wrapped = crypto.wrap_secret(b"x" * 24, crypto.encrypt_key(private))
    with pytest.raises(ProtocolError, match="16 or 32"):
        crypto.unwrap_secret(wrapped, private)


def test_an_encrypt_key_that_is_none_is_refused() -> None:
    with pytest.raises(ProtocolError, match="SPKI"):
        crypto.wrap_secret(SECRET, b"not a key")
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    der = other.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ProtocolError, match="not an RSA key"):
        crypto.wrap_secret(SECRET, der)
