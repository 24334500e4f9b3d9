"""Kernels that decode apostol packets, from Arrow buffers to new ones.

All arguments are plain arrays: `data` holds all frames, frame `i` is from `offsets[i]` to `offsets[i + 1]`. Packets
that cannot be decoded are returned as row, fault and offset; `FAULTS` names the faults. The codec is the definition: a
test compares its results with those of the kernels.
"""

from typing import Any, Final

import numpy as np

from wirelake.jit import kernel
from wirelake.protocols.kernel_primitives import (
    Array,
    ascii_array,
    bad_utf8,
    crc16,
    put,
    put_number,
    put_span,
    room,
    wide,
)

# Numba compiles again when this file changes, not when `kernel_primitives.py` does: a test checks its digest here.
PRIMITIVES: Final = "56bb60beb7e7bcde"

FAULTS: Final = ("", "short", "length_min", "length_form", "length", "crc", "version", "params", "bad_utf8", "trailing")
_SHORT, _LENGTH_MIN, _LENGTH_FORM, _LENGTH, _CRC, _VERSION, _PARAMS, _BAD_UTF8, _TRAILING = range(1, len(FAULTS))

# The kinds of content by which the columns of a message differ.
FRAGMENT, RECEIPT, TO_DEVICE, DEVICE, STATUS, READINGS, ODD_READINGS, MALFORMED = range(8)
KINDS: Final = ("telemetry", "response", "request", "event", "control")
_TELEMETRY, _RESPONSE, _REQUEST, _EVENT, _CONTROL = range(len(KINDS))
STATUS_OK, STATUS_ERROR = 1, 2  # 0: none; STATUS_ERROR and above: the device's error number is added to it

_TRUE, _FALSE = ascii_array("true"), ascii_array("false")
_PACKET_NO, _FIRST, _LAST = ascii_array('{"packet_no":'), ascii_array(',"first":'), ascii_array(',"last":')
_CODE, _COMMAND_TYPE, _ERROR = ascii_array('"code":'), ascii_array('"command_type":'), ascii_array(',"error":')
_DEVICE_TIME, _STATE = ascii_array(',"device_time":'), ascii_array(',"status":{"state":')
_TARIFF, _CONFIGURED = ascii_array(',"tariff":'), ascii_array(',"configured_at":')
_TIME_SYNC, _SYNCED = ascii_array(',"time_sync":'), ascii_array(',"synced_at":')
_READING_LIST, _READING = ascii_array(',"readings":['), ascii_array('{"type":')
_VALUE, _SIZE = ascii_array(',"value":'), ascii_array(',"size":')


@kernel
def _packet_fault(data: Array, start: int, end: int) -> tuple[int, int]:  # noqa: PLR0911, PLR0912 (one for each fault)
    """Return what is wrong with a packet, and at which offset; 0 if nothing is. Checks in the order of the codec."""
    size = end - start
    if size < 1:
        return _SHORT, 0
    head = 1
    length = wide(data[start])
    if length < 0x80:
        if length < 8:
            return _LENGTH_MIN, 0
    else:
        if size < 2:
            return _SHORT, 1
        head = 2
        length = length & 0x7F | wide(data[start + 1]) << 7
        if length < 0x80:
            return _LENGTH_FORM, 0
    if length != size - head:
        return _LENGTH, 0
    if crc16(data, start, end) != 0:
        return _CRC, size - 2
    if data[start + head] != 1:
        return _VERSION, head
    if data[start + head + 1] & 0x80:
        return _PARAMS, head + 1
    serial = start + head + 4
    after = serial + wide(data[serial - 1])
    if after > end - 2:
        return _SHORT, size - 2
    bad = bad_utf8(data, serial, after)
    if bad >= 0:
        return _BAD_UTF8, bad - start
    if after + 2 > end - 2:
        return _SHORT, size - 2
    if data[start + head + 1] & 0x40 and after + 2 != end - 2:
        return _TRAILING, after + 2 - start
    return 0, 0


@kernel
def parse_packets(data: Array, offsets: Array) -> Any:
    """Return the fields of the good packets and the faults of the others. Serials and data are contiguous, in order."""
    count = offsets.size - 1
    total = wide(offsets[count]) - wide(offsets[0])
    rows, faults = np.empty(count, np.int64), np.empty((count, 3), np.int64)
    params, device_types = np.empty(count, np.uint8), np.empty(count, np.uint8)
    command_nos, packet_nos = np.empty(count, np.uint8), np.empty(count, np.uint8)
    serial_ends, data_ends = np.zeros(count + 1, np.int32), np.zeros(count + 1, np.int32)
    serials, contents = np.empty(total, np.uint8), np.empty(total, np.uint8)
    good = bad = serial_at = content_at = 0
    for row in range(count):
        start, end = wide(offsets[row]), wide(offsets[row + 1])
        fault, place = _packet_fault(data, start, end)
        if fault:
            faults[bad, 0], faults[bad, 1], faults[bad, 2] = row, fault, place
            bad += 1
            continue
        at = start + (1 if data[start] < 0x80 else 2)
        serial = at + 4
        after = serial + wide(data[at + 3])
        rows[good] = row
        params[good], device_types[good] = data[at + 1], data[at + 2]
        command_nos[good], packet_nos[good] = data[after], data[after + 1]
        serial_at = put_span(serials, serial_at, data, serial, after)
        content_at = put_span(contents, content_at, data, after + 2, end - 2)
        good += 1
        serial_ends[good], data_ends[good] = serial_at, content_at
    return (
        rows[:good], params[:good], device_types[:good], command_nos[:good], packet_nos[:good],
        serial_ends[: good + 1], serials[:serial_at],
        data_ends[: good + 1], contents[:content_at], faults[:bad],
    )  # fmt: skip


@kernel
def _little(data: Array, start: int, size: int) -> int:
    value = wide(0)
    for place in range(size):
        value |= wide(data[start + place]) << 8 * place
    return value


@kernel
def _readings_shape(data: Array, start: int, end: int) -> int:
    if start == end:
        return MALFORMED
    at, shape = start + 1, READINGS
    for _ in range(data[start]):
        if at + 2 > end:
            return MALFORMED
        size = wide(data[at + 1])
        if at + 2 + size > end:
            return MALFORMED
        if size not in (1, 2, 3, 4, 6, 8):
            shape = ODD_READINGS
        at += 2 + size
    return shape if at == end else MALFORMED


@kernel
def _shape(params: int, packet_no: int, data: Array, start: int, end: int) -> int:  # noqa: PLR0911 (one for each shape)
    """Return what a packet contains. MALFORMED and ODD_READINGS are left to the codec."""
    if params & 0x40:
        return RECEIPT
    if params & 0x33 != 3 or packet_no:
        return FRAGMENT
    if params & 4:
        return TO_DEVICE if end > start and data[start] & 0x80 else MALFORMED
    if end - start < 6 or data[start + 4] & 0x80:
        return MALFORMED
    if data[start + 5]:
        return DEVICE if end - start == 6 else MALFORMED
    if data[start + 4] == 1:
        return STATUS if end - start == 18 else MALFORMED
    if data[start + 4] == 4:
        return _readings_shape(data, start + 6, end)
    return DEVICE


@kernel
def classify_packets(params: Array, packet_nos: Array, ends: Array, data: Array) -> tuple[Array, Array]:
    """Return the shape of each packet, and the bits of all float readings in order: Python formats them as text."""
    count = params.size
    shapes, floats, found = np.empty(count, np.uint8), np.empty(data.size // 10, np.int64), 0
    for row in range(count):
        start, end = ends[row], ends[row + 1]
        shape = _shape(params[row], packet_nos[row], data, start, end)
        shapes[row] = shape
        if shape == READINGS:
            at = start + 7
            while at < end:
                if data[at + 1] == 8:
                    floats[found] = _little(data, at + 2, 8)
                    found += 1
                at += 2 + wide(data[at + 1])
    return shapes, floats[:found]


@kernel
def _put_command(out: Array, at: int, data: Array, start: int, failed: bool) -> int:
    """Write the fields that all commands of a device have."""
    out[at] = 123
    at += 1
    if failed:
        at = put_number(out, put(out, at, _CODE), data[start + 5])
        out[at] = 44
        at += 1
    at = put_number(out, put(out, at, _COMMAND_TYPE), data[start + 4])
    at = put_number(out, put(out, at, _ERROR), data[start + 5])
    return put_number(out, put(out, at, _DEVICE_TIME), _little(data, start, 4))


@kernel
def _put_status(out: Array, at: int, data: Array, start: int) -> int:
    at = put_number(out, put(out, at, _STATE), _little(data, start, 2))
    at = put_number(out, put(out, at, _TARIFF), data[start + 2])
    at = put_number(out, put(out, at, _CONFIGURED), _little(data, start + 3, 4))
    at = put_number(out, put(out, at, _TIME_SYNC), data[start + 7])
    at = put_number(out, put(out, at, _SYNCED), _little(data, start + 8, 4))
    out[at] = 125
    return at + 1


@kernel
def _put_readings(out: Array, at: int, data: Array, start: int, end: int, floats: Array, float_at: int) -> Any:
    at = put(out, at, _READING_LIST)
    place = start + 1
    while place < end:
        size = wide(data[place + 1])
        if place > start + 1:
            out[at] = 44
            at += 1
        at = put_number(out, put(out, at, _READING), data[place])
        at = put(out, at, _VALUE)
        if size == 8:
            while float_at < floats.size and floats[float_at] != 44:
                out[at] = floats[float_at]
                at += 1
                float_at += 1
            float_at += 1
        else:
            at = put_number(out, at, _little(data, place + 2, size))
        at = put_number(out, put(out, at, _SIZE), size)
        out[at] = 125
        at += 1
        place += 2 + size
    out[at] = 93
    return at + 1, float_at


@kernel
def _kind(params: int, is_broadcast: bool) -> int:
    if params & 0x40:
        return _CONTROL
    if params & 8:
        return _RESPONSE
    if params & 4:
        return _EVENT if is_broadcast else _REQUEST
    return _TELEMETRY


@kernel
def _put_fragment(out: Array, at: int, params: int, packet_no: int) -> int:
    at = put_number(out, put(out, at, _PACKET_NO), packet_no)
    if not params & 0x40:
        at = put(out, at, _FIRST)
        at = put(out, at, _TRUE if params & 1 else _FALSE)
        at = put(out, at, _LAST)
        at = put(out, at, _TRUE if params & 2 else _FALSE)
    return at


@kernel
def describe_packets(
    params: Array, device_types: Array, packet_nos: Array, shapes: Array, serial_ends: Array, ends: Array, data: Array,
    floats: Array, hard_ends: Array, hard: Array,
) -> Any:  # fmt: skip
    """Return kind, status, fields as JSON, and payload.

    `floats` is the text of the float readings, comma-separated; `hard` that of the fields that the codec wrote.
    """
    count = shapes.size
    kinds, statuses = np.empty(count, np.uint8), np.zeros(count, np.int64)
    text_ends, payload_ends = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int32)
    text, payload = np.empty(64 * count + 1024, np.uint8), np.empty(data.size, np.uint8)
    at = payload_at = float_at = hard_at = 0
    for row in range(count):
        shape, start, end = shapes[row], wide(ends[row]), wide(ends[row + 1])
        is_broadcast = device_types[row] == 0xFF and serial_ends[row] == serial_ends[row + 1]
        kinds[row] = _kind(params[row], is_broadcast)
        failed = False
        if kinds[row] == _RESPONSE and TO_DEVICE <= shape <= ODD_READINGS:
            failed = shape == DEVICE and data[start + 5] != 0
            statuses[row] = STATUS_ERROR + data[start + 5] if failed else STATUS_OK
        is_hard = shape >= ODD_READINGS
        hard_size = hard_ends[hard_at + 1] - hard_ends[hard_at] if is_hard else 0
        text = room(text, at, 256 + 16 * (end - start) + hard_size)
        from_ = start  # of the payload, which is the rest
        if is_hard:
            at = put_span(text, at, hard, hard_ends[hard_at], hard_ends[hard_at + 1])
            hard_at += 1
            from_ = end if shape == ODD_READINGS else start
        elif shape <= RECEIPT:
            at = _put_fragment(text, at, params[row], packet_nos[row])
        elif shape == TO_DEVICE:
            text[at] = 123
            at = put_number(text, put(text, at + 1, _COMMAND_TYPE), data[start])
            from_ = start + 1
        else:
            at = _put_command(text, at, data, start, failed)
            from_ = start + 6
            if shape == STATUS:
                at = _put_status(text, at, data, from_)
                from_ = end
            elif shape == READINGS:
                at, float_at = _put_readings(text, at, data, from_, end, floats, float_at)
                from_ = end
        if not is_hard:
            text[at] = 125
            at += 1
        payload_at = put_span(payload, payload_at, data, from_, end)
        text_ends[row + 1], payload_ends[row + 1] = at, payload_at
    return kinds, statuses, text_ends, text[:at], payload_ends, payload[:payload_at]
