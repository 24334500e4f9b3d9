"""The protocol object of apostol."""

from collections.abc import Iterator

from wirelake.protocols.apostol.client import ClientSession
from wirelake.protocols.apostol.constants import COMMAND_NAMES, DEVICE_TYPE_NAMES, READING_NAMES, REQUEST_BIT
from wirelake.protocols.apostol.fast_path import ReportReader
from wirelake.protocols.apostol.frames import FRAMES, Packet, decode
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import SessionSettings, Settings
from wirelake.protocols.apostol.translation import LOSSES, from_message, to_message
from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Clue, DeviceCodes, Protocol, Transport


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield the reasons to believe that this is a packet."""
    yield from FRAMES.clues(frame, sender)
    if decode(frame, sender).device_type in DEVICE_TYPE_NAMES:
        yield Clue(6, "a known device type")


def device_of(frame: Frame) -> str | None:
    """Return the serial of the device that a packet names; None for a broadcast."""
    return frame.serial if isinstance(frame, Packet) and not frame.broadcast else None


def server_session(context: SessionContext) -> ServerSession:
    """Return the gateway's end of a device's session."""
    return ServerSession(context.now_s, context.random, context.session_settings(SessionSettings), context.wall_s)


PROTOCOL = Protocol(
    name="apostol",
    title="apostol: meters, phones and things",
    transports=(Transport(Carrier.UDP, 7332, "apostol"), Transport(Carrier.TCP, 7332, "apostol")),
    decoder_version=2,
    splitter=lambda _sender, _carrier: FRAMES.splitter(),
    decode=FRAMES.decode,
    dissect=FRAMES.dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    settings=Settings,
    server_session=server_session,
    client_session=ClientSession,
    state_machines={Sender.SERVER: ServerSession.state_machine, Sender.CLIENT: ClientSession.state_machine},
    device_of=device_of,
    telemetry_reader=ReportReader,
    calls=CallRules(has_calls=False),  # commands are numbered for each device, not on sessions
    columns="wirelake.protocols.apostol.columns",
    reassembly="wirelake.protocols.apostol.reassembly",
    device_codes=DeviceCodes(DEVICE_TYPE_NAMES, COMMAND_NAMES, REQUEST_BIT),
    readings=READING_NAMES,
    layout=FRAMES,
)
