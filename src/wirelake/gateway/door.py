"""A TCP door: where one protocol comes in. Makes a session for each connection."""

import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wirelake.config import Address, parse_address
from wirelake.errors import InputError
from wirelake.gateway.admission import Slot
from wirelake.gateway.connection import Connection
from wirelake.gateway.listener import Listener
from wirelake.gateway.logins import ANONYMOUS
from wirelake.gateway.unopened import unopened
from wirelake.gateway.websocket import MessageSplitter, ServedWebSocket
from wirelake.message import Message
from wirelake.protocols.comet.server import ServerSession as CometSession
from wirelake.protocols.comet.session import Settings as CometSettings
from wirelake.protocols.esnp.server import ServerSession as EsnpSession
from wirelake.protocols.esnp.session import Settings as EsnpSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.server import ServerSession as MaglineSession
from wirelake.protocols.magline.session import Settings as MaglineSettings
from wirelake.protocols.magline.splitter import MaglineSplitter
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.resp.server import ServerSession as RespSession
from wirelake.protocols.resp.session import Settings as RespSettings
from wirelake.protocols.session import Session
from wirelake.protocols.sisnet.frames import SisnetTcpSplitter
from wirelake.protocols.sisnet.server import ServerSession as SisnetSession
from wirelake.protocols.sisnet.session import Settings as SisnetSettings
from wirelake.protocols.splitter import Splitter

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class Door:
    other = Sender.CLIENT

    def __init__(
        self, gateway: "Gateway", protocol: Protocol, setting: str, address: Address, carrier: Carrier = Carrier.TCP
    ) -> None:
        self.carrier = carrier
        self.gateway = gateway
        self.protocol = protocol
        self.setting = setting
        self.address = address
        self.new_session: Callable[[float], Session] = session_maker(gateway, protocol)
        self._listener = Listener(gateway, protocol.name, self._new_connection)

    def new_splitter(self) -> Splitter:
        if self.protocol.name == "sisnet":
            bytes_max = self.gateway.settings.sisnet.message_bytes_max
            return MessageSplitter(bytes_max) if self.carrier is Carrier.WEBSOCKET else SisnetTcpSplitter(bytes_max)
        if self.protocol.name == "magline":
            chosen = self.gateway.settings.magline
            return MaglineSplitter(chosen.message_bytes_max, chosen.header_bytes_max)
        return self.protocol.splitter(Sender.CLIENT, self.carrier)

    def admit(self, connection: Connection) -> str:
        if connection.slot is None:
            slot = self.gateway.admission.enter(connection.address, authenticated=self.gateway.settings.auth.open)
            if isinstance(slot, str):
                return slot
            connection.slot = slot
        return ""

    def begun(self, connection: Connection) -> None:
        """It is the peer who begins. Where everybody is let in, redis clients need not say who they are."""
        if self.protocol.name == "resp" and self.gateway.settings.auth.open:
            connection.identity = ANONYMOUS

    def heard(self, connection: Connection, message: Message) -> None:
        self.gateway.heard(connection, message)

    def left(self, connection: Connection) -> None:
        if connection.slot is not None:
            connection.slot.release()

    async def open(self, tls: ssl.SSLContext | None) -> None:
        try:
            self.address = await self._listener.open(self.address, tls)
        except OSError as error:
            raise unopened(self.setting, self.address, error) from error

    def _new_connection(self, slot: Slot | None) -> Connection:
        connection = ServedWebSocket if self.carrier is Carrier.WEBSOCKET else Connection
        return connection(self, slot)

    @property
    def is_open(self) -> bool:
        return self._listener.is_serving

    def close(self) -> None:
        """No new connections; those there stay."""
        self._listener.close()


def session_maker(gateway: "Gateway", protocol: Protocol) -> Callable[[float], Session]:
    """How a session of this protocol begins, with the gateway's keys and settings."""
    match protocol.name:
        case "comet":
            private = gateway.keys.comet()
            return lambda now_s: CometSession(now_s, private, os.urandom, _comet_settings(gateway))
        case "magline":
            own = gateway.keys.magline()
            return lambda now_s: MaglineSession(now_s, own, os.urandom, _magline_settings(gateway))
        case "esnp":
            return lambda now_s: EsnpSession(now_s, _esnp_settings(gateway))
        case "sisnet":
            return lambda now_s: SisnetSession(now_s, _sisnet_settings(gateway))
        case "resp":
            return lambda now_s: RespSession(now_s, next(gateway.numbers), _resp_settings(gateway))
    made = protocol.server_session
    if made is None:
        raise InputError(f"{protocol.name} can be decoded, but has no session to serve it with")
    return made


def _magline_settings(gateway: "Gateway") -> MaglineSettings:
    chosen = gateway.settings.magline
    return MaglineSettings(
        idle_s=chosen.idle_s,
        login_s=chosen.login_s,
        resume_s=chosen.resume_s,
        resume_without_proof=chosen.resume_without_proof == "always"
        or (chosen.resume_without_proof == "tls" and gateway.tls is not None),
        message_bytes_max=chosen.message_bytes_max,
        header_bytes_max=chosen.header_bytes_max,
        login_frame_bytes_max=chosen.login_frame_bytes_max,
        open=gateway.settings.auth.open,
    )


def _esnp_settings(gateway: "Gateway") -> EsnpSettings:
    chosen = gateway.settings.esnp
    return EsnpSettings(
        login_s=chosen.login_s,
        idle_s=chosen.idle_s or None,
        frame_bytes_max=chosen.frame_bytes_max,
        login_frame_bytes_max=chosen.login_frame_bytes_max,
        open=gateway.settings.auth.open,
        hosts=_esnp_hosts(gateway),
    )


def _esnp_hosts(gateway: "Gateway") -> frozenset[str]:
    """Names by which esnp peers may address this node: alone, and with the listener's port."""
    address = parse_address(gateway.settings.listen.esnp, "listen.esnp")
    names = {gateway.log_settings.node, socket.gethostname(), *_LOOPBACK_NAMES, *gateway.settings.esnp.hosts}
    if address is not None:
        names.add(address.host)
        names |= {f"{name}:{address.port}" for name in names}
    return frozenset(name.lower() for name in names)


def _sisnet_settings(gateway: "Gateway") -> SisnetSettings:
    chosen = gateway.settings.sisnet
    return SisnetSettings(
        login_s=chosen.login_s,
        idle_s=chosen.idle_s,
        message_bytes_max=chosen.message_bytes_max,
        login_frame_bytes_max=chosen.login_frame_bytes_max,
        inflated_bytes_max=chosen.inflated_bytes_max,
        open=gateway.settings.auth.open,
    )


def _resp_settings(gateway: "Gateway") -> RespSettings:
    chosen = gateway.settings.redis
    return RespSettings(
        login_s=chosen.login_s,
        idle_s=chosen.idle_s or None,
        frame_bytes_max=chosen.frame_bytes_max,
        login_frame_bytes_max=chosen.login_frame_bytes_max,
        open=gateway.settings.auth.open,
    )


def _comet_settings(gateway: "Gateway") -> CometSettings:
    """Looked up for each connection: a reload holds for new ones."""
    chosen = gateway.settings.comet
    return CometSettings(
        idle_s=chosen.idle_s,
        login_s=chosen.login_s,
        require_key=chosen.require_key,
        login_frame_bytes_max=chosen.login_frame_bytes_max,
    )
