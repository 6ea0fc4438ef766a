"""What offloaded work runs on: greenlets and threads give one and the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from tests.simulation.sweep import plans_of, run_once

from odradek.testing.sim import CrashKind, World, offload
from odradek.testing.sim.fibers import Fiber, GreenletFiber, ThreadFiber

pytestmark = pytest.mark.sim
IS_ABSENT = find_spec("greenlet") is None
KINDS = [
    pytest.param(GreenletFiber, marks=pytest.mark.skipif(IS_ABSENT, reason="greenlet is absent")),
    ThreadFiber,
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_goes_on_where_it_gave_way(kind: Callable[[Callable[[], None]], Fiber]) -> None:
    seen: list[int] = []

    def count() -> None:
        for number in range(3):
            seen.append(number)
            fiber.give_way()

    fiber = kind(count)
    for number in range(3):
        assert seen == list(range(number))
        fiber.resume()
    fiber.resume()
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fiber_may_resume_another(kind: Callable[[Callable[[], None]], Fiber]) -> None:
    seen: list[str] = []

    def inside() -> None:
        seen.append("inside")
        inner.give_way()
        seen.append("inside again")

    def outside() -> None:
        inner.resume()
        seen.append("outside")
        outer.give_way()

    inner, outer = kind(inside), kind(outside)
    outer.resume()
    seen.append("here")
    inner.resume()
    outer.resume()
    assert seen == ["inside", "outside", "here", "inside again"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_event_loop_runs_where_offloaded_work_does(
    kind: Callable[[Callable[[], None]], Fiber], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "new_fiber", kind)
    with World(1) as world:
        host = world.host("broker")
        host.boot()

        def loop_here() -> object:
            host.life.disk.make_directory("/d")  # it gives way
            return asyncio._get_running_loop()

        async def run() -> tuple[object, object]:
            return await host.life.runtime.offload.run(loop_here), asyncio.get_running_loop()

        assert world.run(lambda: host.spawn(run())) == (None, world.loop)
        host.crash(CrashKind.POWER_LOSS)


@pytest.mark.skipif(IS_ABSENT, reason="greenlet is absent")
@pytest.mark.parametrize(
    ("scenario", "seed"), [("storage", 3), ("compaction", 5), ("broker", 0), ("cluster", 4)]
)
def test_a_seed_gives_one_run_on_both(monkeypatch: pytest.MonkeyPatch, scenario: str, seed: int) -> None:
    digests = []
    for kind in (GreenletFiber, ThreadFiber):
        monkeypatch.setattr(offload, "new_fiber", kind)
        run, _ = run_once(scenario, seed, plans_of(scenario).draw(seed))
        assert run.failure is None
        digests.append(run.digest)
    assert digests[0] == digests[1]
