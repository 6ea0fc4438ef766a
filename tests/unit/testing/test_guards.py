"""The guards of the event loop see what they are there for."""

import asyncio
import gc
import threading
import time
from pathlib import Path

import pytest

from odradek.runtime.ports import Disk, DiskFile
from odradek.runtime.real import real_runtime
from odradek.testing import guarded_disk
from odradek.testing.guarded_disk import GuardedDisk, LoopBlockedError, off_loop
from odradek.testing.loop_watchdog import HELD_SECONDS_MAX, callbacks_are_short

DIRECT = {
    "sync": lambda disk, file, here: file.sync(),
    "sync_directory": lambda disk, file, here: disk.sync_directory(here),
    "rename": lambda disk, file, here: disk.rename(f"{here}/a", f"{here}/b"),
    "replace": lambda disk, file, here: disk.replace(f"{here}/a", b""),
    "remove": lambda disk, file, here: disk.remove(f"{here}/a"),
    "remove_directory": lambda disk, file, here: disk.remove_directory(here),
    "large read": lambda disk, file, here: file.pread(guarded_disk.LARGE_READ_BYTES + 1, 0),
}


@pytest.mark.parametrize("operation", DIRECT)
async def test_on_a_loop_the_disk_refuses_and_remembers_and_on_a_thread_it_works(
    operation: str, tmp_path: Path
) -> None:
    runtime = real_runtime(threads=1)
    here = str(tmp_path / "here")
    runtime.disk.make_directory(here)
    file = runtime.disk.open(f"{here}/a", create=True)

    def work(disk: Disk = runtime.disk, opened: DiskFile = file) -> None:
        DIRECT[operation](disk, opened, here)

    try:
        with pytest.raises(LoopBlockedError, match="on the event loop"):
            work()
        assert len(guarded_disk.violations) == 1
        guarded_disk.violations.clear()
        await runtime.offload.run(work)
    finally:
        runtime.offload.close()  # type: ignore[attr-defined]


async def test_what_stands_for_a_thread_may_wait(tmp_path: Path) -> None:
    with off_loop():
        real_runtime().disk.sync_directory(str(tmp_path))
    assert guarded_disk.violations == []


def test_without_a_loop_nothing_is_refused(tmp_path: Path) -> None:
    disk = real_runtime().disk
    assert isinstance(disk, GuardedDisk)
    disk.sync_directory(str(tmp_path))


def test_every_allowed_place_is_there() -> None:
    """A function that was renamed must not leave a hole."""
    from importlib import import_module

    for place in guarded_disk.ALLOWED:
        target = import_module(place.module)
        for name in place.function.split("."):
            target = getattr(target, name)
        assert callable(target), place


def test_a_long_callback_is_found_by_name_and_waiting_is_not_counted() -> None:
    def computes() -> None:
        until = time.thread_time() + 1.2 * HELD_SECONDS_MAX
        while time.thread_time() < until:
            pass

    async def main() -> None:
        asyncio.get_running_loop().call_soon(computes)
        await asyncio.sleep(0.1)

    with callbacks_are_short() as results:
        asyncio.run(main())
    assert len(results) == 1
    assert "computes" in results[0]


def test_the_watchdog_leaves_the_steps_of_one_coroutine_function_alone() -> None:
    def work() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    async def long_test() -> None:
        asyncio.get_running_loop().call_soon(work)
        await asyncio.sleep(0)
        work()

    with callbacks_are_short(0.01, except_tasks_of="long_test") as results:
        asyncio.run(long_test())
    assert len(results) == 1
    assert "work" in results[0]


def test_the_garbage_collectors_time_is_no_ones() -> None:
    cycles = [[number] for number in range(1_000_000)]

    async def collects() -> None:
        gc.collect()

    began = time.thread_time()
    gc.collect()
    seconds = time.thread_time() - began
    with callbacks_are_short(seconds / 2) as held:
        asyncio.run(collects())
        thread = threading.Thread(target=asyncio.run, args=[collects()])
        thread.start()
        thread.join()
    assert not held
    assert cycles
