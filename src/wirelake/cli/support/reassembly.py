"""Read from the settings how commands of devices are assembled."""

from typing import Any

from wirelake.config import Settings


def reassembly_rules(settings: Settings) -> dict[str, Any]:
    """Return the reassembly rules of each protocol that assembles commands from packets, by its name."""
    from wirelake.pipeline.stateful.reduce import reassemblies  # noqa: PLC0415 (an extra)

    return {
        protocol.name: reassembly.rules_from(getattr(settings, protocol.name))
        for protocol, reassembly in reassemblies().values()
        if protocol.name in settings.__struct_fields__
    }
