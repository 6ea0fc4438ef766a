"""No module imports itself through others, and no folder one beside it: `python -m tests.lint.import_cycles` lists the cycles.
Files that are directly in a folder count as one more folder beside its subfolders: they are above all of them, or below.

Every import counts: those of type checkers alone, and those inside functions, which hide a cycle from Python but not from
a reader. The cure is to move what both sides need below both, or a `Protocol` that the lower side declares.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

SOURCES: Final = Path(__file__).resolve().parents[2] / "src"
CURE: Final = "move what both sides need below them, or declare a Protocol"
FILES: Final = "*"
"""Stands for the files that are directly in a folder."""


def modules_under(root: Path) -> dict[str, Path]:
    """Each module below a folder by its dotted name, packages under the package's name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_names(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names that a module imports, each `from` import once per name: the name may be a module of its own."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def import_graph(root: Path) -> dict[str, list[str]]:
    """Which modules below a folder each of them names in its imports."""
    modules = modules_under(root)
    graph: dict[str, list[str]] = {}
    for module, path in modules.items():
        tree = parsed(path.read_text(encoding="utf-8"))
        targets = set()
        for name in imported_names(tree, module, path.name == "__init__.py"):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                targets.add(target)
        graph[module] = sorted(targets)
    return graph


def cycles(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches all the others (Tarjan's strongly connected components), sorted."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    components: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in graph[module]:
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in path:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            start = path.index(module)
            component = path[start:]
            del path[start:]
            if len(component) > 1:
                components.append(sorted(component))

    for module in graph:
        if module not in order:
            visit(module)
    return sorted(components)


Ties = dict[tuple[str, str], list[tuple[str, str]]]
"""Arrows from one folder to another, with the imports of each."""


def folder_ties(graph: Mapping[str, Sequence[str]]) -> dict[str, Ties]:
    """Arrows that tie subfolders of one folder in a cycle, by folder. `graph`: modules under their packages' names."""
    packages = {module[:end] for module in graph for end, sign in enumerate(module) if sign == "."}
    crossings: dict[str, Ties] = {}
    for source, targets in graph.items():
        for target in targets:
            crossing = _crossing(source, target, packages)
            if crossing is not None:
                folder, left, right = crossing
                crossings.setdefault(folder, {}).setdefault((left, right), []).append((source, target))
    ties: dict[str, Ties] = {}
    for folder, arrows in crossings.items():
        names = {name for arrow in arrows for name in arrow}
        folders = {name: sorted(right for left, right in arrows if left == name) for name in names}
        for component in cycles(folders):
            tied = {arrow: imports for arrow, imports in arrows.items() if {*arrow} <= {*component}}
            ties.setdefault(folder, {}).update(tied)
    return ties


def _crossing(source: str, target: str, packages: AbstractSet[str]) -> tuple[str, str, str] | None:
    """The folder that both are in, and the subfolders of it that the import goes from and to; `FILES` for files in it."""
    ours, theirs = ([*name.split("."), *([FILES] if name in packages else [])] for name in (source, target))
    shared = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
    folder = ".".join(ours[:shared])
    if not shared:  # they have no folder in common
        return None
    left, right = (
        name if f"{folder}.{name}" in packages else FILES for name in (ours[shared], theirs[shared])
    )
    return None if left == right else (folder, f"{folder}.{left}", f"{folder}.{right}")


def lines_about(ties: Mapping[str, Ties]) -> list[str]:
    """Returns a line for each folder with such arrows, and below it one for each arrow, those of the fewest imports first."""
    lines = []
    for folder, arrows in sorted(ties.items()):
        lines.append(f"{folder}: {len(arrows)} arrows tie subfolders in cycles: {CURE}")
        for (left, right), imports in sorted(arrows.items(), key=lambda arrow: len(arrow[1])):
            source, target = imports[0]
            lines.append(f"  {left} -> {right}: {len(imports)} imports, such as {source} -> {target}")
    return lines


def main() -> int:
    """Print each cycle with the imports that tie it."""
    graph = import_graph(SOURCES)
    refused = cycles(graph)
    for component in refused:
        members = set(component)
        ties = [
            f"  {source} -> {target}" for source in component for target in graph[source] if target in members
        ]
        heading = f"import cycle of {len(component)} modules: {CURE}"
        sys.stdout.write("\n".join([heading, *ties, ""]))
    lines = lines_about(folder_ties(graph))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if refused or lines else 0


if __name__ == "__main__":
    sys.exit(main())
