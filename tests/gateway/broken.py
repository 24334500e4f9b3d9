"""Protocols of somebody else's that are wrong, each in another way: the example pager with one part replaced."""

from typing import Any

from msgspec.structs import replace

from gateway.added import example
from wirelake.errors import TranslationError
from wirelake.message import Message
from wirelake.protocols.frame import Frame
from wirelake.protocols.protocol import Carrier, Transport
from wirelake.protocols.session import Step
from wirelake.protocols.settings import ProtocolSettings
from wirelake.protocols.splitter import Splitter

pager = example("pager")
PagerSession: Any = pager.ServerSession


def speechless(*_: Any) -> Any:
    raise TranslationError("there is no message for that")


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError("of somebody else's")


class BadSplitter(Splitter):
    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        return int(fails())


class Receives(PagerSession):  # type: ignore[misc]
    def receive(self, frame: Frame, now_s: float) -> Any:
        fails()
        return super().receive(frame, now_s)


class Sends(PagerSession):  # type: ignore[misc]
    """Logs in well, and raises for a notification."""

    def _page(self, message: Message, now_s: float, step: Step) -> None:
        fails()


class Ticks(PagerSession):  # type: ignore[misc]
    def tick(self, now_s: float) -> Any:
        fails()
        return super().tick(now_s)


class Asks(PagerSession):  # type: ignore[misc]
    @property
    def encoding_key(self) -> str:
        return str(fails())


class BadSettings(ProtocolSettings, frozen=True):
    needed: int  # without a default


def made(name: str, **changed: Any) -> Any:
    transports = (Transport(Carrier.TCP, 7997, name),)
    return replace(pager.PROTOCOL, name=name, transports=transports, **changed)


PROTOCOLS = {
    "bad_decode": made("bad_decode", decode=fails),
    "bad_dissect": made("bad_dissect", dissect=fails),
    "bad_clues": made("bad_clues", clues=fails),
    "bad_split": made("bad_split", splitter=fails, server_splitter=None),
    "bad_ends": made("bad_ends", splitter=lambda *_: BadSplitter(1000), server_splitter=lambda *_: BadSplitter(1000)),
    "bad_message": made("bad_message", to_message=speechless),
    "bad_made": made("bad_made", server_session=fails),
    "bad_receive": made("bad_receive", server_session=Receives),
    "bad_send": made("bad_send", server_session=Sends),
    "bad_tick": made("bad_tick", server_session=Ticks),
    "bad_ask": made("bad_ask", server_session=Asks),
}
LEFT_OUT = {
    "bad_settings": (made("bad_settings", settings=BadSettings), "its settings raise TypeError"),
    "bad_key": (replace(made("bad_key"), transports=(Transport(Carrier.TCP, 1, "comet"),)), "listen.comet is comet"),
    "pager_twin": (replace(pager.PROTOCOL, name="pager_twin"), "listen.pager is pager's"),
    "log": (made("log"), "'log' cannot be the name of a section"),
    "bad_kind": ({"name": "bad_kind"}, "is a dict, not a Protocol"),
}
globals().update({name.upper(): protocol for name, protocol in PROTOCOLS.items()})
globals().update({name.upper(): protocol for name, (protocol, _) in LEFT_OUT.items()})
POINTS = {name: f"gateway.broken:{name.upper()}" for name in (*PROTOCOLS, *LEFT_OUT)} | {
    "bad_import": "gateway.not_there:PROTOCOL"
}
