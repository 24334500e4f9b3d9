"""Parse the code blocks of a page, and from their info strings how to run them.

```console              commands after `$ `, and what they print; `…` stands for anything
```console stopped      while no gateway runs
```console fails        the last command ends with an exit code that is not 0
```console eventually   asked again until it prints that
```console stays        it runs on, until the end of the page: then Ctrl-C
```console ctrl-c       Ctrl-C once it has printed that
```… no-run (why)       not run
```python PATH           a part of a file that a command of the page made
```toml PATH             the same, or a file that the page writes
```diff PATH             a change of such a file
"""

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_PATH: Final = re.compile(r"[\w./-]+\.[a-z]+")
_NO_RUN: Final = re.compile(r"no-run \((?P<why>.+)\)")


class Command(Struct, frozen=True):
    text: str
    shown: list[str]  # lines that it prints


class Block(Struct, frozen=True):
    page: Path
    line: int
    language: str
    info: str  # after the language
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def why_not_run(self) -> str:
        found = _NO_RUN.fullmatch(self.info)
        return found["why"] if found else ""

    @property
    def file(self) -> str:
        """Return the path of the file that the block is about; empty if it is about none."""
        return self.info if _PATH.fullmatch(self.info) else ""

    @property
    def manner(self) -> frozenset[str]:
        return frozenset() if self.why_not_run or self.file else frozenset(self.info.split())

    def commands(self) -> list[Command]:
        commands: list[Command] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line.removeprefix("$ "), []))
            elif commands and commands[-1].text.endswith("\\"):
                commands[-1] = Command(f"{commands[-1].text}\n{line}", [])
            elif commands:
                commands[-1].shown.append(line)
        return commands


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        language, _, info = match["info"].strip().partition(" ")
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, info, match["text"]))
    return found


def prose(page: Path) -> str:
    """Return the text of a page without its blocks and comments."""
    return _COMMENT.sub("", _BLOCK.sub("", page.read_text()))


def fits(shown: list[str], printed: list[str]) -> bool:
    """Return whether `printed` matches. A line `…` stands for any lines, `…` within one for any characters."""
    lines = [r"(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in shown]
    text = "".join(f"{line.rstrip()}\n" for line in printed)
    return re.fullmatch("".join(lines), text) is not None


def _line(shown: str) -> str:
    """Collapse spaces, because columns are as wide as their widest value."""
    parts = (r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in re.split("…", shown.rstrip()))
    return ".*".join(parts) + r"\n"
