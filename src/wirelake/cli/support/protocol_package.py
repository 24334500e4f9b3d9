"""Create the package of a new protocol from the templates that are installed with Wirelake."""

import keyword
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from wirelake.errors import ConflictError, InputError
from wirelake.protocols import registry
from wirelake.protocols.settings import SECTIONS

NAME_CHARS_MAX: Final = 32
PORT: Final = 7990  # of a new protocol, unless the author changes it
_NAME: Final = re.compile("[a-z][a-z0-9_]*")
# Path in the templates → path in the package.
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "package/__init__.py": "wirelake_{{name}}/__init__.py",
    "package/frames.py": "wirelake_{{name}}/frames.py",
    "package/translation.py": "wirelake_{{name}}/translation.py",
    "package/session.py": "wirelake_{{name}}/session.py",
    "package/protocol.py": "wirelake_{{name}}/protocol.py",
    "package/device.py": "wirelake_{{name}}/device.py",
    "tests/test_protocol.py": "tests/test_{{name}}.py",
    "tests/captures.hex": "tests/{{name}}.hex",
}


def check_name(name: str) -> None:
    """Raise InputError, or ConflictError, if a protocol cannot have this name."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InputError(
            f"'{name}' cannot be the name of a protocol: it has small letters, digits and underscores, and starts with "
            "a letter"
        )
    if len(name) > NAME_CHARS_MAX:
        raise InputError(f"'{name}' has {len(name)} characters: the name of a protocol has at most {NAME_CHARS_MAX}")
    if name in SECTIONS:
        raise ConflictError(f"'{name}' cannot be the name of a protocol: wirelake.toml has a section [{name}]")
    taken = {alias: each.name for each in registry.all_protocols() for alias in (*each.aliases, *each.listeners)}
    if name in registry.names() or name in taken:
        raise ConflictError(f"'{name}' is taken by the protocol {taken.get(name, name)}: choose another name")


def create_package(name: str, parent: Path) -> list[Path]:
    """Create the folder `name` in `parent`, and return its files. Raise ConflictError if it exists."""
    check_name(name)
    folder = parent / name
    values = {"name": name, "dashed": name.replace("_", "-"), "upper": name.upper(), "port": str(PORT)}
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise ConflictError(f"{folder} exists already: nothing was written") from error
    except NotADirectoryError as error:
        raise InputError(f"{parent} is not a folder") from error
    templates = files("wirelake.cli") / "templates" / "protocol"
    written = []
    for source, target in _FILES.items():
        path = folder / _filled(target, values)
        path.parent.mkdir(exist_ok=True)
        path.write_text(_filled((templates / f"{source}.template").read_text(), values))
        written.append(path)
    return written


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
