"""Whatever frames come, a session answers, ignores or closes; nothing else is raised."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.sisnet.strategies import any_frames
from protocols.sisnet.talk import LOGIN, OK, answer_to
from wirelake.message import Failure
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.base_session import SisnetSession
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import Json
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.server import ServerSession

answers = st.sampled_from(
    [{}, {"fields": {"a": 1}}, {"payload": b"\xff"}, {"failure": Failure("no")}, {"fields": {"msg": [[1]]}, "more": 1}]
)


def a_server(state: str, compress: bool) -> SisnetSession:
    server = ServerSession(0.0)
    if state != "NEW":
        ask = {"compress": "snappy"} if compress else {}
        server.receive(Json.of("1", {"command": "login", "ask": ask}), 0.0)
    if state == "READY":
        server.send(OK, 0.0)
    return server


def a_client(state: str, compress: bool) -> SisnetSession:
    client = ClientSession(0.0, compress=compress)
    client.send(LOGIN, 0.0)
    if state == "READY":
        client.receive(Json.of("login", {"ans": 0}), 0.0)
    return client


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("state", ["NEW", "CHECKING", "READY"])
@pytest.mark.parametrize("make", [a_server, a_client])
@given(sent=st.lists(any_frames, max_size=6), answer=answers, packed=st.booleans())
def test_any_frames_in_any_state(
    make: Any, state: str, compress: bool, sent: list[SisnetFrame], answer: dict[str, Any], packed: bool
) -> None:
    session: SisnetSession = make(state, compress)
    for frame in sent:
        step = session.receive(snappy.pack_frame(frame) if packed else frame, 1.0)
        for message in step.messages:
            if message.correlation and session.state.name == "READY" and make is a_server:
                step.frames += session.send(answer_to(message, **answer), 1.0).frames
        for said in step.frames:
            assert decode(said.encode(), session.side) == said
        if step.closing is not None:
            assert session.state.name == "CLOSED"
            return
    assert session.tick(1000.0).closing is not None
