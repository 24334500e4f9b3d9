"""One fuzz target for each codec: any bytes, in any pieces, give frames, "need more" or a ProtocolError.

    python fuzz/codec.py comet -max_total_time=60 fuzz/corpus/comet

The first input byte chooses who sent the bytes, the carrier, and where they are cut; the rest are the bytes.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wirelake"]):
    from wirelake.protocols import registry

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from wirelake.protocols import testing as laws
from wirelake.protocols.frame import Sender


def target_for(name: str):  # type: ignore[no-untyped-def]
    protocol = registry.get(name)
    carriers = list({transport.carrier: None for transport in protocol.transports})

    def target(data: bytes) -> None:
        if not data:
            return
        choice, stream = data[0], data[1:]
        sender = Sender.SERVER if choice & 1 else Sender.CLIENT
        carrier = carriers[(choice >> 1) % len(carriers)]
        laws.check_any_bytes(protocol, stream, sender, carrier)
        if carrier != "websocket":
            laws.check_split(protocol, stream, [choice, choice * 7], sender, carrier)

    return target


if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, target_for(name))
    atheris.Fuzz()
