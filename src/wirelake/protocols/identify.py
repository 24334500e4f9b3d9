"""Which of the protocols could these bytes be? Every protocol reads them, from both ends; the clues are added up."""

from msgspec import Struct

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol

FRAMES_LOOKED_AT_MAX = 64
INCOMPLETE_BITS = -4.0  # a capture may well stop inside a frame
UNREADABLE_BITS = -24.0  # bytes that break the protocol speak against it


class Guess(Struct, frozen=True):
    protocol: str
    sender: Sender
    carrier: Carrier
    bits: float  # the larger, the less likely to be chance
    frames: int
    reasons: tuple[str, ...]


def identify(data: bytes, protocols: tuple[Protocol, ...]) -> list[Guess]:
    """The likely readings, best first; none where nothing speaks for any."""
    guesses: dict[tuple[str, Sender], Guess] = {}
    for protocol in protocols:
        for carrier in {transport.carrier: None for transport in protocol.transports}:
            for sender in Sender:
                guess = _read(data, protocol, carrier, sender)
                best = guesses.get((protocol.name, sender))
                if guess.bits > 0 and (best is None or guess.bits > best.bits):
                    guesses[protocol.name, sender] = guess
    return sorted(guesses.values(), key=lambda guess: -guess.bits)


def _read(data: bytes, protocol: Protocol, carrier: Carrier, sender: Sender) -> Guess:
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)[:FRAMES_LOOKED_AT_MAX]
    whole = not splitter.rest and splitter.failure is None
    clues: list[Clue] = []
    read = 0
    failure = splitter.failure
    for frame in map(splitter.bare, frames):
        try:
            protocol.decode(frame, sender)
            clues.extend(protocol.clues(frame, sender))
        except ProtocolError as error:
            failure, whole = error, False
            break
        read += 1
    if failure is not None:
        clues.append(Clue(UNREADABLE_BITS, f"but: {failure.text}"))
    elif not whole:
        clues.append(Clue(INCOMPLETE_BITS, "but the last frame is not whole"))
    bits = sum(clue.bits for clue in clues) if read else 0.0
    reasons = tuple(dict.fromkeys(clue.text for clue in clues))
    return Guess(protocol.name, sender, carrier, bits, read, reasons)
