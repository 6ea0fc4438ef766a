"""The tables of ARCHITECTURE.md that lead through a request: a broker serves it by these calls, in this order."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from tests.scenarios.one_broker import REPLY_SECONDS, Scene

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = ROOT / "src" / "odradek"
FILES_MAX: Final = 20
_WAITS: Final = ("broker/fetch/delayed_fetch.py", "ConsumerWaiting.__init__")
_ROW: Final = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


class Step(NamedTuple):
    """One row: a function, by the path of its file below the package and its qualified name."""

    file: str
    function: str


def walk_of(request: str) -> list[Step]:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition(f"\n### {request}\n")[2].partition("\n#")[0]
    rows = _ROW.findall(table)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    return [Step(file, function) for _, file, function in rows]


class Recorder:
    """The broker's calls on all threads that begin after it, while it records."""

    def __init__(self) -> None:
        self.calls: list[Step] = []
        self._is_on = False

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._is_on:
            _, found, file = frame.f_code.co_filename.partition("/src/odradek/")
            if found:
                self.calls.append(Step(file, frame.f_code.co_qualname))

    @contextmanager
    def of_new_threads(self) -> Iterator[None]:
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know that this ends it

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._is_on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._is_on = False

    def first_not_reached(self, walk: list[Step]) -> Step | None:
        """The first step that no call takes behind the call of the step before it."""
        calls = iter(self.calls)
        return next((step for step in walk if step not in calls), None)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    one = Recorder()
    with one.of_new_threads():
        yield one


@pytest.mark.parametrize("request_name", ["Produce", "Fetch"])
def test_a_walk_is_short_and_names_what_there_is(request_name: str) -> None:
    walk = walk_of(request_name)
    assert 10 < len(walk) <= FILES_MAX
    assert len({step.file for step in walk}) == len(walk), "a file comes twice"
    for file, function in walk:
        body: list[ast.stmt] = ast.parse((SOURCES / file).read_text(encoding="utf-8")).body
        for name in function.split("."):
            found = [node for node in body if getattr(node, "name", None) == name]
            assert found, f"{file} does not define {function}"
            body = getattr(found[0], "body", [])


async def test_a_produce_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    with recorder.recording():
        await wire.produce("t", [b"a"])
    assert recorder.first_not_reached(walk_of("Produce")) is None


async def test_a_fetch_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    await scene.start()
    wire, producer = await scene.connect(), await scene.connect()
    await wire.create("t")
    await producer.produce("t", [b"a", b"b", b"c"])
    with recorder.recording():
        await wire.fetch("t", 1)
        waiting = asyncio.ensure_future(wire.fetch("t", 3, max_wait_ms=20_000))
        async with asyncio.timeout(REPLY_SECONDS):
            while _WAITS not in recorder.calls:
                await asyncio.sleep(0)
        await producer.produce("t", [b"d"])
        await waiting
    assert recorder.first_not_reached(walk_of("Fetch")) is None
