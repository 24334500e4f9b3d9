"""Test an installed protocol with a few inputs. `wirelake doctor` reports the result."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from wirelake.address import Address
from wirelake.errors import ProtocolError, TranslationError
from wirelake.protocols.context import PrivateKey, SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.guards import GuardedSession
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Closing, Session
from wirelake.protocols.splitter import CODEC_FAULT

_SAMPLES: Final = (b"", b"\0", b"\xff" * 64, bytes(range(64)), b"hello, world\r\n")
_LATER_S: Final = 3600.0  # the deadlines of a new session have passed by then


def first_fault(protocol: Protocol) -> str:
    """Return the first exception that the protocol must not raise, for some sample bytes; "" if there is none."""
    for sender in Sender:
        for data in _SAMPLES:
            for attempt in _attempts(protocol, data, sender):
                try:
                    attempt()
                except ProtocolError as error:
                    if error.code == CODEC_FAULT:
                        return error.text
                except TranslationError:
                    continue
    return _session_fault(protocol)


def _attempts(protocol: Protocol, data: bytes, sender: Sender) -> Iterator[Callable[[], object]]:
    yield lambda: _split(protocol, data, sender)
    yield lambda: protocol.dissect(data, sender)
    yield lambda: protocol.clues(data, sender)
    yield lambda: protocol.to_message(protocol.decode(data, sender), sender)


def _split(protocol: Protocol, data: bytes, sender: Sender) -> None:
    for transport in protocol.transports:
        splitter = protocol.splitter(sender, transport.carrier)
        splitter.receive(data)
        if splitter.failure is not None:
            raise splitter.failure


def _session_fault(protocol: Protocol) -> str:
    """Return what a server session raises when it begins, receives a frame, times out, and closes."""
    if protocol.server_session is None:
        return ""
    for frame in (None, *_frames(protocol)):
        session = new_session(protocol, protocol.server_session)
        if frame is not None:
            session.receive(frame, 0.0)
        else:
            session.close(Closing("shutdown"), 0.0)
        session.tick(_LATER_S)
        if isinstance(session, GuardedSession) and session.fault:
            return session.fault
    return ""


def new_session(protocol: Protocol, server_session: Callable[[SessionContext], Session], **settings: Any) -> Session:
    """Return a server session at time 0, with these settings and keys that are not stored."""
    return server_session(
        SessionContext(
            settings=protocol.settings(**settings),
            now_s=0.0,
            number=1,
            random=bytes,
            keys=_NewKeys(),
            address=Address("127.0.0.1", 0),
        )
    )


def _frames(protocol: Protocol) -> Iterator[Frame]:
    for data in _SAMPLES:
        try:
            yield protocol.decode(data, Sender.CLIENT)
        except ProtocolError:
            continue


class _NewKeys:
    """Keys that are not stored."""

    def private_key(self, _name: str, generate: Callable[[], PrivateKey]) -> PrivateKey:
        return generate()
