"""Known answers, an independent second reckoning, and every bit flipped."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocols.magline.strategies import u32
from wirelake.errors import ProtocolError, SealError
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames

CLIENT_RANDOM = bytes(range(32))
SERVER_RANDOM = bytes(range(32, 64))
SHARED = bytes(range(64, 96))
KEYS = crypto.derive(SHARED, CLIENT_RANDOM, SERVER_RANDOM)
SID = bytes(range(100, 116))


def key(hex_: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(hex_))


@pytest.mark.parametrize(
    ("private", "public"),
    [
        (
            "b8023ae2fde9f544066bcf9704cd01cd03f717b8987fb41ad2818b37e8edd94f",
            "79cbbe10ba8739ad195c42721afb57732f3d80bf7c0f0f79c1b3676ceda45c00",
        ),
        (  # RFC 7748, 6.1: Alice
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        ),
    ],
)
def test_known_public_keys(private: str, public: str) -> None:
    assert crypto.public_bytes(key(private)).hex() == public


def test_known_shared_secret() -> None:
    """RFC 7748, 6.1: both sides."""
    alice = key("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = key("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    known = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert crypto.shared_secret(alice, crypto.public_bytes(bob)).hex() == known
    assert crypto.shared_secret(bob, crypto.public_bytes(alice)).hex() == known


@pytest.mark.parametrize(
    "public",
    [
        bytes(32),
        (1).to_bytes(32, "little"),
        (2**255 - 20).to_bytes(32, "little"),
        (2**255 - 19).to_bytes(32, "little"),
        (2**255 - 18).to_bytes(32, "little"),
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    ],
)
def test_keys_of_low_order_are_refused(public: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        crypto.shared_secret(key("77" * 32), public)
    assert caught.value.code == "bad_key"


def test_keys_are_derived_as_written() -> None:
    base = hashlib.sha256(CLIENT_RANDOM + SERVER_RANDOM + SHARED).digest()

    def part(text: str) -> bytes:
        return hmac.new(base, text.encode(), hashlib.sha256).digest()

    assert crypto.DirectionKeys(part("enc c2s"), part("mac c2s")) == KEYS.of(Sender.CLIENT)
    assert crypto.DirectionKeys(part("enc s2c"), part("mac s2c")) == KEYS.of(Sender.SERVER)
    assert "enc" not in repr(KEYS)


def block(enc: bytes, counter: bytes) -> bytes:
    """One block of AES-256, which the cipher stream is made of."""
    return Cipher(algorithms.AES(enc), modes.ECB()).encryptor().update(counter)  # noqa: S305 (a bare block is meant)


def test_the_second_reckoning_is_aes_256() -> None:
    """FIPS 197, C.3."""
    known = block(bytes(range(32)), bytes.fromhex("00112233445566778899aabbccddeeff"))
    assert known.hex() == "8ea2b7ca516745bfeafc49904b496089"


@pytest.mark.parametrize("little", [False, True])
def test_data_is_sealed_as_written(little: bool) -> None:
    plain = bytes(range(40))
    frame = frames.Psh(5, frames.OPENED, plain, seq=0x01020304, header=b"abc", little=little)
    keys = KEYS.s2c
    sealed = crypto.seal(frame, keys)
    counter = "01020304 00000008 0000000000000000"
    counters = [bytes.fromhex(counter[:-1] + str(step)) for step in range(3)]
    stream = b"".join(block(keys.enc, each) for each in counters)
    assert sealed.data == bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    wire = sealed.encode()
    head = "7e010800 0000 0300 04030201 3c000000" if little else "7e010008 0000 0003 01020304 0000003c"
    business = "05000000" if little else "00000005"
    before = bytes.fromhex(head) + b"abc" + bytes.fromhex(business)
    assert wire[: len(before)] == before
    assert sealed.hmac == hmac.new(keys.mac, before + sealed.data, hashlib.sha256).digest()[:16]
    assert crypto.open_data(sealed, keys) == plain


def test_a_resume_proof_as_written() -> None:
    """Computed by hand from the rule, for implementations to compare with."""
    base = hashlib.sha256(CLIENT_RANDOM + SERVER_RANDOM + SHARED).digest()
    secret = hmac.new(base, b"resume", hashlib.sha256).digest()
    assert KEYS.resume == secret
    syn = frames.Syn(bytes(range(1, 33)), bytes(range(2, 34)), SID, seq=1)
    covered = b"resume" + syn.client_random + syn.client_public + SID
    proof = hmac.new(secret, covered, hashlib.sha256).digest()
    assert crypto.resume_proof(secret, syn) == proof
    assert proof.hex() == "83822f223aae39ad8132c72efa535f73a3ec344144e76994718090b3f7ce4ee7"
    assert crypto.proves(secret, replace(syn, head_optional=1, header=proof))
    for other in (
        replace(syn, head_optional=1, header=proof, sid=bytes(16)),
        replace(syn, head_optional=1, header=proof, client_random=bytes(32)),
        replace(syn, head_optional=1, header=proof, client_public=bytes(32)),
        replace(syn, head_optional=1, header=proof[:16]),
        replace(syn, header=proof),
    ):
        assert not crypto.proves(secret, other)
    assert secret.hex() not in repr(KEYS)


@given(st.sampled_from([frames.Req, frames.Rep, frames.Psh]), u32, u32, st.binary(max_size=100), st.booleans())
def test_what_is_sealed_opens(
    kind: type[frames.SealedFrame], seq: int, business: int, plain: bytes, little: bool
) -> None:
    frame = kind(business, frames.OPENED, plain, seq=seq, little=little)
    sealed = crypto.seal(frame, KEYS.c2s)
    assert crypto.open_data(sealed, KEYS.c2s) == plain
    with pytest.raises(SealError):
        crypto.open_data(sealed, KEYS.s2c)
    wire = sealed.encode()
    assert crypto.opened(wire, plain) == frame.encode()


def test_every_flipped_bit_of_a_sealed_frame_is_refused() -> None:
    frame = frames.Req(17, frames.OPENED, b"hello", seq=9, header=b"h")
    wire = crypto.seal(frame, KEYS.c2s).encode()
    opened_by_chance = []
    for bit in range(len(wire) * 8):
        changed = bytearray(wire)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            read = frames.decode(bytes(changed), Sender.CLIENT)
            if isinstance(read, frames.SealedFrame):
                crypto.open_data(read, KEYS.c2s)
                opened_by_chance.append(bit)
        except ProtocolError:
            continue
    assert opened_by_chance == []


def test_a_seal_of_zero_opens_nothing() -> None:
    with pytest.raises(SealError) as caught:
        crypto.open_data(frames.Req(17, frames.OPENED, b"hello", seq=9, header=b"h"), KEYS.c2s)
    assert (caught.value.code, caught.value.offset) == ("bad_hmac", 21)


def test_only_the_data_of_a_frame_takes_its_place() -> None:
    wire = crypto.seal(frames.Req(17, frames.OPENED, b"hello", seq=9), KEYS.c2s).encode()
    with pytest.raises(ValueError, match="not the data"):
        crypto.opened(wire, b"hell")
    with pytest.raises(ValueError, match="not the data"):
        crypto.opened(frames.Pin(1).encode(), b"")


def test_a_sid_travels_sealed() -> None:
    sealed = crypto.seal_sid(SID, SHARED, CLIENT_RANDOM, SERVER_RANDOM)
    assert len(sealed) == frames.SEALED_SID_BYTES
    assert crypto.open_sid(sealed, SHARED, CLIENT_RANDOM, SERVER_RANDOM) == SID
    # The whole of both randoms is bound to it, though only 12 bytes make the nonce.
    for client_random, server_random, shared in (
        (bytes(32), SERVER_RANDOM, SHARED),
        (CLIENT_RANDOM, SERVER_RANDOM[:31] + b"\0", SHARED),
        (CLIENT_RANDOM, SERVER_RANDOM, bytes(32)),
    ):
        with pytest.raises(SealError):
            crypto.open_sid(sealed, shared, client_random, server_random)


def test_every_flipped_bit_of_a_sealed_sid_is_refused() -> None:
    sealed = crypto.seal_sid(SID, SHARED, CLIENT_RANDOM, SERVER_RANDOM)
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            crypto.open_sid(bytes(changed), SHARED, CLIENT_RANDOM, SERVER_RANDOM)
