from wirelake.cli.rules import rules_of
from wirelake.config import Apostol, Settings
from wirelake.protocols.apostol.reassembly import RULES, Rules


def test_the_tables_judge_by_the_settings() -> None:
    assert rules_of(Settings()) == {"apostol": RULES}
    chosen = Apostol(
        assembly_s=1.5,
        command_bytes_max=2,
        inflated_bytes_max=3,
        assembling_per_device=4,
        require_seal=True,
        replay_window_s=5.0,
    )
    rules = Rules(1_500_000, 2, 3, 4, require_seal=True, replay_window_s=5.0)
    assert rules_of(Settings(apostol=chosen)) == {"apostol": rules}
