"""A lint rule: tests use what a class shows. `python -m tests.lint.private_access [ROOT]`.

An access is `thing._name`, or `patch.object(thing, "_name")` and the like, outside the file that defines the name. A test that
needs it shows where a class lacks a seam. The number may only fall: a change that needs fewer lowers it here. Planted bugs are
left out: they replace the inside of a class on purpose.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ACCESSES_MAX: Final = 37
_PLANTED: Final = ("mutants.py", "bank.py", "planted.py")
_NOT_OURS: Final = frozenset({"asyncio", "sys", "os", "ck", "confluent_kafka", "kafka"})
"""Modules whose private names are theirs."""
_PATCHING: Final = frozenset({"delattr", "getattr", "object", "setattr"})
_PUBLIC_BY_CUSTOM: Final = frozenset({"_asdict", "_fields", "_jvm", "_make", "_replace"})
_MAY_HAVE_ONE: Final = re.compile(r"""(?<!\bself)(?<!\bcls)\s*\._|["']_""")
"""Text without a match has no access: a search is quick, and to parse is not."""


def accesses(root: Path) -> Iterator[str]:
    """Yields the place and the text of each private access in the tests."""
    for path in sorted((root / "tests").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if where.startswith("tests/lint/") or where.endswith(_PLANTED):
            continue
        text = path.read_text(encoding="utf-8")
        if not _MAY_HAVE_ONE.search(text):
            continue
        tree = ast.parse(text)
        own = set(_defined(tree))
        for line, name, access in _private(tree):
            if name not in own:
                yield f"{where}:{line}: {access}"


def findings(root: Path) -> Iterator[str]:
    """Nothing, unless there are more accesses than there may be: then all of them."""
    lines = list(accesses(root))
    if len(lines) > ACCESSES_MAX:
        yield from lines
        yield f"tests have {len(lines)} private accesses, and may have {ACCESSES_MAX}: give the class a seam"


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that this file gives: functions, classes, variables and attributes of `self`."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


def _private(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if _is_private(name) and not _is_own(owner):
                yield node.lineno, name, ast.unparse(node)
            case ast.Call(func=function, args=[_, ast.Constant(value=str(name)), *_]) if (
                _is_private(name) and _last_name(function) in _PATCHING
            ):
                yield node.lineno, name, ast.unparse(node)[:80]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC_BY_CUSTOM


def _is_own(owner: ast.expr) -> bool:
    """`self`, a superclass, or a library."""
    match owner:
        case ast.Name(id=name):
            return name in _NOT_OURS or name in ("self", "cls")
        case ast.Call(func=ast.Name(id="super")):
            return True
        case ast.Attribute(value=value):
            return isinstance(value, ast.Name) and value.id in _NOT_OURS
    return False


def _last_name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def main() -> int:
    lines = list(findings(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
