"""What both ends of a magline connection do alike: count, seal, open, and end."""

from enum import Enum
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from wirelake.errors import LimitError, ProtocolError, SealError, TranslationError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.limits import MAGLINE_SEQ_MAX
from wirelake.protocols.magline.opcodes import REASON_NAMES, REASONS, Cmd, ErrorNumber, Reason
from wirelake.protocols.magline.session import SessionSettings
from wirelake.protocols.session import Closing, Session, Step

_Sealed = TypeVar("_Sealed", bound=frames.SealedFrame)
_SYN_BIG, _SYN_LITTLE = (frames.prefix(Cmd.SYN, little) for little in (False, True))


class SealedSession(Session):
    """`sid` names the session; with a proof made of `resume_secret` it is resumed on another connection."""

    sender: ClassVar[Sender]
    closed: ClassVar[Enum]
    __slots__ = ("_heard_seq", "_keys", "_little", "_seq", "settings", "sid")

    def __init__(self, now_s: float, settings: SessionSettings, little: bool) -> None:
        super().__init__(now_s, settings.idle_s)
        self.settings = settings
        self.sid = b""
        self._keys: crypto.Keys | None = None
        self._little = little
        self._seq = 0  # of our own last frame
        self._heard_seq = 0  # of the peer's last frame that had to grow

    def logged_frame(self, raw_frame: bytes, sender: Sender) -> bytes:
        """A frame of this connection as the log keeps it: opened, if its seal holds under the keys in use; the sid of
        a SYN is zero.

        To be asked after the step that the frame came in or went out with.
        """
        frame = frames.decode(raw_frame, sender)
        if isinstance(frame, frames.Syn) and frame.sid:
            return raw_frame[: -frames.SID_BYTES] + bytes(frames.SID_BYTES)
        if self._keys is None or not isinstance(frame, frames.SealedFrame):
            return raw_frame
        try:
            return crypto.opened(raw_frame, crypto.open_data(frame, self._keys.of(sender)))
        except SealError:
            return raw_frame

    def redact_unreadable(self, raw: bytes) -> bytes:
        """Blank the sid of a SYN that broke off, or is otherwise bad."""
        little = raw[:4] == _SYN_LITTLE
        if not little and raw[:4] != _SYN_BIG:
            return raw
        header_size = int.from_bytes(raw[6:8], "little" if little else "big")
        at = frames.HEAD_BYTES + header_size + frames.RANDOM_BYTES + frames.KEY_BYTES
        sid = raw[at : at + frames.SID_BYTES]
        return raw[:at] + bytes(len(sid)) + raw[at + len(sid) :]

    @property
    def resume_secret(self) -> bytes:
        """What proves, when the session is to be resumed, that one had its keys."""
        return b"" if self._keys is None else self._keys.resume

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    @property
    def _worn_out(self) -> bool:
        """Whether the next seq would come too near to its end."""
        return self._seq + 1 >= MAGLINE_SEQ_MAX

    def _sealed(self, frame: _Sealed, seq: int) -> _Sealed:
        """A frame with its data in clear, made ready for the wire."""
        keys = self._require_keys().of(self.sender)
        return crypto.seal(replace(frame, seq=seq, little=self._little), keys)

    def _opened(self, frame: _Sealed) -> _Sealed:
        """A frame of the peer's with its data in clear. Raises SealError."""
        keys = self._require_keys().of(self.sender.other)
        return replace(frame, hmac=frames.OPENED, data=crypto.open_data(frame, keys))

    def _require_keys(self) -> crypto.Keys:
        if self._keys is None:
            raise AssertionError("a state without keys has no row for sealed frames")
        return self._keys

    def _check_size(self, frame: frames.SealedFrame) -> None:
        size = frames.SEALED_HEAD_BYTES + len(frame.data)
        if size > self.settings.message_bytes_max:
            text = f"a {frame.name} of {size} bytes is over the limit of {self.settings.message_bytes_max}"
            raise TranslationError(text)

    def _error_to(self, frame: frames.MaglineFrame, number: ErrorNumber) -> frames.Err:
        """The ERR that answers this frame."""
        business = frame.business_cmd if isinstance(frame, frames.SealedFrame) else 0
        return frames.Err(business, number.value, seq=frame.seq, little=self._little)

    def _end(self, reason: Reason, closing: Closing, step: Step) -> None:
        self.state = self.closed
        step.frames.append(frames.Fin(reason.value, seq=self._next_seq(), little=self._little))
        step.closing = closing

    def _refuse(self, frame: frames.MaglineFrame, number: ErrorNumber, closing: Closing, step: Step) -> None:
        """ERR for this frame, then FIN, then close."""
        step.frames.append(self._error_to(frame, number))
        self._end(Reason.ERROR, closing, step)

    def _refuse_error(self, frame: frames.MaglineFrame, error: ProtocolError, step: Step) -> None:
        self._refuse(frame, number_of(error), Closing(error.code, str(error)), step)

    def _replayed(self, frame: frames.MaglineFrame, step: Step) -> None:
        text = f"{frame.name} of seq {frame.seq} after {self._heard_seq}"
        self._refuse(frame, ErrorNumber.REPLAY, Closing("replay", text), step)

    def _unexpected(self, frame: frames.MaglineFrame, _now_s: float, step: Step) -> None:
        closing = Closing("unexpected_frame", f"{frame.name} has no place here")
        self._refuse(frame, ErrorNumber.MALFORMED, closing, step)

    def _ended(self, frame: frames.Fin, _now_s: float, step: Step) -> None:
        self.state = self.closed
        name = REASON_NAMES.get(frame.reason, "unknown")
        step.closing = Closing(f"fin_{name}", f"the peer said FIN {frame.reason}")

    def _told(self, _frame: Frame, _now_s: float, _step: Step) -> None:
        """The log has it, and the FIN behind it will close."""

    def _fail(self, error: ProtocolError, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Err(0, number_of(error).value, little=self._little))
        self._end(Reason.ERROR, Closing(error.code, str(error)), step)

    def _goodbye(self, closing: Closing, _now_s: float, step: Step) -> None:
        self._end(REASONS.get(closing.code, Reason.NORMAL), closing, step)

    def _silent(self, _event: str, _now_s: float, step: Step) -> None:
        self._end(Reason.IDLE, Closing("idle", f"nothing heard for {self.settings.idle_s:g} s"), step)


def number_of(error: ProtocolError) -> ErrorNumber:
    """The ERR number that tells the peer of this."""
    if isinstance(error, SealError):
        return ErrorNumber.BAD_HMAC
    if isinstance(error, LimitError):
        return ErrorNumber.TOO_LARGE
    return ErrorNumber.VERSION if error.code == "version" else ErrorNumber.MALFORMED
