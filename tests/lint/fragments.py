"""A lint rule: a docstring says what something is or does. `python -m tests.lint.fragments [ROOT]`.

"Of each partition." or "As the query knows." is a part of a sentence: only those understand it who know the code, and no
search finds it. A docstring begins with a noun ("The end offset of each partition.") or with a verb ("Returns the end offset
of each partition."). One that begins with a preposition or a conjunction goes on with a verb: "With a keytab, tickets are in
memory."

The number of fragments may only fall: a change that leaves fewer lowers it here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FRAGMENTS_MAX: Final = 0
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


def fragments(root: Path) -> Iterator[str]:
    """Yields where each is, and how it begins."""
    for path in sorted((root / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, text in _docstrings(tree):
            if is_fragment(text):
                yield f"{path.relative_to(root).as_posix()}:{line}: {text.strip().splitlines()[0]}"


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
    """Yields nothing unless there are more fragments than there may be: then all of them."""
    lines = list(fragments(root))
    if len(lines) > FRAGMENTS_MAX:
        yield from lines
        yield f"{len(lines)} docstrings are fragments, and {FRAGMENTS_MAX} may be: say what it is, or what it does"


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields docstrings of modules, classes and functions, and those below an assignment."""
    for node in ast.walk(tree):
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
