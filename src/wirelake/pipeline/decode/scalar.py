"""Frame after frame by the protocol's own codec: for every protocol that has no kernel, also those added later."""

from typing import Any

import numpy as np

from wirelake.errors import InputError, ProtocolError, TranslationError
from wirelake.pipeline.decode.decoded import Fault, Part
from wirelake.pipeline.decode.rows import Row, batch_of, row_of
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol


def decode_frames(protocol: Protocol, frames: Any, from_server: Any) -> Part:
    """`frames` is a binary column, `from_server` (bool) says of each who sent it."""
    decode, to_message = protocol.decode, protocol.to_message
    rows: list[Row] = []
    good: list[int] = []
    faults: list[Fault] = []
    senders = (Sender.CLIENT, Sender.SERVER)
    for place, (frame, is_server) in enumerate(zip(frames.to_pylist(), from_server.tolist(), strict=True)):
        sender = senders[is_server]
        try:
            row = row_of(to_message(decode(frame or b"", sender), sender))
        except ProtocolError as error:
            faults.append(Fault(place, error.code, error.text, error.offset))
            continue
        except TranslationError as error:  # a good frame that its protocol has no message for
            faults.append(Fault(place, "no_message", str(error), 0))
            continue
        rows.append(row)
        good.append(place)
    return Part(np.array(good, np.int64), batch_of(rows), faults)


def faults_in_words(protocol: Protocol, frames: Any, from_server: Any, places: Any) -> list[Fault]:
    """For frames that a kernel refuses: the codec's own words about each."""
    found = []
    for place in places.tolist():
        sender = Sender.SERVER if from_server[place] else Sender.CLIENT
        try:
            protocol.decode(frames[place].as_py() or b"", sender)
        except ProtocolError as error:
            found.append(Fault(place, error.code, error.text, error.offset))
        else:
            raise AssertionError(f"the {protocol.name} codec takes what the kernel refuses")
    return found


def protocol_of(name: str) -> Protocol | None:
    """None if it was there when the log was written, and is not here now, or cannot be loaded."""
    try:
        return registry.get(name)
    except InputError:
        return None
