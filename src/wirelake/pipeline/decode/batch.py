"""A record batch of the log, decoded by the protocols' own codecs, a row at a time."""

from typing import Any, Final

import msgspec
import pyarrow as pa

from wirelake.errors import ProtocolError, WirelakeError
from wirelake.message import Message, Operation, Topic, jsonable
from wirelake.pipeline.decode.decoded import MESSAGES, PACKETS, QUARANTINE, Decoded
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.jsontext import read_json

_NOT_READ: Final = "frame"


def decode_batch(batch: Any) -> Decoded:
    """`batch` has the columns of the log."""
    messages: list[dict[str, Any]] = []
    quarantine: list[dict[str, Any]] = []
    for row in batch.to_pylist():
        if row["event"] == "quarantine":
            note = read_json(row["note"].encode())
            quarantine.append(_base(row) | _why(note["code"], note["text"], note["offset"], row["frame"]))
        elif row["event"] == "frame" and row["protocol"] in registry.names():
            protocol = registry.get(row["protocol"])
            sender = Sender.CLIENT if row["direction"] == "in" else Sender.SERVER
            base = _base(row) | {"decoder": f"{protocol.name}/{protocol.decoder_version}"}
            try:
                message = protocol.to_message(protocol.decode(row["frame"], sender), sender)
            except ProtocolError as error:
                quarantine.append(base | _why(error.code, error.text, error.offset, row["frame"]))
            except WirelakeError as error:
                quarantine.append(base | _why(_NOT_READ, str(error), 0, row["frame"]))
            else:
                messages.append(base | _columns(message) | {"bytes": len(row["frame"])})
        elif row["event"] == "frame":
            messages.append(_base(row) | {"kind": "request", "bytes": len(row["frame"]), "decoder": "none/1"})
    return Decoded(_rows(messages, MESSAGES), _rows(quarantine, QUARANTINE), _rows([], PACKETS))


def _base(row: dict[str, Any]) -> dict[str, Any]:
    names = ("seq", "at", "node", "protocol", "direction", "session", "identity")
    return {name: row[name] for name in names} | {"day": row["at"].date()}


def _why(reason: str, text: str, offset: int, frame: bytes) -> dict[str, Any]:
    return {"reason": reason, "text": text, "offset": offset, "frame": frame}


def _columns(message: Message) -> dict[str, Any]:
    target = message.target
    return {
        "kind": message.kind.value,
        "name": message.name,
        "topic": target.name if isinstance(target, Topic) else None,
        "service": target.service if isinstance(target, Operation) else None,
        "op": target.op if isinstance(target, Operation) else None,
        "correlation": message.correlation,
        "status": message.failure.text if message.failure else None,
        "fields": msgspec.json.encode(jsonable(message.fields)).decode(),
        "payload": message.payload,
    }


def _rows(rows: list[dict[str, Any]], schema: Any) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=schema)
