from msgspec.structs import replace

from wirelake.cli.support.reassembly import reassembly_rules
from wirelake.config import default_settings
from wirelake.protocols.apostol.reassembly import RULES, Rules
from wirelake.protocols.apostol.session import Settings


def test_the_tables_judge_by_the_settings() -> None:
    assert reassembly_rules(default_settings()) == {"apostol": RULES}
    chosen = Settings(
        assembly_s=1.5,
        command_bytes_max=2,
        inflated_bytes_max=3,
        assembling_per_device=4,
        require_seal=True,
        replay_window_s=5.0,
    )
    rules = Rules(1_500_000, 2, 3, 4, require_seal=True, replay_window_s=5.0)
    assert reassembly_rules(replace(default_settings(), apostol=chosen)) == {"apostol": rules}
