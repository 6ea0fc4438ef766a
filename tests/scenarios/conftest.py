"""What every test over the wire gets: a scene with a broker in it, a connection, and an eye on the event loop."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.kit.requests import batch_of, fetch_request, produce_request
from tests.kit.wire import Wire
from tests.scenarios.loop_steps import LoopSteps
from tests.scenarios.one_broker import Scene

from odradek.broker import app
from odradek.protocol.messages.data.fetch import FetchRequest
from odradek.protocol.messages.data.produce import ProduceRequest
from odradek.testing.loop_watchdog import callbacks_are_short

HELD_SECONDS_MAX = 0.1
"""Of CPU time, in one callback."""
_MEASURES = {"loop_steps", "holds"}
"""Fixtures of tests that measure callbacks themselves."""


@pytest.fixture(autouse=True)
def _callbacks_are_short(request: pytest.FixtureRequest) -> Iterator[None]:
    """No callback of the broker takes more CPU time of the loop's thread.

    The one exception: the steps of the test's own task, which makes requests of 20,000 elements and reads their answers. A test
    that measures callbacks itself is left alone.
    """
    if _MEASURES & set(request.fixturenames):
        yield
        return
    name = getattr(request.node, "originalname", request.node.name)
    with callbacks_are_short(HELD_SECONDS_MAX, except_tasks_of=name) as held:
        yield
    assert not held, "\n".join(held)


@pytest.fixture
def loop_steps(monkeypatch: pytest.MonkeyPatch) -> LoopSteps:
    """Brokers that are started after it take turns by its count."""
    steps = LoopSteps()
    monkeypatch.setattr(app, "Turns", steps.turns)
    return steps


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    new_scene = Scene(tmp_path)
    try:
        yield new_scene
    finally:
        await new_scene.stop()


@pytest.fixture
async def wire(scene: Scene) -> Wire:
    await scene.start()
    return await scene.connect()


@pytest.fixture
def make_batch() -> Callable[..., bytearray]:
    return batch_of


@pytest.fixture
def make_produce() -> Callable[..., ProduceRequest]:
    return produce_request


@pytest.fixture
def make_fetch() -> Callable[..., FetchRequest]:
    return fetch_request
