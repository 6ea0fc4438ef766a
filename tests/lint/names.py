"""A lint rule: one name, one meaning. `python -m tests.lint.names [ROOT]`.

What is reported:

- a class name that two modules of `src` define. Names that begin with `_` belong to their module, message classes to their API,
  and the two record engines are twins on purpose;
- a file name that says nothing: `utils.py`, `helpers.py`, `common.py`;
- a word of the old vocabulary as an identifier (`RETIRED` says which word took its place);
- a name with a word in it that no one should have to look up: `find_anew`, `was_told`;
- a function or method of `src` that begins with a verb of `OWN_VERBS`: it says what happens in the field's words;
- a variable (of an assignment, a loop, a comprehension) or a parameter whose name does not say what it holds: `EMPTY`, in
  src, tests and tools `EMPTY_IN_HOUSE`, and in the rooms of pipelines `EMPTY_IN_PIPELINES`. The rule leaves out the fields of
  a class: the class says what they belong to.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.kit.trees import parsed

SOURCES: Final = ("src", "tests", "tools", "examples", "benchmarks")
SAYS_NOTHING: Final = frozenset(
    {
        "base",
        "common",
        "general",
        "helper",
        "helpers",
        "misc",
        "objects",
        "shared",
        "stuff",
        "things",
        "util",
        "utils",
    }
)
EMPTY: Final = frozenset({"one", "found", "told", "each"})
EMPTY_IN_HOUSE: Final = EMPTY | {"answer", "item", "result"}
"""There are many of each: `response`, `future`, `partition` or `records` says which."""
HOUSE: Final = frozenset({"src", "tests", "tools"})
EMPTY_IN_PIPELINES: Final = frozenset({"given", "ground", "kept", "looks", "made", "place", "said", "wish"})
"""`place` was an index, a key, a URI, a directory, a task and a partition; the others were options, rows, plans and updates.
In the rooms of pipelines they are no part of a name either: `is_kept`, `self._place`."""
PIPELINES: Final = tuple(
    f"src/odradek/{room}/" for room in ("archive", "pipelines", "spark", "sql", "streams", "values", "views")
)
HARD_WORDS: Final = {
    "anew": "again, or what happens: starts_empty",
    "told": "sent, reported, heard; or what it is",
    "whoever": "the one that is meant",
}
"""As a part of a name: words between underscores."""
OWN_VERBS: Final = {
    "ask": "send, request, call, or what is requested: list_offsets",
    "asked": "requested, or what it returns",
    "asks": "requests, needs",
    "look": "refresh, check, poll, read",
    "looking": "what it returns",
    "take": "receive, apply, drain, acquire, record, add",
    "taken": "what it returns: committed_version",
    "takes": "accepts, has_room",
    "tell": "notify, report, log, send",
}
"""As the first word of a function."""
ALLOWED_VERBS: Final = {
    "look_up": "the field's word for a search by key",
    "take_offline": "Kafka's word for a log directory that failed",
}
ALLOWED_IN: Final = {
    "src/odradek/records/": "the writers' `take`: a name of the compiled engine",
    "src/odradek/streams/processors/columns.py": "`take`, as pyarrow has it: rows by their numbers",
}
RETIRED: Final = {
    "Circumstances": "RequestContext",
    "Parts": "BrokerContext",
    "Served": "ApiHandler",
    "Suspicion": "FailureDetector",
    "Standing": "ReplicaAvailability",
    "Silence": "HeartbeatMonitor or SessionMonitor",
    "Upkeep": "Maintenance",
    "Homes": "LogDirPlacement",
    "Verdict": "the action that is meant: FetchResultAction, ProduceErrorAction, ...",
    "Wish": "FetchPosition",
    "Conduct": "actions, or what they are",
    "conduct": "actions",
    "farewell": "shutdown",
    "knock": "probe",
    "patience_s": "api_timeout_s",
    "patiently": "until_timeout",
    "situation": "group_context",
    "standing": "availability",
    "surroundings": "dependencies",
    "upkeep": "maintenance",
    "whereabouts": "coordinator_of",
    "homes": "placement",
}

_RETIRED_WORD: Final = re.compile(rf"\b_*(?:{'|'.join(RETIRED)})\b")
_HARD_WORD: Final = re.compile("|".join(HARD_WORDS))


def findings(root: Path) -> Iterator[str]:
    """One line for each name that breaks the rule."""
    defined: dict[str, list[Path]] = defaultdict(list)
    for path in _files(root):
        text = path.read_text()
        tree = parsed(text)
        nodes = list(ast.walk(tree))
        where = path.relative_to(root)
        if path.stem in SAYS_NOTHING:
            yield f"{where}: a file name that says nothing: name what the file holds"
        yield from (f"{where}:{line}: {name} is retired: {RETIRED[name]}" for line, name in _retired(text))
        yield from (
            f"{where}:{line}: {word!r} in a name: write {HARD_WORDS[word]}" for line, word in _hard(text)
        )
        empty = EMPTY_IN_HOUSE if where.parts[0] in HOUSE else EMPTY
        if where.as_posix().startswith(PIPELINES):
            empty |= EMPTY_IN_PIPELINES
            yield from (
                f"{where}:{line}: {word!r} in the name {name}: say what it holds"
                for line, name, word in _parts_of_names(nodes)
            )
        yield from (
            f"{where}:{line}: a variable named {name}: say what it holds"
            for line, name in _empty(nodes, empty)
        )
        if where.parts[0] == "src" and not where.as_posix().startswith(tuple(ALLOWED_IN)):
            yield from (
                f"{where}:{line}: a function named {name}: write {OWN_VERBS[verb]}"
                for line, name, verb in _own_verbs(nodes)
            )
        if where.parts[0] == "src" and not _is_exempt(where):
            for name in _classes(tree):
                defined[name].append(where)
    for name, places in sorted(defined.items()):
        if len(places) > 1:
            yield f"class {name} is defined {len(places)} times: {', '.join(map(str, places))}"


def _files(root: Path) -> list[Path]:
    return sorted(
        path for folder in SOURCES for path in (root / folder).rglob("*.py") if path.name != "__init__.py"
    )


def _is_exempt(where: Path) -> bool:
    return "messages" in where.parts or where.name.startswith(("_fast", "_plain"))


def _classes(tree: ast.Module) -> Iterator[str]:
    return (
        node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def _retired(text: str) -> Iterator[tuple[int, str]]:
    if not _RETIRED_WORD.search(text):
        return  # a search is quick, and to read tokens is not
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = token.string.lstrip("_")
        if token.type == tokenize.NAME and name in RETIRED:
            yield token.start[0], name


def _hard(text: str) -> Iterator[tuple[int, str]]:
    if not _HARD_WORD.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string not in EMPTY:
            for word in HARD_WORDS.keys() & set(token.string.split("_")):
                yield token.start[0], word


def _own_verbs(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str, str]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name.lstrip("_")
            verb = name.split("_")[0]
            if verb in OWN_VERBS and not name.startswith(tuple(ALLOWED_VERBS)):
                yield node.lineno, node.name, verb


def _empty(nodes: Sequence[ast.AST], empty: frozenset[str]) -> Iterator[tuple[int, str]]:
    fields = _fields(nodes)
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                pass
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case _:
                continue
        if name in empty:
            yield node.lineno, name


def _parts_of_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Names of several words, one of which is in `EMPTY_IN_PIPELINES`: variables, parameters, functions and attributes."""
    fields = _fields(nodes)
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                pass
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case _:
                continue
        words = [word.removesuffix("s") if word == "places" else word for word in name.split("_")]
        if name not in EMPTY_IN_PIPELINES:
            yield from ((node.lineno, name, word) for word in words if word in EMPTY_IN_PIPELINES)


def _fields(nodes: Iterable[ast.AST]) -> set[ast.expr]:
    return {
        statement.target
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }


def main() -> int:
    lines = list(findings(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
