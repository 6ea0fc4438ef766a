"""A lint rule: files, functions and folders of a size that a reader can hold. `python -m tests.lint.sizes [ROOT]`.

What is reported:

- a file of `src` with fewer than 40 lines that at most one other file uses, of the same room: fold it into that one. A handler
  is a file for each API, and `SMALL` has the reasons of others;
- a file with more than 600 lines, or a function with more than 60 (decorators aside; a command's options are its help);
- a folder with more than 25 files of its own.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCES: Final = ("src", "tests", "tools", "examples", "benchmarks")
FILE_LINES_MIN: Final = 40
FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 60
FOLDER_FILES_MAX: Final = 25
SMALL: Final = {
    "src/odradek/spark/warm_daemon.py": "a process of its own: it is started by its name",
    "src/odradek/cli/completion.py": "imported where a shell asks for it alone: `odradek` starts fast",
    "src/odradek/spark/login.py": "programs import it, by `odradek.spark`",
    "src/odradek/client/consumer/sync_parts.py": "`tools/sync_faces.py` looks for this name",
}
"""Path -> why the file stays, though it is small and has one user."""


def findings(root: Path) -> Iterator[str]:
    """One line for each file, function or folder that breaks the rule."""
    folders: dict[Path, int] = defaultdict(int)
    texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in _files(root)}
    for where, text in texts.items():
        line_count = len(text.splitlines())
        if line_count > FILE_LINES_MAX:
            yield f"{where}: {line_count} lines, more than {FILE_LINES_MAX}: split it by subject"
        yield from (f"{where}:{finding}" for finding in _long_functions(text))
        if where.name not in ("__init__.py", "__main__.py"):
            folders[where.parent] += 1
    yield from _small_files(texts)
    for folder, count in sorted(folders.items()):
        if count > FOLDER_FILES_MAX:
            yield f"{folder}: {count} files, more than {FOLDER_FILES_MAX}: make folders by subject"


def _files(root: Path) -> list[Path]:
    return sorted(path for folder in SOURCES for path in (root / folder).rglob("*.py"))


def _long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line_count = (node.end_lineno or node.lineno) - node.lineno + 1
            if line_count > FUNCTION_LINES_MAX:
                yield f"{node.lineno}: {node.name} has {line_count} lines, more than {FUNCTION_LINES_MAX}"


def _small_files(texts: dict[Path, str]) -> Iterator[str]:
    users: dict[str, set[Path]] = defaultdict(set)
    for where, text in texts.items():
        for module in _used_modules(text):
            users[module].add(where)
    for where, text in texts.items():
        line_count = len(text.splitlines())
        if line_count >= FILE_LINES_MIN or not _may_be_folded(where):
            continue
        module = ".".join(where.with_suffix("").parts[1:])
        others = users[module] - {where}
        if len(others) < 2 and all(_room(user) == _room(where) for user in others):
            yield f"{where}: {line_count} lines and one user: fold it into that file, or give a reason in {Path(__file__).name}"


def _may_be_folded(where: Path) -> bool:
    if where.parts[0] != "src" or where.name.startswith("__") or where.as_posix() in SMALL:
        return False
    return not {"messages", "handlers"} & set(where.parts)


def _room(where: Path) -> tuple[str, ...]:
    return where.parts[:3]


def _used_modules(text: str) -> Iterator[str]:
    """Modules that a file imports, also late: `lazy("odradek.a.b")`."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.Call(func=ast.Name(id="lazy"), args=[ast.Constant(value=str(module))]):
                yield module


def main() -> int:
    lines = list(findings(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
