"""What commands of devices are judged by in the tables: the settings that the gateway judges them by."""

from typing import TYPE_CHECKING

from wirelake.config import Settings
from wirelake.protocols import registry

if TYPE_CHECKING:
    from wirelake.pipeline.memory.assembly import Rules


def rules_of(settings: Settings) -> "Rules":
    from wirelake.pipeline.memory.assembly import Rules  # noqa: PLC0415 (an extra)

    apostol = settings.section(registry.get("apostol"))
    return Rules(
        timeout_us=int(apostol.assembly_s * 1_000_000),
        command_bytes_max=apostol.command_bytes_max,
        inflated_bytes_max=apostol.inflated_bytes_max,
        assembling_max=apostol.assembling_per_device,
        require_seal=apostol.require_seal,
        replay_window_s=apostol.replay_window_s,
    )
