"""A lint rule: no import inside a function. `python -m tests.lint.late_imports [PATH...]`.

What start-up does not need is imported through `odradek.model.lazy`: type checkers and the other lints see it, and it is
written once for each module. What is reported:

- `import` and `from ... import` inside a function;
- `import_module` and `__import__`, outside the loader;
- `lazy("package.module")` without the same import under `if TYPE_CHECKING`: `make check` would not see where it leads.

Where it must be so, say why in a comment on the line, or in the line above:

    from odradek.spark.source import OdradekDataSource  # late-import: a failure is an answer to Spark
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
LOADER: Final = Path("src/odradek/model/lazy.py")
_ALLOWED: Final = re.compile(r"#.*\blate-import: \w+")
_BY_NAME: Final = frozenset({"import_module", "__import__"})


def check(source: str) -> list[tuple[int, str]]:
    """(line, text) of each finding in a module."""
    tree = parsed(source)
    lines = source.splitlines()
    results = [*_inside_functions(tree), *_by_name(tree), *_lazy_without_types(tree)]
    return [(line, text) for line, text in sorted(set(results)) if not _is_allowed(lines, line)]


def _is_allowed(lines: Sequence[str], line: int) -> bool:
    above = lines[line - 2].strip() if line >= 2 else ""
    return bool(_ALLOWED.search(lines[line - 1])) or (above.startswith("#") and bool(_ALLOWED.search(above)))


def _inside_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno, f"`{ast.unparse(node)}` inside a function: use odradek.model.lazy"


def _by_name(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in _BY_NAME:
                yield node.lineno, f"{name}() outside the loader: use odradek.model.lazy"


def _lazy_without_types(tree: ast.Module) -> Iterator[tuple[int, str]]:
    typed = {
        (
            alias.asname or alias.name,
            f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name,
        )
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="lazy"), args=[ast.Constant(value=module)]),
            ) if (name, module) not in typed:
                yield (
                    node.lineno,
                    f"{name} = lazy({module!r}) without the same import under `if TYPE_CHECKING`",
                )


def main(paths: Sequence[str]) -> int:
    files = sorted(
        file
        for path in map(Path, paths or SOURCES)
        for file in ([path] if path.is_file() else path.rglob("*.py"))
        if file != LOADER
    )
    count = 0
    for file in files:
        for line, text in check(file.read_text(encoding="utf-8")):
            count += 1
            sys.stderr.write(f"{file}:{line}: {text}\n")
    if count:
        sys.stderr.write(f"{count} late imports; see the docstring of tests/lint/late_imports.py\n")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
