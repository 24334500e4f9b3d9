import pytest

from wirelake.errors import TranslationError
from wirelake.message import (
    Credentials,
    Device,
    Kind,
    Message,
    Op,
    Operation,
    Topic,
    content_of,
    control,
    control_op,
)


def test_a_topic_is_durable_by_its_name() -> None:
    assert Topic("@news").is_durable
    assert not Topic("news").is_durable


def test_control_messages_ask_the_gateway_itself() -> None:
    assert control_op(control(Op.SUBSCRIBE, fields={"topics": ["@a"]})) is Op.SUBSCRIBE
    assert control_op(Message(kind=Kind.REQUEST, target=Operation("wirelake", "nonsense"))) is None
    assert control_op(Message(kind=Kind.REQUEST, target=Operation("other", "login"))) is None
    assert control_op(Message(kind=Kind.EVENT, target=Device("1234"))) is None


def test_a_token_is_not_shown_by_accident() -> None:
    login = control(Op.LOGIN, credentials=Credentials("me", "s3cret"))
    assert "s3cret" not in repr(login)
    assert "me" in repr(login)


def test_the_content_is_the_payload_or_the_fields_but_not_both() -> None:
    assert content_of(Message(kind=Kind.EVENT, payload=b"x")) == b"x"
    assert content_of(Message(kind=Kind.EVENT, fields={"a": [1, None]})) == b'{"a":[1,null]}'
    assert content_of(Message(kind=Kind.EVENT)) == b""
    with pytest.raises(TranslationError):
        content_of(Message(kind=Kind.EVENT, fields={"a": 1}, payload=b"x"))
