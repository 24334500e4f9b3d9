"""JSON as several protocols carry it: strict UTF-8, compact, bounded depth, errors with an offset."""

import re
from typing import Any

import msgspec

from wirelake.errors import ProtocolError

_BYTE = re.compile(r"\(byte (\d+)\)")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def read_json(data: bytes, offset: int = 0) -> Any:
    """The value written in `data`; `offset` is where `data` starts in the frame, for the error."""
    try:
        return _decoder.decode(data)
    except UnicodeDecodeError as error:
        raise ProtocolError("bad_utf8", "JSON text is not UTF-8", offset) from error
    except msgspec.MsgspecError as error:
        place = _BYTE.search(str(error))
        at = int(place[1]) if place else len(data)
        raise ProtocolError("bad_json", str(error), offset + at) from error
    except RecursionError as error:
        raise ProtocolError("bad_json", "JSON nests too deeply", offset) from error


def write_json(value: Any) -> bytes:
    """Compact JSON; bytes become base64."""
    return _encoder.encode(value)
