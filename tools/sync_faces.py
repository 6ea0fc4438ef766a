"""Write the synchronous faces of the Python client from the asynchronous ones: one source for signatures, words and steps.

    python -m tools.sync_faces           # write them
    python -m tools.sync_faces --check   # exit 1 when what is there differs

How an asynchronous class is translated:

- A call of its own (`await self.x()`) or of what waits for its face (`await self._waiting.x()`) loses its `await`. Any other
  awaited call runs on the client's thread: `self._loop.call(...)`. `await self.start()` goes: the thread runs from the start.
- A line `# sync: CODE` becomes CODE; a line that ends in `# async` goes, and a method whose signature ends so.
- What is written by hand stands in a class `…SyncParts` in `sync_parts.py` beside it: its methods replace those of the same
  name (and take over their docstrings), or come on top; what stands around the class comes along.
- In a proxy (the admin client) every method is a call of the asynchronous client on the thread.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOMS: Final = Path(__file__).parent.parent / "src" / "odradek"
CLIENT: Final = ROOMS / "client"
RETRY: Final = ROOMS / "retry"
VIEWS: Final = ROOMS / "views"
_WORDS: Final = (
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\basync def\b", "def"),
    (r"\bAsync(Producer|ShareConsumer|Consumer|Admin|Iterator|RetryConsumer|TableView)\b", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bLoopWaiting\b", "ThreadWaiting"),
    (r"\bTaskUse\b", "ThreadUse"),
    (r"\b(by_one_task|on_own_loop)\b", "by_one_thread"),
    (r"\bown_loop import OwnLoop\b", "loop_thread import LoopThread"),
    (r"\bOwnLoop\b", "LoopThread"),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"  # noqa: ASYNC109[^\n]*", ""),
)
Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """A synchronous class, and where it comes from."""

    source: Path
    target: Path
    title: str
    parts: Path | None = None
    is_proxy: bool = False
    waits: tuple[str, ...] = ("self._waiting",)
    """What waits by itself: its calls lose their `await`."""
    words: tuple[tuple[str, str], ...] = ()


FACES: Final = (
    Face(
        source=CLIENT / "consumer" / "aio.py",
        target=CLIENT / "consumer" / "consumer.py",
        parts=CLIENT / "consumer" / "sync_parts.py",
        title="The synchronous consumer: a background thread fetches; decoding happens on the caller's thread.",
        words=(
            ("Reads partitions from one event loop.", "Reads partitions, for one thread at a time."),
            (
                " Use it from one task at a time: a second one that reads gets ConcurrentUseError.",
                " A second thread gets ConcurrentUseError, except in `close` and in questions to brokers.",
            ),
            ("on the event loop.", "on the client's own thread."),
        ),
    ),
    Face(
        source=CLIENT / "share" / "aio.py",
        target=CLIENT / "share" / "share_consumer.py",
        parts=CLIENT / "share" / "sync_parts.py",
        title="The synchronous share consumer: a background thread sends requests; decoding happens on the caller's thread.",
        words=(
            ("Reads topics as queues from one event loop (KIP-932).", "Reads topics as queues (KIP-932)."),
            (
                "Use it from one task at a time: a second one that polls gets\n    ConcurrentUseError.",
                "Use it from one thread at a time: a second one that polls gets\n    ConcurrentUseError.",
            ),
            ("From any task.", "From any thread."),
        ),
    ),
    Face(
        source=CLIENT / "producer" / "aio.py",
        target=CLIENT / "producer" / "producer.py",
        parts=CLIENT / "producer" / "sync_parts.py",
        title="The synchronous producer: it sends on a thread of its own.",
    ),
    Face(
        source=CLIENT / "admin" / "aio.py",
        target=CLIENT / "admin" / "admin.py",
        parts=CLIENT / "admin" / "sync_parts.py",
        title="The synchronous admin client: the asynchronous one on a thread of its own.",
        is_proxy=True,
    ),
    Face(
        source=RETRY / "aio.py",
        target=RETRY / "consumer.py",
        title="The synchronous consumer that tries again.",
        waits=("self._consumer", "self._producer", "self._admin"),
        words=(
            ("from odradek.client.aio import", "from odradek.client import"),
            ("Awaitable[Iterable[Output] | None]", "Iterable[Output] | None"),
        ),
    ),
    Face(
        source=VIEWS / "aio.py",
        target=VIEWS / "table_view.py",
        parts=VIEWS / "sync_parts.py",
        title="The synchronous view of a table: it follows the topic on a thread of its own.",
        waits=("self._reads",),
        words=(("OffloadedReads", "BlockingReads"),),
    ),
)


class Source:
    """A module, its only public class, and the text of each method."""

    def __init__(self, path: Path) -> None:
        self.text: Final = path.read_text(encoding="utf-8")
        self._lines = self.text.splitlines(keepends=True)
        tree = ast.parse(self.text)
        self.cls: Final = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        methods = [node for node in self.cls.body if isinstance(node, Method)]
        self.methods: Final = {node.name: node for node in methods}
        """Of a method with overloads, this is the last one: the one that does something."""
        self._overloads = [node for node in methods if self.methods[node.name] is not node]
        body = [node for node in tree.body if not _is_docstring(node) and not _is_future(node)]
        at = body.index(self.cls)
        self.imports: Final = [
            self._of(node) for node in body[:at] if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        self.before: Final = [
            self._of(node) for node in body[:at] if not isinstance(node, ast.Import | ast.ImportFrom)
        ]
        self.after: Final = [self._of(node) for node in body[at + 1 :]]

    def _of(self, node: ast.stmt) -> str:
        return "".join(self._lines[_first_line(node) - 1 : node.end_lineno])

    def text_of(self, method: Method) -> str:
        """Returns a method's text with the directives after its last statement, however deep they are nested."""
        text, number = self._of(method), method.end_lineno or 0
        while number < len(self._lines) and self._lines[number].lstrip().startswith("# sync: "):
            text += self._lines[number]
            number += 1
        return text

    def overloads_of(self, method: Method) -> str:
        """The signatures that type checkers see, if a method has several."""
        return "".join(self._of(node) for node in self._overloads if node.name == method.name)

    def is_async_only(self, method: Method) -> bool:
        return self._lines[method.body[0].lineno - 2].rstrip().endswith("# async")

    def heading_before(self, method: Method) -> str:
        """The comment that begins a section of the class, if one stands there."""
        line = self._lines[_first_line(method) - 3] if _first_line(method) > 2 else ""
        return line + "\n" if line.startswith("    # -- ") else ""

    def docstring_of(self, node: Method | ast.ClassDef) -> str:
        first = node.body[0]
        return self._of(first) if _is_docstring(first) else ""


def face_text(face: Face) -> str:
    """The synchronous module, not formatted yet."""
    source = Source(face.source)
    parts = Source(face.parts) if face.parts is not None else None
    name = source.cls.name.removeprefix("Async")
    docstring = (parts and parts.docstring_of(parts.cls)) or _plain(source.docstring_of(source.cls), face)
    bases = ", ".join(ast.unparse(base) for base in source.cls.bases)
    decorators = "".join(f"@{ast.unparse(decorator)}\n" for decorator in source.cls.decorator_list)
    written = [f"{decorators}class {name}{f'({bases})' if bases else ''}:\n{docstring}"]
    by_hand = dict(parts.methods) if parts is not None else {}
    for method_name, method in source.methods.items():
        target_name = re.sub(r"^__a(enter|exit|iter)__$", r"__\1__", method_name)
        heading = source.heading_before(method) + _plain(source.overloads_of(method), face)
        mine = by_hand.pop(target_name, None)
        if mine is not None and parts is not None:
            written.append(heading + _with_docstring(parts, mine, _plain(source.docstring_of(method), face)))
        elif (
            method_name == "start"
            or (face.is_proxy and method_name.startswith("_"))
            or source.is_async_only(method)
        ):
            continue
        elif face.is_proxy and isinstance(method, ast.AsyncFunctionDef):
            written.append(heading + _plain(_proxied(source, method), face))
        else:
            written.append(heading + _plain(_unwaited(source, method, face), face))
    if parts is not None:
        written += [parts.text_of(method) for method in by_hand.values()]
    top = "" if face.is_proxy else _plain("\n".join(source.before), face)
    imports = _plain("".join(source.imports), face)
    after = [] if face.is_proxy else [_plain(text, face) for text in source.after]
    if parts is not None:
        imports += "".join(parts.imports)
        top += "\n".join(parts.before)
        after += parts.after
    head = (
        f'"""{face.title}\n\nWritten by `make faces` from `{face.source.name}`: change that one.\n"""\n\n'
        "from __future__ import annotations\n\n"
    )
    body = "\n".join(written) + "\n\n" + "\n\n".join(after)
    return head + imports + "\n" + top + "\n\n" + re.sub(r"\b\w+SyncParts\b", name, body)


def _unwaited(source: Source, method: Method, face: Face) -> str:
    """A method without its `await`s."""
    text = source.text_of(method)
    first = _first_line(method)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()
    edits: list[tuple[int, int, bytes]] = []
    for node in ast.walk(method):
        if not isinstance(node, ast.Await) or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin = starts[node.lineno - first] + node.col_offset
        end = starts[node.end_lineno - first] + node.end_col_offset
        value = starts[node.value.lineno - first] + node.value.col_offset
        if _waits_by_itself(node.value, source.methods, face.waits):
            edits.append((begin, value, b""))
        else:
            edits += [(begin, value, b"self._loop.call("), (end, end, b")")]
    for begin, end, new in sorted(edits, reverse=True):
        raw = raw[:begin] + new + raw[end:]
    return "".join(filter(None, map(_directed, raw.decode().splitlines(keepends=True))))


def _directed(line: str) -> str:
    """The line after its directive, if it has one."""
    if line.rstrip().endswith("# async") or line.strip() == "self.start()":
        return ""
    return re.sub(r"^(\s*)# sync: ", r"\1", line)


def _waits_by_itself(node: ast.expr, own: dict[str, Method], waits: tuple[str, ...]) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value)
    return owner in waits or (owner == "self" and node.func.attr in own)


def _proxied(source: Source, method: Method) -> str:
    """A method that calls its asynchronous twin on the thread."""
    positional = [argument.arg for argument in method.args.args[1:]]
    named = [f"{argument.arg}={argument.arg}" for argument in method.args.kwonlyargs]
    docstring = source.docstring_of(method)
    text = source.text_of(method)
    signature = text[: text.index(docstring)]
    is_void = method.returns is not None and ast.unparse(method.returns) == "None"
    call = f"self._loop.call(self._admin.{method.name}({', '.join(positional + named)}))"
    return f"{signature}{docstring}        {'' if is_void else 'return '}{call}\n"


def _with_docstring(parts: Source, method: Method, docstring: str) -> str:
    text = parts.text_of(method)
    if not docstring or _is_docstring(method.body[0]):
        return text
    lines = text.splitlines(keepends=True)
    at = method.body[0].lineno - _first_line(method)
    return "".join([*lines[:at], docstring, *lines[at:]])


def _plain(text: str, face: Face) -> str:
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    for words, other in face.words:
        text = text.replace(words, other)
    return re.sub(r"(?m)^(\s+[^#\n]*?)\bawait ", r"\1", text)  # in examples of docstrings


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    first: int = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def formatted(text: str, path: Path) -> str:
    """Returns the text as `make format` would have it, without imports that nothing uses."""
    for step in (["check", "--fix", "--quiet", "--exit-zero"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    differing = []
    for face in FACES:
        text = formatted(face_text(face), face.target)
        if face.target.read_text(encoding="utf-8") == text:
            continue
        differing.append(face.target)
        if "--check" not in sys.argv:
            face.target.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {face.target.relative_to(ROOMS)}\n")
    if differing and "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOMS)) for path in differing)
        sys.exit(
            f"{names}: not what their sources give; change aio.py or sync_parts.py, then run `make faces`"
        )


if __name__ == "__main__":
    main()
