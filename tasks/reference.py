"""Write the tables of docs/protocols/reference.md from the classes, docstrings and comments of the code."""

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from remarks import comments_of

from wirelake import layout, message
from wirelake.layout import body_codec, envelope, fields, forms, frame, frame_set, sized
from wirelake.message import Kind, Op
from wirelake.protocols import context, protocol, session, state_machine, testing


def members(module: ModuleType, name: str) -> str:
    """Return the docstring of a class, its fields, and its public methods and properties."""
    kind = getattr(module, name)
    source = _ModuleSource(module)
    node = source.classes[name]
    parts = [_docs(kind)]
    found = [each for each in node.body if isinstance(each, ast.AnnAssign) and _is_public(each.target)]
    if found:
        rows = [(_code(ast.unparse(each.target)), _code(_type(each)), source.comment(each)) for each in found]
        parts.append(_table(("field", "type", ""), rows))
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    if functions:
        rows = [(_code(_signature(each)), _result(each), _first(ast.get_docstring(each))) for each in functions]
        parts.append(_table(("method", "returns", ""), rows))
    return "\n\n".join(filter(None, parts)) + "\n"


def values(module: ModuleType, name: str) -> str:
    """Return the members of an enumeration, with the comments on them."""
    source = _ModuleSource(module)
    kind: type[Enum] = getattr(module, name)
    rows = []
    for node in source.classes[name].body:
        if isinstance(node, ast.Assign):
            member = kind[ast.unparse(node.targets[0])]
            rows.append((_code(member.name), _code(str(member.value)), source.comment(node)))
    return _table(("member", "value", ""), rows) + "\n"


def events() -> str:
    """Return the events of a state machine: of frames, of the gateway's own side, and of the clock."""
    source = _ModuleSource(message)
    comments = {
        ast.unparse(each.targets[0]): source.comment(each)
        for name in ("Kind", "Op")
        for each in source.classes[name].body
        if isinstance(each, ast.Assign)
    }
    rows = [
        ("the name of a frame", "the frame", "the peer sent it"),
        (_code(state_machine.ANY_FRAME), "the frame", "the peer sent a frame without a transition of its own"),
    ]
    rows += [(_code(f"app {kind}"), "`Message`", comments[kind.name]) for kind in Kind if kind is not Kind.TELEMETRY]
    rows.append((" ".join(_code(f"app {op}") for op in Op), "`Message`", "a CONTROL message with this operation"))
    rows += [
        (_code("app fail"), "`ProtocolError`", f"`fail`: {_first(session.Session.fail.__doc__)}"),
        (_code("app close"), "`Closing`", f"`close`: {_first(session.Session.close.__doc__)}"),
        (_code(f"clock {session.SILENCE}"), "`str`", "the peer sent nothing for `idle_s`"),
        (_code("clock …"), "`str`", "a deadline of this name in `deadlines` has passed"),
    ]
    return _table(("event", "argument of the method", ""), rows) + "\n"


def field_types() -> str:
    """Return the types of fields that authors write, with the type that a type checker sees."""
    rows: dict[tuple[str, str], list[str]] = {}
    sources = {module: _ModuleSource(module) for module in (fields, sized)}
    for module, node in ((module, node) for module, source in sources.items() for node in source.tree.body):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(
                    value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[seen, ast.Call(func=ast.Name(id=kind))])
                ),
            ):
                docs = sources[module].comment(node) or _first(getattr(module, kind).__doc__)
                python = ast.unparse(seen).replace("T", "…")
                rows.setdefault((python, docs.partition(". ")[0].removesuffix(".")), []).append(_code(name))
    found = [(" ".join(names), _code(python), docs) for (python, docs), names in rows.items()]
    found.append(("`optional[…]`", _code("… | None"), "At the end of a body: None if the body ends before it"))
    return _table(("type", "in Python", ""), found) + "\n"


def functions(module: ModuleType, is_wanted: Callable[[ast.FunctionDef], bool] = lambda _node: True) -> str:
    """Return the signatures and docstrings of public functions."""
    nodes = [each for each in _ModuleSource(module).tree.body if isinstance(each, ast.FunctionDef) and _is_public(each)]
    rows = [(_code(_signature(each)), _first(ast.get_docstring(each))) for each in nodes if is_wanted(each)]
    return _table(("", ""), rows) + "\n"


def marks() -> str:
    """Return the marks of fields: the constants, then the functions."""
    source = _ModuleSource(fields)
    plain = [
        (_code(ast.unparse(node.target)), source.comment(node))
        for node in source.tree.body
        if isinstance(node, ast.AnnAssign) and node.value is not None and ast.unparse(node.value).startswith("_Mark.")
    ]
    found = [line for module in (fields, sized, forms) for line in functions(module, _is_mark).splitlines()[2:]]
    return _table(("mark", ""), plain) + "\n" + "\n".join(found) + "\n"


def others() -> str:
    """Return the other names of the layout: functions and classes that are no types, marks or bases."""
    rows = []
    for name in layout.__all__:
        found = getattr(layout, name)
        home = getattr(found, "__module__", "")
        if home.startswith(layout.__name__) and home not in _MARKS and name not in _SHOWN:
            parameters = ", ".join(inspect.signature(found).parameters) if not isinstance(found, type) else ""
            values = ", ".join(getattr(found, "__struct_fields__", ())) or parameters
            rows.append((_code(f"{name}({values})"), _first(found.__doc__)))
    return _table(("", ""), rows) + "\n"


_MARKS = tuple(module.__name__ for module in (fields, envelope, sized, forms))
_SHOWN = ("LayoutFrame", "FrameSet", "BodyCodec", "source")


def _is_mark(node: ast.FunctionDef) -> bool:
    return (ast.get_docstring(node) or "").startswith("Mark")


PARTS: dict[str, Callable[[], str]] = {
    "protocol": lambda: members(protocol, "Protocol"),
    "transport": lambda: members(protocol, "Transport"),
    "context": lambda: members(context, "SessionContext"),
    "session": lambda: members(session, "Session"),
    "step": lambda: members(session, "Step") + "\n" + members(session, "Closing"),
    "events": events,
    "state_machine": lambda: members(state_machine, "StateMachine"),
    "transition": lambda: members(state_machine, "Transition") + "\n" + functions(state_machine),
    "message": lambda: members(message, "Message"),
    "kinds": lambda: values(message, "Kind"),
    "targets": lambda: "\n".join(f"`{name}`: {members(message, name)}" for name in ("Topic", "Operation", "Device")),
    "ops": lambda: values(message, "Op"),
    "failures": lambda: members(message, "Failure") + "\n" + values(message, "FailureCode"),
    "credentials": lambda: members(message, "Credentials"),
    "field_types": field_types,
    "marks": marks,
    "envelope": lambda: f"{_docs(envelope.Envelope)}\n\n" + functions(envelope, _is_mark),
    "checksum": lambda: members(fields, "Checksum"),
    "custom": lambda: members(fields, "Custom"),
    "sized_number": lambda: members(sized, "SizedNumber"),
    "content": lambda: members(forms, "Content") + "\n" + members(forms, "Bits"),
    "size_encoding": lambda: members(fields, "SizeEncoding"),
    "body_codec": lambda: members(body_codec, "BodyCodec"),
    "frame": lambda: f"{_docs(frame.LayoutFrame)}\n",
    "frame_set": lambda: members(frame_set, "FrameSet"),
    "others": others,
    "testing": lambda: functions(testing),
}


class _ModuleSource:
    def __init__(self, module: ModuleType) -> None:
        text = Path(inspect.getfile(module)).read_text()
        self.tree = ast.parse(text)
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self._comments = comments_of(text)
        self._lines = text.splitlines()

    def comment(self, node: ast.stmt) -> str:
        """Return the comment on the lines of a statement, or else the ones right above it."""
        end = node.end_lineno or node.lineno
        found = [self._comments[line] for line in range(node.lineno, end + 1) if line in self._comments]
        line = node.lineno - 1
        while not found and self._lines[line - 1].lstrip().startswith("#"):
            line -= 1
        above = [self._comments.get(each, "") for each in range(line + 1, node.lineno)] if not found else []
        return _escape(" ".join(found or above))


def _type(node: ast.AnnAssign) -> str:
    text = re.sub(r"ClassVar\[(.*)\]", r"\1", ast.unparse(node.annotation)).replace("'", "")
    default = "" if node.value is None else ast.unparse(node.value)
    return text if not default or "field(" in default or "lambda" in default else f"{text} = {default}"


def _signature(node: ast.FunctionDef) -> str:
    if any(ast.unparse(each) in ("property", "cached_property") for each in node.decorator_list):
        return node.name
    given = [each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg != "self"]
    given += [f"*{node.args.vararg.arg}"] if node.args.vararg is not None else []
    named = [each.arg for each in node.args.kwonlyargs]
    named = named if node.args.vararg is not None or not named else ["*", *named]
    rest = [f"**{node.args.kwarg.arg}"] if node.args.kwarg is not None else []
    return f"{node.name}({', '.join([*given, *named, *rest])})"


def _result(node: ast.FunctionDef) -> str:
    return _code(ast.unparse(node.returns).replace("'", "")) if node.returns is not None else ""


def _docs(kind: Any) -> str:
    return re.sub(r"\n(?!\n)(?<!\n\n)", " ", inspect.cleandoc(kind.__doc__ or ""))


def _first(docs: str | None) -> str:
    """Return the first paragraph of a docstring."""
    return _escape(" ".join(inspect.cleandoc(docs or "").partition("\n\n")[0].split()))


def _code(text: str) -> str:
    return f"`{_escape(text)}`"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _is_public(node: Any) -> bool:
    name = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node)
    return not name.startswith("_")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def reference(page: str, part: "re.Pattern[str]") -> str:
    """Return the page with its tables up to date."""
    return part.sub(lambda found: f"{found[1]}{PARTS[found['what']]()}{found[3]}", page)
