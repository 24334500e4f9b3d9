"""Replies: FLAG 3, what is copied from the request, and the answer's own lines."""

from msgspec import Struct

from wirelake.errors import EncodeError, TranslationError
from wirelake.message import Message as Common
from wirelake.protocols.esnp import lines as making
from wirelake.protocols.esnp.contents import Contents
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.opcodes import Flag, LineType
from wirelake.protocols.esnp.writing import assemble, body_lines, error_lines, kept_lines


class ReplyTo(Struct, frozen=True):
    """What a reply needs of its request. The request itself, which may be long, is not kept."""

    flags: tuple[Line, ...]
    head: tuple[Line, ...]  # where to, and which number it answers
    body: tuple[Line, ...]
    numbered: bool  # the asker told a MESSAGE_ID, so its answers may come in any order


def reply_to(contents: Contents) -> ReplyTo:
    """Of a request that cannot be read only the number and the flags go back: what is copied should be readable."""
    flags = [making.flag_line(flag) for flag in contents.flags if flag in (Flag.REQUEST, Flag.INFO)]
    head: list[Line] = []
    body: list[Line] = []
    if contents.malformed is None:
        for line in contents.frame.lines:
            if line.type == LineType.SOURCE_ADDRESS:
                head.append(Line(LineType.ADDRESS.value, line.data))
            elif line.type == LineType.SESSION_INFO:
                body.append(line)
    number = contents.message_id
    if number is not None:
        head.append(making.source_message_id_line(number))
    return ReplyTo(tuple(flags), tuple(head), tuple(body), number is not None)


def reply(to: ReplyTo, answer: Common, seq_no: SeqNo | None = None, *, plain_counts: bool = False) -> EsnpMessage:
    """Raises TranslationError for an answer that esnp cannot carry."""
    if answer.parts:
        raise TranslationError("an esnp message holds no list of notifications")
    try:
        head = [making.flag_line(Flag.RESP), *to.flags, *to.head]
        if seq_no is not None:
            head.append(making.seq_no_line(seq_no.current, seq_no.last))
        head += error_lines(answer.failure)
        body = [*to.body, *_own_lines(body_lines(answer, answer.fields.items(), plain_counts=plain_counts))]
        return assemble(head, body, kept_lines(answer))
    except EncodeError as error:
        raise TranslationError(str(error)) from error


def _own_lines(body: list[Line]) -> list[Line]:
    """Without SESSION_INFO: that of the request goes back, whatever the answer brought along."""
    return [line for line in body if line.type != LineType.SESSION_INFO]


def trace_info(to: ReplyTo, hop: Common) -> EsnpMessage:
    """What happened to a request on its way: DATA hop, at_ms, node."""
    try:
        head = [making.flag_line(Flag.TRACE_INFO), *to.head]
        return assemble(head, body_lines(hop, hop.fields.items()), ())
    except EncodeError as error:
        raise TranslationError(str(error)) from error
