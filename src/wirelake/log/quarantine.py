"""Where damaged bytes go: kept as they were, with a report beside them that says what they are."""

from pathlib import Path
from typing import Final

from msgspec import Struct, json, structs

from wirelake.log.files import Files

NAME: Final = "quarantine"


class Damage(Struct, frozen=True, kw_only=True):
    """Bytes that are no longer what was written, or were never written whole.

    `torn`: the end of a block that a crash cut short; nothing in it was confirmed, `rows` is 0.
    `damaged`: records that had been confirmed and are lost. `head`: the start of a segment; no record is lost.
    """

    kind: str
    segment: str
    offset: int
    bytes: int
    first_seq: int
    rows: int
    found_at_us: int = 0
    kept_as: str = ""  # file in the quarantine

    def __str__(self) -> str:
        place = f"{self.segment} at byte {self.offset}, {self.bytes} bytes"
        if self.kind == "damaged":
            return f"damaged: {place}: records {self.first_seq} to {self.first_seq + self.rows - 1} are lost"
        return f"{self.kind}: {place}: no confirmed record is lost"


def keep(folder: Path, damage: Damage, content: bytes, files: Files) -> Damage:
    """Bytes first, then the report: whatever has a report has its bytes."""
    quarantine = folder / NAME
    if not quarantine.exists():
        quarantine.mkdir()
        files.fsync_dir(folder)
    stem = f"{damage.segment.partition('.')[0]}-{damage.offset}-{damage.found_at_us}"
    files.replace_file(quarantine / f"{stem}.bin", content)
    kept = structs.replace(damage, kept_as=f"{stem}.bin")
    files.replace_file(quarantine / f"{stem}.json", json.encode(kept))
    return kept


def reports(folder: Path) -> list[Damage]:
    """All that was ever put there, oldest first."""
    found = [json.decode(path.read_bytes(), type=Damage) for path in (folder / NAME).glob("*.json")]
    return sorted(found, key=lambda damage: (damage.found_at_us, damage.segment, damage.offset))
