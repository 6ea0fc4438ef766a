"""A lint rule: a docstring says what something is or does. `python -m tests.lint.prose.fragments [ROOT]`.

"Of each partition." or "As the query knows." is a part of a sentence: only those understand it who know the code, and no
search finds it. A docstring begins with a noun ("The end offset of each partition.") or with a verb ("Returns the end offset
of each partition."). One that begins with a preposition or a conjunction goes on with a verb: "With a keytab, tickets are in
memory."

The docstring of a class, and that of a function, does not begin with a parameter ("`keys`: those of the moment."), nor with a
note on its use ("Used on the event loop only.", "Idempotent.", "See the module."): its first line is what an editor and a
search show.

The number of either may only fall: a change that leaves fewer lowers it here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

FRAGMENTS_MAX: Final = 0
UNNAMED_MAX: Final = 8
"""Docstrings of classes and functions that begin with a parameter or a note."""
_NOTES: Final = frozenset(
    {"Exactly", "Frozen", "Idempotent", "Immutable", "Made", "Payload", "Shared", "Used"}
)
"""A docstring that begins with these does not name what it is of."""
_NEVER: Final = frozenset({"Than", "Those", "Whose"})
"""No sentence of ours begins with these."""
_CLAUSE: Final = frozenset({"As", "If", "Unless", "Until", "When", "Where", "While"})
"""A clause that begins with these needs another one, after a comma."""
_OPENING: Final = frozenset(
    {
        "Above",
        "Among",
        "As",
        "At",
        "Because",
        "Below",
        "Beside",
        "Between",
        "But",
        "By",
        "For",
        "From",
        "If",
        "In",
        "Like",
        "Of",
        "On",
    }
    | {"Or", "Since", "To", "Under", "Unless", "Until", "When", "Where", "While", "With", "Within", "Without"}
)
_VERB: Final = re.compile(
    r"\b(is|are|was|were|has|have|does|do|can|may|must|will|would|cannot|goes|gets|gives|keeps|makes|takes|begins|ends|waits|counts"
    r"|comes|holds|reads|writes|sends|stays|needs|fails|knows|asks|returns|raises|raise|lets|leaves|runs|stops|starts|costs)\b"
)


class _Fault(Enum):
    """The kinds of faults of a docstring."""

    FRAGMENT = auto()
    UNNAMED = auto()


def fragments(root: Path) -> Iterator[str]:
    """Yields where each fragment is, and how it begins."""
    return (line for kind, line in _faults(root) if kind is _Fault.FRAGMENT)


def unnamed(root: Path) -> Iterator[str]:
    """Yields where the docstring of a class or function begins with a parameter, or with a note on its use."""
    return (line for kind, line in _faults(root) if kind is _Fault.UNNAMED)


def _faults(root: Path) -> Iterator[tuple[_Fault, str]]:
    """Yields both kinds of faults: each file is parsed once."""
    for path in sorted((root / "src").rglob("*.py")):
        name, tree = path.relative_to(root).as_posix(), parsed(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        for line, text in _docstrings(nodes):
            if is_fragment(text):
                yield _Fault.FRAGMENT, f"{name}:{line}: {text.strip().splitlines()[0]}"
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _is_unnamed(node):
                yield _Fault.UNNAMED, f"{name}:{node.lineno}: {node.name}"


def _is_unnamed(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    text = (ast.get_docstring(node, clean=False) or "").lstrip()
    if node.name == "__init__" or not text:  # that of a class says what it makes; its own, what it takes
        return False
    opening = re.match(r"`|[A-Za-z]+", text)
    if opening is None:
        return False
    return (
        opening[0] == "`" or opening[0] in _NOTES or (isinstance(node, ast.ClassDef) and opening[0] == "See")
    )


def is_fragment(text: str) -> bool:
    """Tells whether the first sentence lacks a verb."""
    sentence = re.split(r"(?<=[.:;])\s", " ".join(text.split()), maxsplit=1)[0]
    opening = re.match(r"[A-Za-z]+", sentence)
    if opening is None:
        return False
    if opening[0] in _NEVER:
        return True
    if opening[0] in _CLAUSE and "," not in sentence:
        return True
    return opening[0] in _OPENING and _VERB.search(sentence) is None


def findings(root: Path) -> Iterator[str]:
    """Yields nothing unless there are more faults of a kind than there may be: then all of that kind."""
    faults = list(_faults(root))
    for kind, most, advice in (
        (_Fault.FRAGMENT, FRAGMENTS_MAX, "are fragments: say what it is, or what it does"),
        (
            _Fault.UNNAMED,
            UNNAMED_MAX,
            "begin with a parameter or a note: begin with what the class is, or what the function does",
        ),
    ):
        lines = [line for fault, line in faults if fault is kind]
        if len(lines) > most:
            yield from lines
            yield f"{len(lines)} docstrings, and {most} may, {advice}"


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields docstrings of modules, classes and functions, and those below an assignment."""
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        is_owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for number, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if (is_owner and number == 0) or (
                    number and isinstance(body[number - 1], ast.Assign | ast.AnnAssign)
                ):
                    yield statement.lineno, text


def main() -> int:
    lines = list(findings(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
