"""Kernels that decode comet frames, from Arrow buffers to new ones.

All arguments are plain arrays: `data` holds all frames, frame `i` is from `offsets[i]` to `offsets[i + 1]`. A frame is
read once; its fields are written as JSON while it is read, and discarded if the frame turns out to be bad. The codec is
the definition: a test compares its results with those of the kernels.
"""

from typing import Any, Final

import numpy as np

from wirelake.jit import kernel
from wirelake.protocols.kernel_primitives import (
    Array,
    ascii_array,
    bad_utf8,
    put,
    put_number,
    put_span,
    put_text,
    room,
    wide,
)

# Numba compiles again when this file changes, not when `kernel_primitives.py` does: a test checks its digest here.
PRIMITIVES: Final = "ad5e8e0d826cc6ee"

FAULTS: Final = ("", "short", "length", "unknown_type", "bad_utf8", "trailing")
_SHORT, _LENGTH, _UNKNOWN_TYPE, _BAD_UTF8, _TRAILING = range(1, len(FAULTS))
FROM_SERVER: Final = 9  # types of the server are numbered after those of the client
_TYPES: Final = FROM_SERVER + 6
(
    _AUTH, _EXCHANGE_KEY, _GET_TOPIC_LIST, _SUBSCRIBE, _UNSUBSCRIBE, _GET_MESSAGE_LIST, _HEARTBEAT, _MESSAGE_ACK,
    _REPORT_ENVIRON, _OK, ERROR, _AUTH_SUCCESS, _TOPIC_LIST, _MESSAGE_LIST, _MESSAGE,
) = range(_TYPES)  # fmt: skip

_EMPTY, _LIST_END = ascii_array("{}"), ascii_array("]")
_TOPICS, _IDS, _EXTRA = ascii_array('{"topics":['), ascii_array('{"ids":['), ascii_array(',"extra":[')
_NETWORK, _ISP, _PHONE = ascii_array('{"network_type":'), ascii_array(',"isp":'), ascii_array(',"phone_type":')
_CODE, _PARTS, _ID = ascii_array('{"code":'), ascii_array('{"parts":['), ascii_array('"id":')
_TYPE, _TS = ascii_array('"type":'), ascii_array('"ts":')


@kernel
def _u16(data: Array, at: int) -> int:
    return wide(data[at]) << 8 | wide(data[at + 1])


@kernel
def _text_end(data: Array, at: int, end: int) -> tuple[int, int, int]:
    """Return where the string at `at` ends; or a fault and its offset."""
    if at + 2 > end or at + 2 + _u16(data, at) > end:
        return 0, _SHORT, end
    after = at + 2 + _u16(data, at)
    bad = bad_utf8(data, at + 2, after)
    if bad >= 0:
        return 0, _BAD_UTF8, bad
    return after, 0, 0


@kernel
def _texts(data: Array, at: int, end: int, out: Array, out_at: int) -> tuple[int, int, int, int]:
    """Write a list of strings, whose count is at `at`, without the brackets."""
    if at + 1 > end:
        return 0, out_at, _SHORT, end
    count = data[at]
    at += 1
    for index in range(count):
        after, fault, place = _text_end(data, at, end)
        if fault:
            return 0, out_at, fault, place
        if index:
            out[out_at] = 44
            out_at += 1
        out_at = put_text(out, out_at, data, at + 2, after)
        at = after
    return at, out_at, 0, 0


@kernel
def _comma(out: Array, at: int) -> int:
    """Write a comma, except before the first field."""
    if out[at - 1] == 123:
        return at
    out[at] = 44
    return at + 1


@kernel
def _message(data: Array, at: int, end: int, out: Array, out_at: int, whole: bool) -> Any:
    """Write a message_struct; return its end and its content's. Leave out what is empty or zero, unless `whole`."""
    if at + 1 > end:
        return 0, 0, 0, out_at, _SHORT, end
    kind = data[at]
    id_end, fault, place = _text_end(data, at + 1, end)
    if fault:
        return 0, 0, 0, out_at, fault, place
    content = id_end + 2
    if content > end or content + _u16(data, id_end) + 8 > end:
        return 0, 0, 0, out_at, _SHORT, end
    content_end = content + _u16(data, id_end)
    ts = wide(0)
    for index in range(8):
        ts = ts << 8 | wide(data[content_end + index])
    out[out_at] = 123
    out_at += 1
    if whole or id_end > at + 3:
        out_at = put_text(out, put(out, out_at, _ID), data, at + 3, id_end)
    if whole or kind:
        out_at = put_number(out, put(out, _comma(out, out_at), _TYPE), kind)
    if whole or ts:
        out_at = put_number(out, put(out, _comma(out, out_at), _TS), ts)
    out[out_at] = 125
    return content_end + 8, content, content_end, out_at + 1, 0, 0


@kernel
def _messages(data: Array, at: int, end: int, out: Array, out_at: int) -> Any:
    if at + 1 > end:
        return 0, out_at, _SHORT, end
    count = data[at]
    at += 1
    out_at = put(out, out_at, _PARTS if count else _EMPTY)
    for index in range(count):
        if index:
            out[out_at] = 44
            out_at += 1
        at, _, _, out_at, fault, place = _message(data, at, end, out, out_at, True)
        if fault:
            return 0, out_at, fault, place
    if count:
        out[out_at] = 93
        out[out_at + 1] = 125
        out_at += 2
    return at, out_at, 0, 0


@kernel
def _body(kind: int, data: Array, at: int, end: int, out: Array, out_at: int) -> Any:  # noqa: PLR0912 (one for each type)
    """Return where the body ends, the part that becomes the payload, and the end of the JSON; or a fault."""
    from_ = to = at
    fault = place = 0
    if kind == _MESSAGE:
        return _message(data, at, end, out, out_at, False)
    if kind == _MESSAGE_LIST:
        at, out_at, fault, place = _messages(data, at, end, out, out_at)
    elif kind in (_SUBSCRIBE, _UNSUBSCRIBE, _MESSAGE_ACK, _TOPIC_LIST):
        out_at = put(out, out_at, _IDS if kind == _MESSAGE_ACK else _TOPICS)
        at, out_at, fault, place = _texts(data, at, end, out, out_at)
        out[out_at] = 93
        out[out_at + 1] = 125
        out_at += 2
    elif kind in (_EXCHANGE_KEY, _AUTH_SUCCESS):
        if at + 2 > end or at + 2 + _u16(data, at) > end:
            return 0, 0, 0, out_at, _SHORT, end
        from_, to = at + 2, at + 2 + _u16(data, at)
        at = to
        out_at = put(out, out_at, _EMPTY)
    elif kind == ERROR:
        if at + 1 > end:
            return 0, 0, 0, out_at, _SHORT, end
        out_at = put(out, out_at, _CODE if data[at] else _EMPTY)
        if data[at]:
            out_at = put_number(out, out_at, data[at])
            out[out_at] = 125
            out_at += 1
        to, fault, place = _text_end(data, at + 1, end)
        from_, at = at + 3, to
    elif kind == _AUTH:  # identity and token stay out of the tables
        at, fault, place = _text_end(data, at, end)
        if not fault:
            at, fault, place = _text_end(data, at, end)
        from_ = to = at
        out_at = put(out, out_at, _EMPTY)
    elif kind == _REPORT_ENVIRON:
        if at + 2 > end:
            return 0, 0, 0, out_at, _SHORT, end
        out_at = put_number(out, put(out, out_at, _NETWORK), data[at])
        out_at = put_number(out, put(out, out_at, _ISP), data[at + 1])
        phone = at + 2
        at, fault, place = _text_end(data, phone, end)
        if not fault:
            out_at = put_text(out, put(out, out_at, _PHONE), data, phone + 2, at)
            at, out_at, fault, place = _texts(data, at, end, out, put(out, out_at, _EXTRA))
            out[out_at] = 93
            out[out_at + 1] = 125
            out_at += 2
    else:
        out_at = put(out, out_at, _EMPTY)
    return at, from_, to, out_at, fault, place


@kernel
def parse_frames(data: Array, offsets: Array, from_server: Array) -> Any:
    """Return types, fields and payloads (of an error: its reason) of the good frames, and the faults of the others."""
    count = offsets.size - 1
    total = wide(offsets[count]) - wide(offsets[0])
    rows, faults = np.empty(count, np.int64), np.empty((count, 3), np.int64)
    types = np.empty(count, np.uint8)
    text_ends, payload_ends = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int32)
    text, payload = np.empty(64 * count + 1024, np.uint8), np.empty(total, np.uint8)
    good = bad = text_at = payload_at = 0
    for row in range(count):
        start, end = wide(offsets[row]), wide(offsets[row + 1])
        size, kind = end - start, 0
        fault, place = 0, start
        if size < 2:
            fault, place = _SHORT, end
        elif _u16(data, start) != size - 2:
            fault = _LENGTH
        elif size < 3:
            fault, place = _SHORT, end
        elif data[start + 2] >= (_TYPES - FROM_SERVER if from_server[row] else FROM_SERVER):
            fault, place = _UNKNOWN_TYPE, start + 2
        else:
            kind = wide(data[start + 2]) + (FROM_SERVER if from_server[row] else 0)
            text = room(text, text_at, 256 + 8 * size)
            after, from_, to, text_end, fault, place = _body(kind, data, start + 3, end, text, text_at)
            if not fault and after != end:
                fault, place = _TRAILING, after
        if fault:
            faults[bad, 0], faults[bad, 1], faults[bad, 2] = row, fault, place - start
            bad += 1
            continue
        payload_at = put_span(payload, payload_at, data, from_, to)
        text_at = text_end
        rows[good], types[good] = row, kind
        good += 1
        text_ends[good], payload_ends[good] = text_at, payload_at
    return (
        rows[:good], types[:good], text_ends[: good + 1], text[:text_at],
        payload_ends[: good + 1], payload[:payload_at], faults[:bad],
    )  # fmt: skip
