"""Dissect magline frames into a tree with offsets. All errors about malformed frames come from here."""

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.constants import (
    BUSINESS_NAMES,
    CMDS,
    ERROR_NAMES,
    MAGIC_CONTROL,
    MAGIC_DATA,
    MAGICS,
    REASON_NAMES,
    RESUME_PROOF,
    USERS_FIRST,
    VERSION,
    Cmd,
)
from wirelake.protocols.tree import Dissector, Tree

_MAGIC_NAMES = {MAGIC_CONTROL: "control", MAGIC_DATA: "data"}
_KEY_BYTES = 32
_SID_BYTES = 16
_HMAC_BYTES = 16
_PROOF_BYTES = 32


def dissect(frame: bytes, _sender: Sender) -> Tree:
    """Return the fields of a frame, up to the first error."""
    dissector = Dissector(frame, "magline")
    try:
        _walk(dissector)
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def _walk(d: Dissector) -> None:
    with d.group("frame head"):
        cmd, proof, header_size = _head(d)
    d.root.name = f"magline {cmd.name}"
    if header_size:
        with d.group("message header"):
            _message_header(d, proof, header_size)
    with d.group("body"):
        _body(d, cmd)
    d.finish()


def _message_header(d: Dissector, proof: bool, size: int) -> None:
    if proof and size >= _PROOF_BYTES:
        d.raw("resume proof", _PROOF_BYTES, "HMAC-SHA256 with the resume secret of the old session")
        size -= _PROOF_BYTES
    if size:
        d.raw("unknown", size, "too short for a resume proof" if proof and size < _PROOF_BYTES else "ignored")


def _head(d: Dissector) -> tuple[Cmd, bool, int]:
    """Return the cmd, whether the message header begins with a resume proof, and the length of that header."""
    magic = d.u8("magic")
    if magic not in _MAGIC_NAMES:
        raise ProtocolError("bad_magic", f"magic {magic:#04x} is neither control (0x7f) nor data (0x7e)", 0)
    d.note(_MAGIC_NAMES[magic])
    version = d.u8("version")
    if version != VERSION:
        raise ProtocolError("version", f"version {version} is not {VERSION}", 1)
    cmd, note = _cmd(d)
    if magic != MAGICS[cmd]:
        raise ProtocolError("bad_magic", f"{cmd.name} is not a {_MAGIC_NAMES[magic]} frame", 0)
    d.note(note)
    optional = d.u16("head optional")
    proof = cmd is Cmd.SYN and bool(optional & RESUME_PROOF)
    d.note("bit 0: a resume proof in the message header" if proof else "no bit that is known here: ignored")
    header_size = d.u16("head length", "bytes of message header after this head")
    d.u32("seq")
    size = d.u32("message length", "bytes of body after the message header")
    if header_size + size != d.left:
        text = f"{header_size} bytes of header and {size} of body are announced, {d.left} are there"
        raise ProtocolError("length", text, 12)
    return cmd, proof, header_size


def _cmd(d: Dissector) -> tuple[Cmd, str]:
    """Read the cmd. It is 1 to 9, so the position of its zero byte shows the byte order."""
    d.need(2, "cmd")
    little = d.data[3] == 0
    if little:
        d.order = "<"
    number = d.u16("cmd")
    cmd = CMDS.get(number)
    if cmd is None:
        raise ProtocolError("unknown_cmd", f"cmd {number} is not 1 to 9", 2)
    return cmd, f"{cmd.name}, {'little' if little else 'big'}-endian"


def _body(d: Dissector, cmd: Cmd) -> None:
    match cmd:
        case Cmd.SYN:
            d.raw("client random", _KEY_BYTES)
            d.raw("client public", _KEY_BYTES, "X25519")
            if d.left:
                d.raw("sid", _SID_BYTES, "the session to resume")
        case Cmd.ACK:
            d.raw("server random", _KEY_BYTES)
            d.raw("server public", _KEY_BYTES, "X25519")
            d.raw("sealed sid", _SID_BYTES + _HMAC_BYTES, "AES-256-GCM: the session's name and a tag")
        case Cmd.ERR:
            _business(d)
            number = d.u32("error number")
            d.note(ERROR_NAMES.get(number, "a service's own number"))
        case Cmd.PIN | Cmd.PON:
            d.u32("ping number")
        case Cmd.FIN:
            reason = d.u32("reason")
            d.note(REASON_NAMES.get(reason, "not a known reason"))
        case Cmd.REQ | Cmd.REP | Cmd.PSH:
            _business(d)
            hmac = d.raw("hmac", _HMAC_BYTES)
            sealed = any(hmac)
            d.note("HMAC-SHA256, its first 16 bytes" if sealed else "zero: opened, as the log keeps it")
            d.raw("data", d.left, "AES-256-CTR" if sealed else "")


def _business(d: Dissector) -> None:
    number = d.u32("business cmd")
    d.note(f"service magline/{number}" if number >= USERS_FIRST else BUSINESS_NAMES.get(number, "none"))
