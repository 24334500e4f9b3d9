"""Read the comments on settings and columns, from the lines where a source defines them."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

Remarks = dict[tuple[str, str], str]  # (class or table, key or column) → the comment; (table, "") → what a row is


def remarks_on_fields(source: Path) -> Remarks:
    """Return the comments on every field of every class."""
    text = source.read_text()
    comments = comments_of(text)
    return {
        (thing.name, field.target.id): remark
        for thing in ast.walk(ast.parse(text))
        if isinstance(thing, ast.ClassDef)
        for field in thing.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        for remark in _between(comments, field)
    }


def remarks_on_columns(source: Path) -> Remarks:
    """Return the comments on every `_table(NAME, (COLUMN, TYPE), …)`; `seq` has that on `*_PLACE`."""
    text = source.read_text()
    comments = comments_of(text)
    remarks: Remarks = {}
    for call in ast.walk(ast.parse(text)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_table"):
            continue
        table = ast.literal_eval(call.args[0])
        for part in call.args:
            column = ""
            if isinstance(part, ast.Tuple):
                column = ast.literal_eval(part.elts[0])
            elif isinstance(part, ast.Starred):
                column = "seq"
            for remark in _between(comments, part):
                remarks[table, column] = remark
    return remarks


def comments_of(text: str) -> dict[int, str]:
    """Return the comments of a source by line, without those for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {line: comment for line, comment in comments.items() if not comment.startswith(("noqa", "type:"))}


def _between(comments: dict[int, str], node: ast.expr | ast.stmt) -> Iterator[str]:
    for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if line in comments:
            yield comments[line]
