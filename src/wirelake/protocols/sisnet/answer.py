"""Read and write answers, in any form and dialect."""

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.protocols.sisnet.binary import NUMBER, BinaryAnswer, Extension
from wirelake.protocols.sisnet.constants import Ans, Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import REQUEST_KEYS, Http, Json, Redis
from wirelake.protocols.sisnet.request import headers_for_keys, read_value
from wirelake.protocols.text import from_base64, text_of, word_of, write_json

_ANSWER_KEYS = frozenset({"ans", "msg", "fuc", "login", "logout"})
_MORE_MAX = 2**31
_INTEGER = re.compile(rb"-?[0-9]+")


class Answer(Struct, frozen=True, kw_only=True):
    """An answer. `ans` is the type of `msg`, a JSON value; bytes are in `payload`."""

    ans: int = Ans.OK.value
    msg: Any = None
    payload: bytes = b""
    more: int = 0  # on the wire: fuc
    headers: dict[str, Any] = field(default_factory=dict)
    dialect: Dialect = Dialect.NEW


OK = Answer()


def failed(why: str) -> Answer:
    """Return an answer that reports a failure."""
    return Answer(ans=Ans.FAILED.value, msg=why)


def type_of(msg: Any) -> int:
    """Return the `ans` of a successful answer with this value."""
    found = Ans.OBJECT
    if msg is None:
        found = Ans.OK
    elif isinstance(msg, str):
        found = Ans.STRING
    elif isinstance(msg, list | tuple):
        found = Ans.ARRAY_2D if msg and all(isinstance(row, list | tuple) for row in msg) else Ans.ARRAY
    elif isinstance(msg, int) and not isinstance(msg, bool):
        found = Ans.INTEGER
    return found.value


def read_answer(frame: SisnetFrame) -> Answer:
    """Return the answer in a frame that is no request."""
    return _READ[type(frame)](frame)


def write_answer(answer: Answer, name: str, *, binary: bool = False, login: bool = False) -> Json | BinaryAnswer:
    """Encode an answer in its dialect. The older one answers a login with `login` or `logout`."""
    if answer.dialect is Dialect.OLD:
        if login:
            return Json.of(name, {"login": "ok"} if answer.ans >= 0 else {"logout": word_of(answer.msg)})
        if not binary and _can_be_bare(answer):
            return Json.of(name, answer.msg)
    return _write_binary(answer, name) if binary else _write_json(answer, name)


def _can_be_bare(answer: Answer) -> bool:
    if answer.ans < 0 or answer.more or answer.payload or answer.headers:
        return False
    if isinstance(answer.msg, dict):
        return bool(answer.msg) and (_ANSWER_KEYS | REQUEST_KEYS).isdisjoint(answer.msg)
    return isinstance(answer.msg, list | tuple)


def _write_json(answer: Answer, name: str) -> Json:
    values: dict[str, Any] = {"ans": answer.ans}
    if answer.payload:
        values["msg"] = b64encode(answer.payload).decode()
    elif answer.msg is not None:
        values["msg"] = answer.msg
    if answer.more:
        values["fuc"] = answer.more
    if "command" in answer.headers:
        values["command"] = answer.headers["command"]
    return Json.of(name, values | headers_for_keys(answer.headers))


def _write_binary(answer: Answer, name: str) -> BinaryAnswer:
    headers = {key: word_of(value).encode() for key, value in answer.headers.items()}
    lnk = headers.pop("lnk", None)
    ver = headers.pop("ver", None)
    extensions = tuple(Extension(key.encode(), value) for key, value in headers.items()) or None
    alone = lnk is None and ver is None and not answer.more
    if alone and answer.ans == Ans.OK and not extensions:
        return BinaryAnswer(message_name=name)
    if alone and answer.ans == Ans.BYTES:
        return BinaryAnswer(message_name=name, data=answer.payload, extensions=extensions)
    return BinaryAnswer(
        message_name=name,
        ver=ver,
        ans=str(answer.ans).encode(),
        msg=_binary_msg(answer),
        fuc=str(answer.more).encode() if answer.more else None,
        lnk=lnk,
        extensions=extensions,
    )


def _binary_msg(answer: Answer) -> bytes | None:
    if answer.ans == Ans.BYTES:
        return answer.payload
    if answer.msg is None:
        return None
    return answer.msg.encode() if isinstance(answer.msg, str) else write_json(answer.msg)


def _read_json(frame: Json) -> Answer:
    values = frame.values
    if isinstance(values, list):
        return Answer(ans=type_of(values), msg=values, dialect=Dialect.OLD)
    if _ANSWER_KEYS.isdisjoint(values):
        return Answer(ans=Ans.OBJECT.value, msg=values, dialect=Dialect.OLD)
    if "ans" not in values and ("login" in values or "logout" in values):
        why = values.get("logout", "ok")
        return Answer(dialect=Dialect.OLD) if why == "ok" else replace(failed(word_of(why)), dialect=Dialect.OLD)
    headers = headers_for_keys(values)
    if "command" in values:
        headers["command"] = values["command"]
    msg = values.get("msg")
    ans = _known_ans(_number(values.get("ans")), msg)
    payload = b""
    if ans == Ans.BYTES:
        found = from_base64(msg)
        if found is None:
            ans = type_of(msg)
        else:
            msg, payload = None, found
    elif ans < 0:
        msg = word_of(msg)
    return Answer(ans=ans, msg=msg, payload=payload, more=_more(_number(values.get("fuc"))), headers=headers)


def _read_binary(frame: BinaryAnswer) -> Answer:
    headers: dict[str, Any] = {text_of(each.name): text_of(each.data) for each in frame.extensions or ()}
    for key, value in (("ver", frame.ver), ("lnk", frame.lnk)):
        if value is not None:
            headers[key] = text_of(value)
    if frame.data is not None:
        return Answer(ans=Ans.BYTES.value, payload=frame.data, headers=headers)
    msg, payload = _read_binary_msg(None if frame.ans is None else int(frame.ans), frame.msg)
    ans = Ans.BYTES.value if payload else _known_ans(None if frame.ans is None else int(frame.ans), msg)
    return Answer(
        ans=ans,
        msg=msg,
        payload=payload,
        more=_more(None if frame.fuc is None else int(frame.fuc)),
        headers=headers,
    )


def _read_binary_msg(ans: int | None, msg: bytes | None) -> tuple[Any, bytes]:
    """Return a JSON value and no bytes, or None and the bytes."""
    if not msg:
        return ("" if ans is not None and (ans < 0 or ans == Ans.STRING) else None), b""
    if ans is None or ans >= Ans.BYTES:
        return None, msg
    if ans <= 0 or ans == Ans.STRING:
        return text_of(msg), b""
    if ans == Ans.INTEGER and _INTEGER.fullmatch(msg) is None:
        return text_of(msg), b""
    return read_value(msg)


def _read_foreign(frame: Http | Redis) -> Answer:
    return Answer(ans=Ans.BYTES.value, payload=frame.content)


def _known_ans(ans: int | None, msg: Any) -> int:
    """Return a known `ans`: −2 and −3 mean −1; for a number above the known types, that of the value."""
    if ans is None or ans > Ans.BYTES:
        return type_of(msg)
    if ans < 0:
        return ans if ans == Ans.EXPIRED else Ans.FAILED.value
    return ans


def _number(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and NUMBER.fullmatch(value.encode()):
        return int(value)
    return None


def _more(number: int | None) -> int:
    return min(max(number or 0, 0), _MORE_MAX)


_READ: dict[type[SisnetFrame], Callable[[Any], Answer]] = {
    Json: _read_json,
    BinaryAnswer: _read_binary,
    Http: _read_foreign,
    Redis: _read_foreign,
}
