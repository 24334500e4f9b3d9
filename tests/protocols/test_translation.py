"""What cannot cross is stated as examples; here they are held to."""

import pytest

from wirelake.errors import TranslationError
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.translation import Loss

LOSSES = [(protocol, loss) for protocol in registry.all_protocols() for loss in protocol.losses]


@pytest.mark.parametrize(
    ("protocol", "loss"), LOSSES, ids=[f"{protocol.name}: {loss.what}" for protocol, loss in LOSSES]
)
def test_a_stated_loss_is_what_happens(protocol: Protocol, loss: Loss) -> None:
    if loss.becomes is None:
        with pytest.raises(TranslationError):
            protocol.from_message(loss.example, loss.sender)
        return
    wire = protocol.from_message(loss.example, loss.sender).encode()
    assert protocol.to_message(protocol.decode(wire, loss.sender), loss.sender) == loss.becomes
    assert loss.becomes != loss.example
