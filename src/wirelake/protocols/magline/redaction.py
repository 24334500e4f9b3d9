"""Blank the token of a LOGIN and the sid of a SYN.

Data is logged decrypted, so the token of a LOGIN would be in clear text. A LOGIN that cannot be decrypted is blanked
too: a client with a bug may have sent it in clear text.
"""

from typing import Final, Literal

from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.constants import Business, Cmd
from wirelake.protocols.redaction import blank_from, redact_json

_ByteOrder = Literal["little", "big"]
_PREFIXES: Final[dict[bytes, tuple[Cmd, _ByteOrder]]] = {
    frames.prefix(cmd, little): (cmd, "little" if little else "big") for cmd in Cmd for little in (False, True)
}
_SID_AT: Final = frames.RANDOM_BYTES + frames.KEY_BYTES


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a frame, whole or not, without its secrets. A server sends none that is not sealed."""
    found = _PREFIXES.get(frame[:4])
    if sender is Sender.SERVER:
        return frame
    if found is None:  # no frame begins like this
        return blank_from(frame)
    cmd, order = found
    body = frames.HEAD_BYTES + int.from_bytes(frame[6:8], order)
    if cmd is Cmd.SYN:
        start = body + _SID_AT
        sid = frame[start : start + frames.SID_BYTES]
        return frame[:start] + bytes(len(sid)) + frame[start + len(sid) :] if sid else frame
    if cmd is not Cmd.REQ or int.from_bytes(frame[body : body + 4], order) != Business.LOGIN:
        return frame
    start = body + frames.SEALED_HEAD_BYTES
    return frame[:start] + redact_json(frame[start:]) if len(frame) > start else frame
