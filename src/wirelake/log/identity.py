"""Which data folder a log belongs to: the id that the state and the pipeline's checkpoint carry too."""

from pathlib import Path
from typing import Final

from wirelake.errors import StorageError
from wirelake.log.files import Files

NAME: Final = "id"
_CHARS_MAX: Final = 64


def read_id(folder: Path) -> str:
    """Empty for a log that has none yet: it is new, or was written before there were ids."""
    path = folder / NAME
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if not text.isalnum() or len(text) > _CHARS_MAX:
        raise StorageError(f"{path} does not hold the id of a data folder; remove the file to have it written anew")
    return text


def write_id(folder: Path, data_id: str) -> None:
    """Durable when this returns."""
    try:
        Files().replace_file(folder / NAME, f"{data_id}\n".encode())
    except OSError as error:
        raise StorageError(f"{folder / NAME} cannot be written: {error}") from error
