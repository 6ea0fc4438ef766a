"""A lint rule: no exception is stored to be raised later. `python -m tests.lint.stored_errors [PATH...]`.

An exception holds its traceback. Each time it is raised again the traceback grows by an entry, and the entry keeps a frame
with all that the frame names. Store what the exception says: `odradek.model.errors.ErrorValue`, or a code and a text.

What is reported:

- an attribute whose annotation names an exception: `self.failure: KafkaError | None`, a field of a dataclass,
  `dict[str, tuple[UUID, KafkaError]]`;
- `self.failure = error`, where `error` is what an `except` caught, or an argument that is annotated as an exception;
- `raise self.failure` and `raise other.failure`;
- one exception for many futures: `waiting.set_exception(error)` in a loop that does not make `error`;
- an error of ours that was caught and is returned, or put into a container, with its traceback: `return error`,
  `refused[name] = error`, `outcomes.append(error)`. The traceback has the frame that has the container: a cycle. Write
  `error.as_outcome()`.

Properties are not reported: they make a new exception each time, and their setters take apart what they are given. Neither are
attributes of exceptions, which end with their owner; nor `type[KafkaError]`, `ErrorValue[KafkaError]`, futures and callables.

Where an exception must be stored, say why in a comment on the line, or in the line above:

    self.failure = error  # stored-error: raised once, by `join`
"""

from __future__ import annotations

import ast
import builtins
import gc
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.trees import parsed

SOURCES = (Path("src/odradek"),)
_BUILT_IN = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_ROOT = "OdradekError"
_HOLDS_NO_INSTANCE = frozenset(
    {"Literal", "type", "Callable", "Future", "ErrorValue", "Awaitable", "Coroutine"}
)
_ALLOWED = re.compile(r"#.*\bstored-error: \w+")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def check(sources: Sequence[tuple[str, str]]) -> list[Finding]:
    """Findings in (path, source) pairs, which are read together: classes of one may be exceptions of another."""
    trees = [(path, source, parsed(source)) for path, source in sources]
    exceptions = _exceptions(_BUILT_IN, (tree for _, _, tree in trees))
    ours = _exceptions(frozenset({_ROOT}), (tree for _, _, tree in trees))
    properties = _properties(tree for _, _, tree in trees)
    findings: list[Finding] = []
    for path, source, tree in trees:
        lines = source.splitlines()
        visitor = _Visitor(exceptions, ours, properties)
        visitor.visit(tree)
        findings += [
            Finding(path=path, line=line, text=text)
            for line, text in sorted(visitor.found)
            if not _is_allowed(lines, line)
        ]
    return findings


def _is_allowed(lines: Sequence[str], line: int) -> bool:
    above = lines[line - 2].strip() if line >= 2 else ""
    return bool(_ALLOWED.search(lines[line - 1])) or (above.startswith("#") and bool(_ALLOWED.search(above)))


def _exceptions(roots: frozenset[str], trees: Iterable[ast.AST]) -> frozenset[str]:
    """The names of exceptions: `roots`, and classes that inherit from them."""
    bases = {
        node.name: {_last_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    names = set(roots)
    while new := {name for name, parents in bases.items() if name not in names and parents & names}:
        names |= new
    return frozenset(names)


def _properties(trees: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, _Function) and any(_last_name(expr) == "property" for expr in node.decorator_list)
    )


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _last_name(value)
    return ""


class _Visitor(ast.NodeVisitor):
    """Walks one module; `found` are lines and what is wrong there."""

    def __init__(self, exceptions: frozenset[str], ours: frozenset[str], properties: frozenset[str]) -> None:
        self._exceptions = exceptions
        self._ours = ours
        """Those with `as_outcome`."""
        self._properties = properties
        self._classes: list[bool] = []
        """Of the classes around: whether it is an exception."""
        self._caught: list[set[str]] = [set()]
        """By function: the names of exceptions, from `except` and from the arguments."""
        self.found: list[tuple[int, str]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        is_exception = node.name in self._exceptions
        self._classes.append(is_exception)
        if not is_exception:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign):
                    self._check_annotation(statement, ast.unparse(statement.target))
        self.generic_visit(node)
        self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: _Function) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = {
            argument.arg
            for argument in arguments
            if argument.annotation and self._is_exception(argument.annotation)
        }
        self._caught.append(names)
        self.generic_visit(node)
        self._caught.pop()

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._caught[-1].add(node.name)
            if node.type is not None and self._is_ours(node.type):
                self._check_outcomes(node, node.name)
        self.generic_visit(node)

    def _is_ours(self, caught: ast.expr) -> bool:
        kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        return all(_last_name(kind) in self._ours for kind in kinds)

    def _check_outcomes(self, handler: ast.ExceptHandler, error: str) -> None:
        for node in ast.walk(handler):
            match node:
                case (
                    ast.Return(value=ast.expr() as value) | ast.Assign(targets=[ast.Subscript()], value=value)
                ):
                    pass
                case ast.Call(func=ast.Attribute(attr="append" | "update" | "setdefault"), args=[*_, value]):
                    pass
                case _:
                    continue
            if _is_passed_on(value, error):
                self._report(node, f"{error!r} goes on with its traceback: {error}.as_outcome()")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Attribute) and not self._in_exception:
            self._check_annotation(node, ast.unparse(node.target))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        stored = [target for target in node.targets if isinstance(target, ast.Attribute | ast.Subscript)]
        containers = [(target, _container(target)) for target in stored]
        attributes = [
            target
            for target, container in containers
            if isinstance(container, ast.Attribute)
            and not (target is container and container.attr in self._properties)
        ]
        if attributes and not self._in_exception and self._holds_caught(node.value):
            self._report(node, f"{ast.unparse(attributes[0])} stores an exception")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        match node.exc:
            case ast.Attribute(attr=name) if name.strip("_")[:1].islower() and name not in self._properties:
                self._report(node, f"{ast.unparse(node.exc)} is an exception that was stored")
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._visit_loop(node)

    def visit_While(self, node: ast.While) -> None:
        self._visit_loop(node)

    def _visit_loop(self, loop: ast.For | ast.While) -> None:
        made = set(_bound_names(loop))
        for node in ast.walk(loop):
            match node:
                case ast.Call(func=ast.Attribute(attr="set_exception"), args=[ast.Name(id=name)]) if (
                    name not in made
                ):
                    self._report(node, f"all futures of the loop share the exception {name!r}")
                case ast.Call(func=ast.Attribute(attr="set_exception"), args=[ast.Attribute() as shared]):
                    if ast.unparse(shared).split(".")[0] not in made:
                        self._report(node, f"all futures of the loop share {ast.unparse(shared)}")
        self.generic_visit(loop)

    @property
    def _in_exception(self) -> bool:
        return bool(self._classes) and self._classes[-1]

    def _check_annotation(self, node: ast.AnnAssign, name: str) -> None:
        if self._is_exception(node.annotation):
            self._report(node, f"{name} stores an exception: {ast.unparse(node.annotation)}")

    def _is_exception(self, annotation: ast.expr) -> bool:
        match annotation:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self._exceptions
            case ast.Constant(value=str() as text):
                return self._is_exception(ast.parse(text, mode="eval").body)
            case ast.Subscript(value=holder, slice=content):
                is_value = _last_name(holder) in ("Literal", *_HOLDS_NO_INSTANCE)
                return not is_value and self._is_exception(content)
            case ast.BinOp(left=left, right=right):
                return self._is_exception(left) or self._is_exception(right)
            case ast.Tuple(elts=elements):
                return any(self._is_exception(element) for element in elements)
        return False

    def _holds_caught(self, value: ast.expr) -> bool:
        match value:
            case ast.Name(id=name):
                return name in self._caught[-1]
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return any(self._holds_caught(element) for element in elements)
            case ast.BoolOp(values=values):
                return any(self._holds_caught(expr) for expr in values)
            case ast.IfExp(body=body, orelse=orelse):
                return self._holds_caught(body) or self._holds_caught(orelse)
        return False

    def _report(self, node: ast.stmt | ast.expr, text: str) -> None:
        if (node.lineno, text) not in self.found:
            self.found.append((node.lineno, text))


def _is_passed_on(value: ast.expr, error: str) -> bool:
    """Whether the value is the error, or holds it: not what is made of it."""
    match value:
        case ast.Name(id=name):
            return name == error
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return any(_is_passed_on(element, error) for element in elements)
        case ast.BinOp(left=left, right=right):
            return _is_passed_on(left, error) or _is_passed_on(right, error)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_passed_on(body, error) or _is_passed_on(orelse, error)
        case ast.ListComp(elt=element) | ast.DictComp(value=element):
            return _is_passed_on(element, error)
    return False


def _container(target: ast.expr) -> ast.expr:
    """What an assignment changes: of `self.errors[name]` it is `self.errors`."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _bound_names(loop: ast.For | ast.While) -> Iterator[str]:
    """Names that are bound inside of a loop, or by it."""
    for node in ast.walk(loop):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str() as name):
                yield name


def main(paths: Sequence[str]) -> int:
    files = sorted(
        file
        for path in map(Path, paths or SOURCES)
        for file in ([path] if path.is_file() else path.rglob("*.py"))
    )
    gc.disable()  # a million nodes stay until the end: the collector would walk through them again and again
    findings = check([(str(file), file.read_text(encoding="utf-8")) for file in files])
    for finding in findings:
        sys.stderr.write(f"{finding}\n")
    if findings:
        sys.stderr.write(
            f"{len(findings)} stored exceptions; see the docstring of tests/lint/stored_errors.py\n"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
