"""Messages as rows, one at a time: the definition of what the columns hold, and the way of all but the bulk."""

from typing import Any

import pyarrow as pa

from wirelake.message import Kind, Message, Operation, Topic
from wirelake.pipeline.decode.decoded import SAID
from wirelake.pipeline.decode.secrets import without_secrets
from wirelake.protocols.jsontext import write_json

Row = tuple[str, str | None, str | None, str | None, str | None, str | None, str | None, str, bytes, int | None]


def row_of(message: Message) -> Row:
    """The columns of `SAID`."""
    fields, payload = without_secrets(message)
    topic = service = op = None
    target = message.target
    if isinstance(target, Operation):
        service, op = target.service or None, target.op or None
    elif isinstance(target, Topic):
        topic = target.name or None
    extra = _beside(message)
    status = _status(message)
    is_answer = message.kind is Kind.RESPONSE and status is not None
    return (
        message.kind.value,
        message.name or None,
        topic,
        service,
        op,
        message.correlation or None,
        status,
        write_json({**extra, **fields} if extra else fields).decode(),
        payload,
        message.more if is_answer else None,
    )


def batch_of(rows: list[Row]) -> Any:
    columns = zip(*rows, strict=True) if rows else [()] * len(SAID)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, SAID, strict=True)], SAID)


def _beside(message: Message) -> dict[str, Any]:
    """What a message says beside its fields. A field of the same name stays."""
    extra: dict[str, Any] = {}
    if message.id:
        extra["id"] = message.id
    if message.type:
        extra["type"] = message.type
    if message.at_ms:
        extra["ts"] = message.at_ms
    if message.failure is not None and message.failure.code:
        extra["code"] = message.failure.code
    if message.parts:
        extra["parts"] = [{"id": part.id, "type": part.type, "ts": part.at_ms} for part in message.parts]
    return extra


def _status(message: Message) -> str | None:
    """Whether an answer is a good one; a piece of one does not say."""
    if message.failure is not None:
        return message.failure.text or "failed"
    is_piece = message.protocol == "apostol" and "packet_no" in message.fields
    return "ok" if message.kind is Kind.RESPONSE and not is_piece else None
