"""Installed protocols that fail, each in another way: the example pager with one part replaced."""

from typing import Any

from msgspec.structs import replace

from gateway.installed_protocol import example
from wirelake.errors import TranslationError
from wirelake.message import Message
from wirelake.protocols.frame import Frame
from wirelake.protocols.protocol import Carrier, Transport
from wirelake.protocols.session import Step
from wirelake.protocols.settings import ProtocolSettings
from wirelake.protocols.splitter import Splitter

pager = example("pager")
PagerSession: Any = pager.ServerSession


def refuse_message(*_: Any) -> Any:
    raise TranslationError("there is no message for that")


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError("of somebody else's")


class BadSplitter(Splitter):
    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        return int(fail())


class Receives(PagerSession):  # type: ignore[misc]
    def receive(self, frame: Frame, now_s: float) -> Any:
        fail()
        return super().receive(frame, now_s)


class Sends(PagerSession):  # type: ignore[misc]
    """Accept the login, and raise for a notification."""

    def _page(self, message: Message, now_s: float, step: Step) -> None:
        fail()


class Ticks(PagerSession):  # type: ignore[misc]
    def tick(self, now_s: float) -> Any:
        fail()
        return super().tick(now_s)


class Asks(PagerSession):  # type: ignore[misc]
    @property
    def encoding_key(self) -> str:
        return str(fail())


class BadSettings(ProtocolSettings, frozen=True):
    needed: int  # without a default


def make_protocol(name: str, **changed: Any) -> Any:
    transports = (Transport(Carrier.TCP, 7997, name),)
    return replace(pager.PROTOCOL, name=name, transports=transports, **changed)


PROTOCOLS = {
    "bad_decode": make_protocol("bad_decode", decode=fail),
    "bad_dissect": make_protocol("bad_dissect", dissect=fail),
    "bad_clues": make_protocol("bad_clues", clues=fail),
    "bad_split": make_protocol("bad_split", splitter=fail, server_splitter=None),
    "bad_ends": make_protocol(
        "bad_ends", splitter=lambda *_: BadSplitter(1000), server_splitter=lambda *_: BadSplitter(1000)
    ),
    "bad_message": make_protocol("bad_message", to_message=refuse_message),
    "bad_made": make_protocol("bad_made", server_session=fail),
    "bad_receive": make_protocol("bad_receive", server_session=Receives),
    "bad_send": make_protocol("bad_send", server_session=Sends),
    "bad_tick": make_protocol("bad_tick", server_session=Ticks),
    "bad_ask": make_protocol("bad_ask", server_session=Asks),
}
LEFT_OUT = {
    "bad_settings": (make_protocol("bad_settings", settings=BadSettings), "its settings raise TypeError"),
    "bad_key": (
        replace(make_protocol("bad_key"), transports=(Transport(Carrier.TCP, 1, "comet"),)),
        "listen.comet is comet",
    ),
    "pager_twin": (replace(pager.PROTOCOL, name="pager_twin"), "listen.pager is pager's"),
    "log": (make_protocol("log"), "'log' cannot be the name of a section"),
    "bad_kind": ({"name": "bad_kind"}, "is a dict, not a Protocol"),
}
globals().update({name.upper(): protocol for name, protocol in PROTOCOLS.items()})
globals().update({name.upper(): protocol for name, (protocol, _) in LEFT_OUT.items()})
POINTS = {name: f"gateway.protocols.broken_protocols:{name.upper()}" for name in (*PROTOCOLS, *LEFT_OUT)} | {
    "bad_import": "gateway.not_there:PROTOCOL"
}
