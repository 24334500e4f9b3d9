"""The text between the blocks: commands within a sentence, links, names of metrics."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pytest
from cli.serving import clean_environment

from manual.blocks import PAGES, ROOT, prose
from wirelake.cli.main import wirelake
from wirelake.gateway.http.routes import metrics

# Those of ./dev alone.
TASKS: Final = {"test", "check", "bench", "chaos", "versions", "docs", "lock", "delta", "--help", "COMMAND"}
SPOKEN: Final = re.compile(r"`(?:wirelake|\./dev) ([^`]+)`")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
METRIC: Final = re.compile(r"\bwirelake_[a-z_]+[a-z]")
PACKAGES: Final = {"wirelake_tracker"}  # of the tutorial
ENDINGS: Final = ("_total", "_bucket", "_sum", "_count")
GUARANTEES_MIN: Final = 20  # so that the search finds them


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command with which the words begin, and the remaining words."""
    command: click.Command = wirelake
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command)
        inner = command.get_command(context, words[0])
        assert inner is not None, f"no command {words[0]}"
        command, words = inner, words[1:]
    return command, words


def options(command: click.Command) -> set[str]:
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return names | {"--help", "-h", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_a_sentence_exist(page: Path) -> None:
    for spoken in SPOKEN.findall(prose(page)):
        words = shlex.split(spoken.replace("…", ""))
        if not words or words[0] in TASKS or words[0].isupper():
            continue
        command, rest = resolved(words)
        unknown = {word.partition("=")[0] for word in rest if word.startswith("--")} - options(command)
        assert not unknown, f"{spoken}: {unknown}"


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_test_of_each_guarantee_exists() -> None:
    """A row of a table names a test file; `test_…` is a test in that file, or in that of the row before: "the same"."""
    text = (ROOT / "docs" / "security.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("|") and re.search(r"`tests/|the same, `test_", row)]
    files: list[str] = []
    for row in rows:
        files = re.findall(r"`(tests/[^`]*)`", row) or files
        sources = [(ROOT / file).read_text() for file in files]
        for name in re.findall(r"`(test_\w+)`", row):
            assert any(f"def {name}(" in source for source in sources), f"{name} is not in {files}"
    assert len(rows) >= GUARANTEES_MIN


def test_metrics_that_are_named_exist() -> None:
    known = set(METRIC.findall(Path(metrics.__file__).read_text()))
    for page in PAGES:
        for name in METRIC.findall(page.read_text()):
            bare = next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)
            assert bare in known | PACKAGES, f"{page.name}: {name}"


def commands(command: click.Command = wirelake, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Return every command by the words that call it."""
    found = {path: command} if path else {}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= commands(inner, (*path, name))
    return found


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_the_help_of_a_command_has_an_example_that_could_be_typed(path: tuple[str, ...]) -> None:
    command = commands()[path]
    shown = [line.strip() for line in (command.epilog or "").splitlines() if "wirelake " in line]
    assert any(f"wirelake {' '.join(path)}" in line for line in shown), f"no example of {' '.join(path)}"
    for line in shown:
        words = shlex.split(line.partition("wirelake ")[2].partition(" > ")[0].partition(" < ")[0])
        called, rest = resolved(words)
        unknown = {word.partition("=")[0] for word in rest if word.startswith("--")} - options(called)
        assert not unknown, line


def test_the_shell_completes(tmp_path: Path) -> None:
    """Complete commands as the quick start says, and as bash then requests at every tab."""
    program = Path(sys.executable).with_name("wirelake")

    def ask(**variables: str) -> str:
        environment = clean_environment(**variables)
        done = subprocess.run([program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stdout

    for shell in ("bash", "zsh", "fish"):
        assert "_WIRELAKE_COMPLETE" in ask(_WIRELAKE_COMPLETE=f"{shell}_source"), shell
    typed = {"_WIRELAKE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert "plain,status" in ask(**typed, COMP_WORDS="wirelake pipeline st").split()
