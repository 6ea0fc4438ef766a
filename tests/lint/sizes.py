"""A lint rule: files, classes, functions and folders of a size that a reader can hold. `python -m tests.lint.sizes [ROOT]`.

What is reported:

- a file of `src` with fewer than 40 lines that at most one other file uses, of the same room: fold it into that one. A handler
  is a file for each API, and `SMALL` has the reasons of others;
- a file with more than 600 lines, or a function with more than 60 (decorators aside; a command's options are its help);
- a class with more than 40 methods, properties among them: a part that owns some of its fields makes a class of its own.
  Overloads count once. `LARGE_CLASSES` has those that may have more, and why;
- a folder with more than 25 files of its own.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

SOURCES: Final = ("src", "tests", "tools", "examples", "benchmarks")
FILE_LINES_MIN: Final = 40
FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 60
FOLDER_FILES_MAX: Final = 25
CLASS_METHODS_MAX: Final = 40
LARGE_CLASSES: Final = {
    "src/odradek/client/admin/admin.py:Admin": "a method for each administrative call, written from `AsyncAdmin`",
    "src/odradek/client/admin/aio.py:AsyncAdmin": "a method for each administrative call",
    "src/odradek/net/connection.py:Connection": "asyncio's interface, the handlers' and the server's",
    "src/odradek/storage/directories/log_manager.py:LogManager": "a face: each part beside it owns its fields",
    "src/odradek/storage/log/log.py:Log": "a face: each part beside it owns its fields",
    "src/odradek/testing/sim/transport.py:SimTransport": "asyncio's interface, and the simulated network's",
}
"""Path and class -> why it may have more methods."""
SMALL: Final = {
    "src/odradek/spark/engine/warm_daemon.py": "a process of its own: it is started by its name",
    "src/odradek/console/all_pages.py": "a further page is a line here",
    "src/odradek/console/pages/preferences.py": "a page is a module",
    "src/odradek/cli/completion.py": "imported where a shell asks for it alone: `odradek` starts fast",
    "src/odradek/spark/clients/login.py": "programs import it, by `odradek.spark`",
    "src/odradek/client/consumer/sync_parts.py": "`tools/sync_faces.py` looks for this name",
    "src/odradek/client/share/sync_parts.py": "`tools/sync_faces.py` looks for this name",
}
"""Path -> why the file stays, though it is small and has one user."""


def findings(root: Path) -> Iterator[str]:
    """One line for each file, class, function or folder that breaks the rule."""
    folders: dict[Path, int] = defaultdict(int)
    texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in _files(root)}
    users: dict[str, set[Path]] = defaultdict(set)
    for where, text in texts.items():
        line_count = len(text.splitlines())
        if line_count > FILE_LINES_MAX:
            yield f"{where}: {line_count} lines, more than {FILE_LINES_MAX}: split it by subject"
        for node in ast.walk(parsed(text)):
            yield from _long_function(where, node)
            yield from _large_class(where, node)
            for module in _used_modules(node):
                users[module].add(where)
        if where.name not in ("__init__.py", "__main__.py"):
            folders[where.parent] += 1
    yield from _small_files(texts, users)
    for folder, count in sorted(folders.items()):
        if count > FOLDER_FILES_MAX:
            yield f"{folder}: {count} files, more than {FOLDER_FILES_MAX}: make folders by subject"


def _files(root: Path) -> list[Path]:
    return sorted(path for folder in SOURCES for path in (root / folder).rglob("*.py"))


def _long_function(where: Path, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        line_count = (node.end_lineno or node.lineno) - node.lineno + 1
        if line_count > FUNCTION_LINES_MAX:
            yield f"{where}:{node.lineno}: {node.name} has {line_count} lines, more than {FUNCTION_LINES_MAX}"


def _large_class(where: Path, node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        return
    count = len({part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)})
    class_text = f"{where}:{node.lineno}: {node.name} has {count} methods"
    is_named = f"{where.as_posix()}:{node.name}" in LARGE_CLASSES
    if count > CLASS_METHODS_MAX and not is_named:
        yield f"{class_text}, more than {CLASS_METHODS_MAX}: give a part of it a class of its own"
    elif count <= CLASS_METHODS_MAX and is_named:
        yield f"{class_text}: its line in {Path(__file__).name} can go"


def _small_files(texts: dict[Path, str], users: dict[str, set[Path]]) -> Iterator[str]:
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


def _used_modules(node: ast.AST) -> Iterator[str]:
    """Modules that a statement imports, also late: `lazy("odradek.a.b")`."""
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
