"""A lint rule: each name that is defined is used somewhere. `python -m tests.lint.unused`.

A function, method, class or constant of `src` is unused if its name stands nowhere but inside its own definition: not in the
product, its templates, tests, benchmarks, examples, tools or docs. Names are compared as words, so the rule reports nothing
that is used, and misses what shares its name with something else. Left out are methods that a base class or decorator calls.

Where a name is for others, say who calls it in a comment on the line: `# unused: PEP 249 asks for it`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

SOURCES: Final = Path("src")
READERS: Final = ("src", "tests", "benchmarks", "examples", "tools", "deploy", "docs")
FILES: Final = ("README.md", "setup.py", "pyproject.toml", "Makefile")
_SUFFIXES: Final = frozenset({".py", ".pxd", ".md", ".html", ".js", ".java", ".toml", ".sh", ".yaml", ".yml"})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALLOWED: Final = re.compile(r"#.*\bunused: \w+")
_PLAIN: Final = frozenset({"property", "cached_property", "staticmethod", "classmethod"})

Definition = tuple[str, ast.stmt]


def check(source: str, mentioned: Counter[str]) -> list[tuple[int, str]]:
    """(line, name) of each unused definition in a module. `mentioned` counts words, with those of the module itself."""
    lines = source.splitlines()
    findings = []
    for name, node in _definitions(parsed(source).body):
        own = Counter(_WORD.findall("\n".join(lines[node.lineno - 1 : node.end_lineno])))
        is_unused = mentioned[name] <= own[name] and not name.startswith("__")
        if is_unused and not _ALLOWED.search(lines[node.lineno - 1]):
            findings.append((node.lineno, name))
    return findings


def _definitions(statements: Iterable[ast.stmt], *, of_class: bool = False) -> Iterator[Definition]:
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_called_by_name(statement.decorator_list):
                yield statement.name, statement
            case ast.ClassDef() if not of_class:
                yield statement.name, statement
                if not statement.bases:
                    yield from _definitions(statement.body, of_class=True)
            case ast.Assign(targets=[ast.Name(id=name)]) if not of_class:
                yield name, statement
            case ast.AnnAssign(target=ast.Name(id=name)) if not of_class:
                yield name, statement


def _is_called_by_name(decorators: Iterable[ast.expr]) -> bool:
    return all(isinstance(decorator, ast.Name) and decorator.id in _PLAIN for decorator in decorators)


def words_of(paths: Iterable[Path]) -> Counter[str]:
    words: Counter[str] = Counter()
    for path in paths:
        words.update(_WORD.findall(path.read_text(encoding="utf-8")))
    return words


def main() -> int:
    read = [path for folder in READERS for path in Path(folder).rglob("*") if path.suffix in _SUFFIXES]
    mentioned = words_of([*read, *map(Path, FILES)])
    count = 0
    for path in sorted(SOURCES.rglob("*.py")):
        for line, name in check(path.read_text(encoding="utf-8"), mentioned):
            sys.stderr.write(f"{path}:{line}: nothing uses {name}: remove it\n")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
