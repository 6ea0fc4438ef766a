"""A lint rule: text becomes a number in one way. `python -m tests.lint.digits [PATH...]`.

Python's own functions read more than Java's: "1_000", digits of other scripts, blanks, `inf` and `nan`. What is reported:

- `\\d` in text: in a pattern it matches digits of all scripts, so write `[0-9]`;
- `isdigit`, `isdecimal` and `isnumeric`: use `is_digits` of `odradek.model.java_numbers`;
- `int(…)`, `float(…)` and `Decimal(…)` in a `try` that handles ValueError: use `whole_number`, `double_number` or
  `decimal_number`;
- `type=int`, `click.IntRange` and their like: use `Whole` and `Real` of `odradek.cli.numbers`.

Where it must be so, say why in a comment on the line: `# digits: bytes have ASCII only`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

SOURCES: Final = (Path("src"),)
_ALLOWED: Final = re.compile(r"#.*\bdigits: \w+")
_METHODS: Final = frozenset({"isdigit", "isdecimal", "isnumeric"})
_READERS: Final = {"int": "whole_number", "float": "double_number", "Decimal": "decimal_number"}
_OPTIONS: Final = frozenset({"option", "argument"})
_TYPES: Final = frozenset({"int", "float", "INT", "FLOAT", "IntRange", "FloatRange"})
_HANDLED: Final = frozenset({"ValueError", "InvalidOperation", "ArithmeticError"})
_MAY_HAVE_ONE: Final = re.compile("|".join([r"\\d", r"\btype\s*=", *sorted(_METHODS | _HANDLED)]))
"""Text without a match has no finding: a search is quick, and to parse is not."""


def check(source: str) -> list[tuple[int, str]]:
    """(line, text) of each finding in a module."""
    if not _MAY_HAVE_ONE.search(source):
        return []
    tree = parsed(source)
    lines = source.splitlines()
    findings = {*_patterns(tree), *_methods(tree), *_readers(tree), *_options(tree)}
    return [(line, text) for line, text in sorted(findings) if not _ALLOWED.search(lines[line - 1])]


def _patterns(tree: ast.AST) -> Iterator[tuple[int, str]]:
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documentation and "\\d" in node.value:  # type: ignore[attr-defined]
            yield node.lineno, "`\\d` matches digits of all scripts: write `[0-9]`"  # type: ignore[attr-defined]


def _methods(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            yield (
                node.lineno,
                f"{node.func.attr} counts digits of all scripts: use is_digits of model.java_numbers",
            )


def _readers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for attempt in ast.walk(tree):
        if not isinstance(attempt, ast.Try) or not any(map(_handles_text, attempt.handlers)):
            continue
        for statement in attempt.body:
            for node in ast.walk(statement):
                name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
                if name in _READERS and _is_of_text(node):
                    yield (
                        node.lineno,  # type: ignore[attr-defined]
                        f"{name}() reads more than Java does: use {_READERS[name]} of model.java_numbers",
                    )


def _options(tree: ast.AST) -> Iterator[tuple[int, str]]:
    message = "click's numbers read more than Java does: use Whole or Real of cli.numbers"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OPTIONS:
            for keyword in node.keywords:
                if keyword.arg == "type" and _is_number_type(keyword.value):
                    yield keyword.value.lineno, message


def _is_number_type(node: ast.AST) -> bool:
    kind = node.func if isinstance(node, ast.Call) else node
    name = kind.attr if isinstance(kind, ast.Attribute) else kind.id if isinstance(kind, ast.Name) else ""
    return name in _TYPES


def _is_of_text(call: ast.AST) -> bool:
    """Tells whether a call may read text: a number is none, and a group of a pattern that was checked has a default."""
    arguments = call.args if isinstance(call, ast.Call) else []
    return len(arguments) == 1 and not isinstance(arguments[0], ast.Constant | ast.BoolOp | ast.BinOp)


def _handles_text(handler: ast.ExceptHandler) -> bool:
    names = (
        {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    )
    return bool(names & _HANDLED)


def main(arguments: Sequence[str]) -> int:
    roots = [Path(argument) for argument in arguments] or list(SOURCES)
    paths = sorted(path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py")))
    count = 0
    for path in paths:
        for line, text in check(path.read_text()):
            sys.stderr.write(f"{path}:{line}: {text}\n")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
