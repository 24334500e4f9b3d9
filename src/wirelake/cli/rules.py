"""Derive the pipeline's reassembly rules from the gateway's settings."""

from typing import Any

from wirelake.config import Settings


def rules_of(settings: Settings) -> dict[str, Any]:
    """Return the rules of each protocol that assembles commands from packets, by its name."""
    from wirelake.pipeline.stateful.reduce import reassemblies  # noqa: PLC0415 (an extra)

    return {
        protocol.name: reassembly.rules_from(getattr(settings, protocol.name))
        for protocol, reassembly in reassemblies().values()
        if protocol.name in settings.__struct_fields__
    }
