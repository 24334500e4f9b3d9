"""Encryption of comet content: RSA-OAEP transports the client's secret, AES-GCM seals each content with it."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wirelake.errors import ProtocolError, SealError

RSA_BITS = 2048
RSA_EXPONENT = 65537
NONCE_BYTES = 12
TAG_BYTES = 16
SECRET_BYTES = (16, 32)

_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


def encrypt_key(private: rsa.RSAPrivateKey) -> bytes:
    """Return the public key as auth_success contains it: SPKI DER."""
    return private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def wrap_secret(secret: bytes, encrypt_key: bytes) -> bytes:
    """Encrypt a secret for exchange_key. OAEP takes its padding from the system's source of randomness."""
    try:
        public = serialization.load_der_public_key(encrypt_key)
    except ValueError as error:
        raise ProtocolError("bad_key", "encrypt_key is not a public key in SPKI DER", 0) from error
    if not isinstance(public, rsa.RSAPublicKey):
        raise ProtocolError("bad_key", "encrypt_key is not an RSA key", 0)
    return public.encrypt(secret, _OAEP)


def unwrap_secret(secret_key: bytes, private: rsa.RSAPrivateKey) -> bytes:
    """Decrypt the secret of an exchange_key. Raise ProtocolError if it is not one."""
    try:
        secret = private.decrypt(secret_key, _OAEP)
    except ValueError as error:
        raise SealError("bad_seal", "secret_key was not made with our encrypt_key", 0) from error
    if len(secret) not in SECRET_BYTES:
        raise ProtocolError("bad_key", f"a secret has 16 or 32 bytes, this has {len(secret)}", 0)
    return secret


def seal_content(content: bytes, msg_id: str, secret: bytes, nonce: bytes) -> bytes:
    """Return nonce | ciphertext | tag. A nonce must not be used twice with one secret."""
    return nonce + AESGCM(secret).encrypt(nonce, content, msg_id.encode())


def open_content(sealed: bytes, msg_id: str, secret: bytes) -> bytes:
    """Decrypt a content. Raise SealError if it was tampered with, or sealed for another message or key."""
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise SealError("bad_seal", f"sealed content of {len(sealed)} bytes is too short", len(sealed))
    try:
        return AESGCM(secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], msg_id.encode())
    except InvalidTag as error:
        raise SealError("bad_seal", "content was changed on the way, or sealed with another key", 0) from error
