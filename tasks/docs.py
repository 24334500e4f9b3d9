"""Writes the generated parts of docs/ anew, between `<!-- generated: … -->` and `<!-- end -->`. Run by `./dev docs`.

State diagrams come from the tables that drive the sessions, and the tables of what does not cross from the examples
that the tests run, so the docs cannot drift from the code; a test checks that they are up to date.
"""

import re
import sys
from pathlib import Path

from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.session import Session

DOCS = Path(__file__).resolve().parent.parent / "docs" / "protocols"
PART = re.compile(r"(<!-- generated: (?P<what>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(protocol: Protocol, page: str) -> str:
    """The page with its generated parts as they should be."""
    parts = {
        "server": lambda: _states(protocol.server_session),
        "client": lambda: _states(protocol.client_session),
        "losses": lambda: _losses(protocol),
    }
    return PART.sub(lambda found: found[1] + parts[found["what"]]() + found[3], page)


def crossing(page: str) -> str:
    """One table of everything that some protocol cannot carry. What was observed on the page is the matrix test's."""
    lines = ["| into | said by | what | then |", "| --- | --- | --- | --- |"]
    for protocol in map(registry.get, registry.BUILT_IN):
        lines += [f"| {protocol.name} | {loss.sender} | {loss.what} | {loss.then} |" for loss in protocol.losses]
    return PART.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[3], page)


def pages() -> dict[Path, str]:
    """Every generated page as it should be."""
    path = DOCS / "crossing.md"
    wanted = {path: crossing(path.read_text())}
    for protocol in map(registry.get, registry.BUILT_IN):
        path = DOCS / f"{protocol.name}.md"
        wanted[path] = generated(protocol, path.read_text())
    return wanted


def _states(session: type[Session] | None) -> str:
    if session is None:
        return ""
    return f"```mermaid\n{session.table.mermaid()}\n```\n\n{session.table.markdown()}\n"


def _losses(protocol: Protocol) -> str:
    lines = ["| said by | what | then |", "| --- | --- | --- |"]
    lines += [f"| {loss.sender} | {loss.what} | {loss.then} |" for loss in protocol.losses]
    return "\n".join(lines) + "\n"


def main() -> int:
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
