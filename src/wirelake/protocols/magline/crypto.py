"""Keys and seals of magline: X25519 key agreement, AES-256-CTR encryption, truncated HMAC-SHA256 authentication.

    K  = X25519 shared secret                            NK = SHA256(client_random | server_random | K)
    enc = HMAC-SHA256(NK, "enc " + direction)            mac = HMAC-SHA256(NK, "mac " + direction)
    RS = HMAC-SHA256(NK, "resume")                       proof = HMAC-SHA256(RS, "resume" | random | public | sid)

The input of a cipher is big-endian in either byte order; the hmac covers the bytes of the wire.
"""

import hashlib
import hmac
from struct import Struct as Layout
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError, SealError
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.frames import HEAD_BYTES, HMAC_BYTES, OPENED, SealedFrame, Syn, decode

NONCE_BYTES = 12
_RESUME = b"resume"
_COUNTER = Layout(">II8x")  # seq | cmd | zero, so that no two frames of one direction share a counter
_Sealed = TypeVar("_Sealed", bound=SealedFrame)


class DirectionKeys(Struct, frozen=True):
    enc: bytes
    mac: bytes

    def __repr__(self) -> str:
        return "DirectionKeys(…)"


class Keys(Struct, frozen=True):
    """The keys that a SYN and its ACK agree on."""

    c2s: DirectionKeys
    s2c: DirectionKeys
    resume: bytes = b""  # RS: proves knowledge of the session's keys without revealing them

    def __repr__(self) -> str:
        return "Keys(…)"

    def of(self, sender: Sender) -> DirectionKeys:
        return self.c2s if sender is Sender.CLIENT else self.s2c


def public_bytes(private: X25519PrivateKey) -> bytes:
    """Return the raw public key, as SYN and ACK contain it."""
    return private.public_key().public_bytes_raw()


def shared_secret(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return K. Refuse a public key of low order, which would give everybody the same secret."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ProtocolError("bad_key", "the public key is not one that can be used", 0) from error


def derive(shared: bytes, client_random: bytes, server_random: bytes) -> Keys:
    base = hashlib.sha256(client_random + server_random + shared).digest()

    def direction(name: bytes) -> DirectionKeys:
        return DirectionKeys(hmac.digest(base, b"enc " + name, "sha256"), hmac.digest(base, b"mac " + name, "sha256"))

    return Keys(direction(b"c2s"), direction(b"s2c"), hmac.digest(base, _RESUME, "sha256"))


def resume_proof(secret: bytes, syn: Syn) -> bytes:
    """Return the proof of knowing the old session's keys. It is valid for this SYN and its new key only."""
    return hmac.digest(secret, _RESUME + syn.client_random + syn.client_public + syn.sid, "sha256")


def proves(secret: bytes, syn: Syn) -> bool:
    """Return whether the proof of a SYN is valid. Compare in constant time."""
    return hmac.compare_digest(resume_proof(secret, syn), syn.proof or b"")


def seal_sid(sid: bytes, shared: bytes, client_random: bytes, server_random: bytes) -> bytes:
    return AESGCM(shared).encrypt(server_random[:NONCE_BYTES], sid, client_random + server_random)


def open_sid(sealed_sid: bytes, shared: bytes, client_random: bytes, server_random: bytes) -> bytes:
    try:
        return AESGCM(shared).decrypt(server_random[:NONCE_BYTES], sealed_sid, client_random + server_random)
    except InvalidTag as error:
        raise SealError("bad_seal", "the sid was changed on the way, or sealed with another key", 0) from error


def seal(frame: _Sealed, keys: DirectionKeys) -> _Sealed:
    """Seal a frame whose data is in clear text. Never seal one (cmd, seq) twice under the same key."""
    hidden = replace(frame, data=_cipher(frame, keys))
    return replace(hidden, hmac=_hmac(hidden, keys))


def open_data(frame: SealedFrame, keys: DirectionKeys) -> bytes:
    """Check the hmac, then decrypt the data. Raise SealError."""
    if not hmac.compare_digest(_hmac(frame, keys), frame.hmac):
        at = HEAD_BYTES + len(frame.header) + 4
        raise SealError("bad_hmac", f"{frame.name} was changed on the way, or sealed with another key", at)
    return _cipher(frame, keys)


def opened(raw_frame: bytes, plain: bytes) -> bytes:
    """Return a sealed frame as it is logged: head as received, hmac zero, data decrypted."""
    frame = decode(raw_frame, Sender.CLIENT)  # the layout is the same for both senders
    if not isinstance(frame, SealedFrame) or len(plain) != len(frame.data):
        raise ValueError("not the data of this frame")
    return raw_frame[: len(raw_frame) - len(plain) - HMAC_BYTES] + OPENED + plain


def _cipher(frame: SealedFrame, keys: DirectionKeys) -> bytes:
    """Encrypt or decrypt: CTR does both the same way."""
    return Cipher(AES(keys.enc), CTR(_COUNTER.pack(frame.seq, frame.opcode))).encryptor().update(frame.data)


def _hmac(frame: SealedFrame, keys: DirectionKeys) -> bytes:
    return hmac.digest(keys.mac, frame.before_hmac() + frame.data, "sha256")[:HMAC_BYTES]
