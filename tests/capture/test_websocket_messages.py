"""Messages of captured WebSocket connections, made with the library that the gateway uses."""

import pytest
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from wirelake.capture.websocket_messages import WebSocketMessages
from wirelake.errors import ProtocolError
from wirelake.limits import CAPTURE_HANDSHAKE_BYTES_MAX
from wirelake.protocols.frame import Sender

MESSAGES = [b"one", b"", bytes(70_000), b"two" * 50]


def conversation(*, compressed: bool = False, forgetful: bool = False) -> tuple[bytes, bytes]:
    """Return what a client and a server send: a handshake, the messages, a ping, and the end."""
    client_factory = ClientPerMessageDeflateFactory(server_no_context_takeover=forgetful)
    server_factory = ServerPerMessageDeflateFactory(client_no_context_takeover=forgetful)
    client = ClientProtocol(parse_uri("ws://here/"), extensions=[client_factory] if compressed else None)
    server = ServerProtocol(extensions=[server_factory] if compressed else None)
    sent: dict[Sender, list[bytes]] = {Sender.CLIENT: [], Sender.SERVER: []}

    def exchange() -> None:
        for sender, one, other in ((Sender.CLIENT, client, server), (Sender.SERVER, server, client)):
            for data in one.data_to_send():
                sent[sender].append(data)
                other.receive_data(data)

    client.send_request(client.connect())
    exchange()
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    exchange()
    for end in (client, server):
        for message in MESSAGES:
            end.send_binary(message)
        end.send_ping(b"there?")
        end.send_text(b"in ", fin=False)
        end.send_continuation(b"parts", fin=True)
        end.send_close(1000)
    exchange()
    return b"".join(sent[Sender.CLIENT]), b"".join(sent[Sender.SERVER])


@pytest.mark.parametrize(("compressed", "forgetful"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_the_messages_of_both_ends(compressed: bool, forgetful: bool, size: int) -> None:
    sent = conversation(compressed=compressed, forgetful=forgetful)
    for sender, stream in zip(Sender, sent, strict=True):
        reader = WebSocketMessages(sender)
        found = [each for at in range(0, len(stream), size) for each in reader.receive(stream[at : at + size])]
        assert found == [*MESSAGES, b"in parts"]
        assert reader.position == len(stream)
        assert reader.rest == b""


def test_a_client_that_does_not_mask_its_frames_is_read() -> None:
    reader = WebSocketMessages(Sender.CLIENT)
    frame = Frame(Opcode.BINARY, b"plain").serialize(mask=False)
    assert reader.receive(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n" + frame) == [b"plain"]


@pytest.mark.parametrize(
    ("sender", "data", "text"),
    [
        (Sender.CLIENT, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "no WebSocket"),
        (Sender.SERVER, b"HTTP/1.1 403 Forbidden\r\n\r\n", "the server answered 'HTTP/1.1 403 Forbidden'"),
        (Sender.SERVER, b"HTTP/1.1 101 OK\r\n\r\n\x82\x7f" + b"\xff" * 8, "a WebSocket frame of"),
        (Sender.SERVER, b"HTTP/1.1 101 OK\r\n\r\n\xc2\x04\xff\xff\xff\xff", "a compressed WebSocket message"),
        (Sender.CLIENT, b"x" * (CAPTURE_HANDSHAKE_BYTES_MAX + 1), "without an end"),
    ],
)
def test_what_is_no_websocket_is_refused(sender: Sender, data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        WebSocketMessages(sender).receive(data)
