"""Hosts that die, work beside the loop, and runs that repeat."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest
from tests.simulation import sweep
from tests.simulation.fault_plan import FaultPlan

from odradek.runtime.ports import Disk
from odradek.testing.sim import (
    CrashAt,
    CrashKind,
    Host,
    HostCrashed,
    OffloadDelays,
    ViolationError,
    World,
    offload,
    stream,
)
from odradek.testing.sim.fibers import ThreadFiber
from odradek.testing.sim.loop import SimLoop

pytestmark = pytest.mark.sim


def test_a_crash_leaves_finally_blocks_nothing_to_tidy() -> None:
    tried: list[str] = []

    async def service(disk: Disk, writer: asyncio.StreamWriter) -> None:
        disk.replace("/state", b"running")
        try:
            await asyncio.sleep(1000)
        finally:
            writer.write(b"goodbye")
            tried.append("network")
            try:
                disk.replace("/state", b"stopped")
            except HostCrashed:
                tried.append("disk")

    with World(1) as world:
        host, peer = world.host("broker"), world.host("peer")
        host.boot()
        peer.boot()
        received: list[bytes] = []

        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                received.append(await reader.read())
            except ConnectionError:
                received.append(b"")
            writer.close()

        async def main() -> None:
            await peer.spawn(asyncio.start_server(keep, "0.0.0.0", 1))
            _, writer = await host.spawn(asyncio.open_connection("peer", 1))
            task = host.spawn(service(host.life.disk, writer))
            await asyncio.sleep(1)
            host.crash(CrashKind.PROCESS_KILL)
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(5)

        world.run(main)
        assert tried == ["network", "disk"]
        assert received == [b""]
        assert host.boot().disk.read("/state") == b"running"


def test_a_task_that_swallows_cancellation_dies_all_the_same() -> None:
    async def stubborn() -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    with World(1) as world:
        host = world.host("broker")
        host.boot()

        async def main() -> float:
            task = host.spawn(stubborn())
            await asyncio.sleep(1)
            host.crash(CrashKind.PROCESS_KILL)
            await asyncio.gather(task, return_exceptions=True)
            return world.loop.time()

        assert world.run(main) < 2


def test_offloaded_work_meets_the_loop_between_its_io_points() -> None:
    def work(disk: Disk, log: list[str]) -> str:
        file = disk.open("/a", create=True)
        for step in range(5):
            file.pwrite(b"x", step)
            log.append("work")
        return "done"

    orders = set()
    for seed in range(5):
        with World(seed) as world:
            host = world.host("broker")
            host.boot()
            log: list[str] = []

            async def main(log: list[str] = log, host=host) -> None:  # type: ignore[no-untyped-def]
                task = host.spawn(host.life.offload.run(work, host.life.disk, log))
                while not task.done():
                    await asyncio.sleep(0.0005)
                    log.append("loop")
                assert await task == "done"

            world.run(main)
            orders.add(tuple(log))
    assert len(orders) == 5
    assert all("work" in order and order[order.index("work") :].count("loop") > 1 for order in orders)


def test_work_dies_at_its_io_point_when_the_host_does() -> None:
    reached: list[int] = []

    def work(disk: Disk) -> None:
        file = disk.open("/a", create=True)
        for step in range(100):
            file.pwrite(b"x", step)
            reached.append(step)

    with World(1) as world:
        host = world.host("broker")
        host.boot()

        async def main() -> None:
            task = host.spawn(host.life.offload.run(work, host.life.disk))
            await asyncio.sleep(0.05)
            host.crash(CrashKind.PROCESS_KILL)
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError | HostCrashed)
            await asyncio.sleep(10)

        world.run(main)
        assert 5 < len(reached) < 95
        assert host.boot().disk.length("/a") == len(reached)


def test_a_crash_inside_offloaded_work_takes_the_host_down() -> None:
    with World(1) as world:
        host = world.host("broker")
        host.boot(faults=[CrashAt(number=3, kind=CrashKind.POWER_LOSS, rng=stream(1, "crash"))])
        life = host.life

        def work() -> None:
            file = life.disk.open("/a", create=True)
            file.pwrite(b"x", 0)
            file.sync()

        async def main() -> CrashKind:
            sleeper = host.spawn(asyncio.sleep(1e6))
            host.spawn(life.offload.run(work))
            kind = await life.crashed
            await asyncio.gather(sleeper, return_exceptions=True)
            return kind

        assert world.run(main) is CrashKind.POWER_LOSS
        assert not life.is_alive


def test_results_come_back_late_and_to_no_one_when_the_task_is_gone() -> None:
    with World(1) as world:
        host = world.host("broker")
        host.offload_delays = OffloadDelays(result_s=(5.0, 5.0))
        host.boot()

        async def main() -> None:
            start = world.loop.time()
            assert await host.spawn(host.life.offload.run(divmod, 7, 2)) == (3, 1)
            assert world.loop.time() - start >= 5
            with pytest.raises(ZeroDivisionError):
                await host.spawn(host.life.offload.run(divmod, 7, 0))
            gone = host.spawn(host.life.offload.run(divmod, 7, 2))
            await asyncio.sleep(1)
            gone.cancel()
            await asyncio.sleep(10)

        world.run(main)


def test_no_more_work_runs_at_once_than_there_are_threads() -> None:
    running: list[int] = [0]
    most: list[int] = [0]

    def work(disk: Disk, number: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        disk.open(f"/{number}", create=True).sync()
        running[0] -= 1

    with World(3) as world:
        host = world.host("broker")
        host.boot()

        async def main() -> None:
            await asyncio.gather(
                *(host.spawn(host.life.offload.run(work, host.life.disk, n)) for n in range(30))
            )

        world.run(main)
    assert most == [4]


def locked_steps(disk: Disk, lock: threading.Lock, log: list[str], name: str) -> None:
    with lock:
        for step in range(3):
            disk.open(f"/{name}{step}", create=True).close()
            log.append(name)


def test_locks_held_across_io_points_exclude_without_stopping_the_world() -> None:
    for seed in range(10):
        with World(seed) as world:
            host = world.host("broker")
            host.boot()
            lock = threading.Lock()
            log: list[str] = []

            async def main(host: Host = host, lock: threading.Lock = lock, log: list[str] = log) -> None:
                life = host.life
                jobs = [
                    host.spawn(life.offload.run(locked_steps, life.disk, lock, log, name)) for name in "ab"
                ]
                while not lock.locked():
                    await asyncio.sleep(0.0001)
                before = asyncio.get_running_loop().time()
                with lock:  # the loop itself blocks until a worker lets go
                    log.append("loop")
                assert asyncio.get_running_loop().time() > before
                await asyncio.gather(*jobs)

            world.run(main)
            assert "".join(log).replace("loop", "") in ("aaabbb", "bbbaaa")


def test_a_slow_disk_holds_up_the_loop_only_where_it_is_used_on_it() -> None:
    with World(1) as world:
        host = world.host("broker")
        host.disk_stall_s = 0.5
        host.boot()

        async def main() -> tuple[float, float]:
            start = world.loop.time()
            await host.spawn(host.life.offload.run(host.life.disk.replace, "/a", b"x"))
            offloaded = world.loop.time() - start
            host.life.disk.replace("/a", b"x")
            return offloaded, world.loop.time() - start - offloaded

        offloaded, direct = world.run(main)
        assert offloaded < 0.1
        assert direct > 0.5


def test_a_world_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "new_fiber", ThreadFiber)

    def work(disk: Disk) -> None:
        for number in range(1000):
            disk.open(f"/{number}", create=True).close()

    with World(1) as world:
        host = world.host("broker")
        host.boot()

        async def main() -> None:
            jobs = [host.spawn(host.life.offload.run(work, host.life.disk)) for _ in range(10)]
            await asyncio.sleep(0.01)
            for job in jobs:
                job.cancel()

        world.run(main)
        assert any(thread.name == "sim-offload" for thread in threading.enumerate())
    for thread in threading.enumerate():
        if thread.name == "sim-offload":
            thread.join(10)
    assert not any(thread.name == "sim-offload" for thread in threading.enumerate())


def test_a_dead_host_opens_no_connection() -> None:
    with World(1) as world:
        host, peer = world.host("broker"), world.host("peer")
        host.boot()
        peer.boot()
        outcomes: list[BaseException] = []

        async def reach_out() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                for call in (
                    asyncio.open_connection("peer", 1),
                    asyncio.start_server(lambda r, w: None, "", 1),
                ):
                    try:
                        await call
                    except BaseException as error:  # noqa: BLE001
                        outcomes.append(error)

        async def main() -> None:
            task = host.spawn(reach_out())
            await asyncio.sleep(1)
            host.crash(CrashKind.PROCESS_KILL)
            await asyncio.gather(task, return_exceptions=True)

        world.run(main)
        assert [type(outcome) for outcome in outcomes] == [HostCrashed, HostCrashed]


def test_an_error_that_no_one_handles_fails_the_run() -> None:
    with World(1) as world:

        async def main() -> None:
            world.loop.call_soon(lambda: 1 // 0)
            await asyncio.sleep(1)

        with pytest.raises(ViolationError, match="ZeroDivisionError"):
            world.run(main)


def test_clocks_jump_only_where_they_may() -> None:
    with World(1) as world:
        clock = world.host("broker").clock

        async def main() -> None:
            await asyncio.sleep(2)
            before = clock.wall_ms()
            clock.jump_wall(-3_600_000)
            assert clock.wall_ms() == before - 3_600_000
            assert clock.monotonic() == 2

        world.run(main)


def chatter(seed: int) -> str:
    """A world with a bit of everything in it; returns the digest of its trace."""
    with World(seed) as world:
        hosts = [world.host(f"h{n}") for n in range(3)]
        for host in hosts:
            host.boot()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(1000):
                    writer.write(data)
            except OSError:
                pass
            writer.close()

        async def talk(index: int) -> None:
            host = hosts[index]
            reader, writer = await asyncio.open_connection(f"h{(index + 1) % 3}", 1)
            for number in range(20):
                writer.write(host.life.runtime.entropy.uuid().bytes * 10)
                await reader.readexactly(160)
                await host.life.offload.run(host.life.disk.replace, f"/{number}", b"x")
            writer.close()

        async def main() -> None:
            for host in hosts:
                await host.spawn(asyncio.start_server(answer, "0.0.0.0", 1))
            talks = [host.spawn(talk(index)) for index, host in enumerate(hosts)]
            await asyncio.sleep(0.05)
            hosts[1].crash(CrashKind.POWER_LOSS)
            await asyncio.sleep(100)
            hosts[1].boot()
            await asyncio.gather(*talks, return_exceptions=True)

        world.run(main)
        return world.trace.digest()


def test_a_trace_that_outlives_its_world_holds_nothing_of_it() -> None:
    with World(1) as world:
        world.run(lambda: asyncio.sleep(2))
    trace, loop = world.trace, weakref.ref(world.loop)
    trace.note("late")
    del world
    gc.collect()
    assert loop() is None
    assert trace.event_count


def test_a_run_leaves_no_garbage_that_only_a_full_collection_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[weakref.ref[SimLoop]] = []

    def scenario(world: World, seed: int, plan: object) -> None:
        world.run(lambda: asyncio.sleep(0.1))
        loops.append(weakref.ref(world.loop))

    monkeypatch.setitem(sweep.SCENARIOS, "storage", scenario)
    run, trace = sweep.run_once("storage", 1, FaultPlan())
    assert run.failure is None
    assert trace.event_count == run.event_count
    assert [loop() for loop in loops] == [None]


def test_a_seed_repeats_exactly_and_another_differs() -> None:
    assert chatter(1) == chatter(1)
    assert chatter(1) != chatter(2)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_run_does_not_depend_on_the_hash_seed(hash_seed: str, request: pytest.FixtureRequest) -> None:
    program = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('w', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print(module.chatter(7))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    digest: Callable[[], str] = lambda: subprocess.run(  # noqa: E731
        [sys.executable, "-c", program, str(request.path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout.strip()
    assert digest() == chatter(7)


def test_a_paused_process_does_nothing_while_time_and_its_kernel_go_on() -> None:
    seen: list[tuple[str, float]] = []

    with World(1) as world:
        host, peer = world.host("broker"), world.host("peer")
        host.boot()
        peer.boot()

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                seen.append(("tick", world.loop.time()))

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(100))
            writer.close()

        async def ask() -> float:
            reader, writer = await asyncio.open_connection("broker", 1)
            writer.write(b"hello")
            assert await reader.read(100)
            answered_s = world.loop.time()
            writer.close()
            return answered_s

        async def main() -> float:
            await host.spawn(asyncio.start_server(greet, "0.0.0.0", 1))
            host.spawn(tick())
            await asyncio.sleep(2.5)
            host.life.pause()
            asking = peer.spawn(ask())
            await asyncio.sleep(5)
            assert len(seen) == 2
            host.life.resume()
            await asyncio.sleep(2)
            return await asking

        assert world.run(main) >= 7.5
    assert [when for _, when in seen] == pytest.approx([1, 2, 7.5, 8.5, 9.5])


def test_a_paused_process_can_be_killed() -> None:
    with World(1) as world:
        host = world.host("broker")
        host.boot()

        async def main() -> bool:
            task = host.spawn(asyncio.sleep(1))
            await asyncio.sleep(0.5)
            host.life.pause()
            await asyncio.sleep(5)
            host.crash(CrashKind.PROCESS_KILL)
            await asyncio.gather(task, return_exceptions=True)
            return task.cancelled()

        assert world.run(main)
