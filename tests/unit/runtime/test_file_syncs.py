"""Syncs without a thread of Python: their outcomes, what stays open meanwhile, and their end."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.kit.waiting import until

from odradek.runtime.ports import DiskFile, OpenDescriptor, SyncGroup
from odradek.runtime.real import PosixDisk, real_runtime
from odradek.runtime.real_syncs import ThreadSyncs, thread_syncs

disk = PosixDisk()
pytestmark = pytest.mark.skipif(
    thread_syncs(1) is None, reason="absent: the threads that sync files are built on Linux with a C compiler"
)


@pytest.fixture
def syncs() -> Iterator[ThreadSyncs]:
    running = opened_syncs()
    yield running
    running.close()


def opened_syncs(threads: int = 4) -> ThreadSyncs:
    running = thread_syncs(threads)
    assert running is not None
    return running


class Pipe:
    """The writing end of a pipe in place of a file: fdatasync(2) refuses it with EINVAL."""

    path = "/a/pipe"

    def __init__(self) -> None:
        self._reading, self.number = os.pipe()
        self.under_way_count = 0

    def sync_began(self) -> None:
        self.under_way_count += 1

    def sync_ended(self) -> None:
        self.under_way_count -= 1

    def close(self) -> None:
        os.close(self._reading)
        os.close(self.number)


class FileOf:
    """Has the part of a `DiskFile` that `FileSyncs` uses: its descriptor."""

    def __init__(self, descriptor: OpenDescriptor | None) -> None:
        self._descriptor = descriptor

    def descriptor(self) -> OpenDescriptor | None:
        return self._descriptor

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"`{name}` is not for FileSyncs")


def file_of(descriptor: OpenDescriptor | None) -> DiskFile:
    return FileOf(descriptor)  # type: ignore[return-value]


def written(path: Path, count: int = 1) -> list[DiskFile]:
    files: list[DiskFile] = []
    for number in range(count):
        file = disk.open(str(path / f"file-{number}"), create=True)
        file.pwrite(b"x" * 1000, 0)
        files.append(file)
    return files


async def synced(syncs: ThreadSyncs, files: Sequence[DiskFile]) -> SyncGroup:
    over: asyncio.Future[SyncGroup] = asyncio.get_running_loop().create_future()
    group = syncs.begin(files, over.set_result)
    assert group is not None
    assert await asyncio.wait_for(over, 30) is group
    return group


async def test_each_file_of_a_group_has_an_outcome_of_its_own(syncs: ThreadSyncs, tmp_path: Path) -> None:
    first, second = written(tmp_path, 2)
    pipe = Pipe()
    group = await synced(syncs, [first, file_of(pipe), second])
    pipe.close()
    assert group.is_over
    assert group.error(0) is None
    refused = group.error(1)
    assert refused is not None
    assert (refused.errno, refused.filename) == (errno.EINVAL, "/a/pipe")
    assert group.error(2) is None
    assert all(0 < group.seconds(index) < 30 for index in range(3))
    for index in (-1, 3):
        with pytest.raises(IndexError):
            group.error(index)
        with pytest.raises(IndexError):
            group.seconds(index)


async def test_many_groups_end_each_once(syncs: ThreadSyncs, tmp_path: Path) -> None:
    files = written(tmp_path, 16)
    ended: list[SyncGroup] = []
    begun = [syncs.begin(files[number % 16 :], ended.append) for number in range(200)]
    assert None not in begun
    await until(lambda: len(ended) >= 200)
    assert sorted(map(id, ended)) == sorted(map(id, begun))
    assert all(group.error(0) is None for group in ended)


async def test_a_file_that_is_closed_meanwhile_stays_open_until_its_sync_is_over(
    syncs: ThreadSyncs, tmp_path: Path
) -> None:
    for _ in range(50):
        (file,) = written(tmp_path)
        descriptor = file.descriptor()
        assert descriptor is not None
        number = descriptor.number
        del descriptor
        over: asyncio.Future[SyncGroup] = asyncio.get_running_loop().create_future()
        group = syncs.begin([file], over.set_result)
        file.close()
        os.fstat(number)
        await asyncio.wait_for(over, 30)
        assert over.result().error(0) is None
        del group, over
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


async def test_files_without_a_descriptor_and_too_many_of_them_are_left_to_the_caller(
    syncs: ThreadSyncs, tmp_path: Path
) -> None:
    files = written(tmp_path, 17)
    ended: list[SyncGroup] = []
    assert syncs.begin([], ended.append) is None
    assert syncs.begin(files, ended.append) is None
    files[1].close()
    assert files[1].descriptor() is None
    assert syncs.begin(files[:2], ended.append) is None
    await synced(syncs, files[2:])
    assert ended == []


async def test_a_wait_on_the_loop_and_on_other_threads_ends_without_the_loop(
    syncs: ThreadSyncs, tmp_path: Path
) -> None:
    (file,) = written(tmp_path)
    ended: list[SyncGroup] = []
    group = syncs.begin([file], ended.append)
    assert group is not None
    others = [threading.Thread(target=group.wait) for _ in range(4)]
    for other in others:
        other.start()
    group.wait()
    assert group.is_over
    assert ended == []  # the loop did not run
    for other in others:
        other.join(30)
        assert not other.is_alive()
    await until(lambda: ended == [group])


async def test_trouble_with_the_end_of_one_group_keeps_no_other_waiting(
    syncs: ThreadSyncs, tmp_path: Path
) -> None:
    (file,) = written(tmp_path)
    loop = asyncio.get_running_loop()
    reported: list[BaseException] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    ended: list[SyncGroup] = []

    def broken(group: SyncGroup) -> None:
        raise ZeroDivisionError

    groups = [syncs.begin([file], done) for done in (broken, ended.append)]
    for group in groups:
        assert group is not None
        group.wait()
    await until(lambda: len(ended) == 1)
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_a_close_at_the_end_of_one_group_keeps_no_other_waiting(
    syncs: ThreadSyncs, tmp_path: Path
) -> None:
    (file,) = written(tmp_path)
    ended: list[SyncGroup] = []

    def close(group: SyncGroup) -> None:
        syncs.close()
        ended.append(group)

    groups = [syncs.begin([file], done) for done in (close, ended.append)]
    for group in groups:
        assert group is not None
        group.wait()
    await until(lambda: len(ended) == 2)


async def test_descriptors_learn_when_their_syncs_begin_and_end(syncs: ThreadSyncs) -> None:
    pipe = Pipe()
    over: asyncio.Future[SyncGroup] = asyncio.get_running_loop().create_future()
    assert syncs.begin([file_of(pipe)] * 2, over.set_result) is not None
    assert pipe.under_way_count == 2
    await asyncio.wait_for(over, 30)
    assert pipe.under_way_count == 0
    assert syncs.begin([file_of(pipe)] * 17, over.set_result) is None
    assert pipe.under_way_count == 0
    assert syncs.begin([file_of(pipe)], lambda _: pytest.fail("it was closed")) is not None
    syncs.close()
    assert syncs.begin([file_of(pipe)], over.set_result) is None
    assert pipe.under_way_count == 0
    pipe.close()


def test_syncs_of_a_loop_that_was_closed_are_under_way_no_more(tmp_path: Path) -> None:
    syncs = opened_syncs()
    pipe = Pipe()

    async def begin() -> None:
        assert syncs.begin([file_of(pipe)], lambda _: None) is not None

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(begin())
    first.close()
    second.run_until_complete(synced(syncs, written(tmp_path)))
    assert pipe.under_way_count == 0
    syncs.close()
    second.close()
    pipe.close()


ALONE = """
import asyncio, gc, os
from odradek.runtime.real import PosixDisk
from odradek.runtime.real_syncs import thread_syncs
def opened():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
"""


def run_alone(script: str, **variables: str) -> None:
    """Runs the rest of a script in a process of its own, where no other test has threads or descriptors that come and go."""
    environment = os.environ | variables
    assert os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", ALONE + script], environment) == 0


def test_a_close_waits_for_what_was_begun_and_gives_descriptors_and_threads_back(tmp_path: Path) -> None:
    run_alone(f"""
async def story():
    descriptors, threads = opened()
    syncs = thread_syncs(2)
    files = [PosixDisk().open({str(tmp_path)!r} + f"/{{number}}", create=True) for number in range(8)]
    groups = [syncs.begin(files, lambda group: None) for _ in range(6)]
    assert opened()[1] - threads == 2
    syncs.close()
    assert all(group is not None and group.is_over for group in groups)
    assert syncs.begin(files, lambda group: None) is None
    syncs.close()
    for file in files:
        file.close()
    del groups
    assert opened() == (descriptors, threads), (opened(), descriptors, threads)
asyncio.run(story())
""")


def test_two_loops_in_one_process_do_not_share_and_a_new_loop_takes_over_from_a_closed_one(
    tmp_path: Path,
) -> None:
    syncs = opened_syncs()
    (file,) = written(tmp_path)
    first = asyncio.new_event_loop()
    assert first.run_until_complete(synced(syncs, [file])).error(0) is None

    async def refused() -> None:
        assert syncs.begin([file], lambda group: None) is None

    second = asyncio.new_event_loop()
    second.run_until_complete(refused())  # the first loop is still open

    async def left_behind() -> None:
        assert syncs.begin([file], lambda group: pytest.fail("its loop is closed")) is not None

    first.run_until_complete(left_behind())
    first.close()
    assert second.run_until_complete(synced(syncs, [file])).error(0) is None
    syncs.close()
    second.close()


def test_two_runtimes_sync_on_two_loops_at_once(tmp_path: Path) -> None:
    errors: list[object] = []

    def serve(path: Path) -> None:
        path.mkdir()
        syncs = opened_syncs()

        async def story() -> None:
            files = written(path, 4)
            for _ in range(50):
                group = await synced(syncs, files)
                errors.extend(group.error(index) for index in range(4))

        asyncio.run(story())
        syncs.close()

    others = [threading.Thread(target=serve, args=(tmp_path / name,)) for name in ("a", "b", "c")]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert errors == [None] * 600


def test_threads_that_no_one_closed_end_with_their_owner(tmp_path: Path) -> None:
    run_alone(f"""
async def story():
    syncs = thread_syncs(4)
    over = asyncio.get_running_loop().create_future()
    assert syncs.begin([PosixDisk().open({str(tmp_path / "file")!r}, create=True)], over.set_result) is not None
    await over
before = opened()
asyncio.run(story())
gc.collect()
assert opened() == before, (before, opened())
""")


def test_an_owner_that_is_dropped_with_syncs_under_way_is_collected_once_they_are_over(
    tmp_path: Path,
) -> None:
    """Freed memory is overwritten here, so that a thread which still uses some of it crashes the process."""
    run_alone(
        f"""
async def story():
    syncs = thread_syncs(1)
    file = PosixDisk().open({str(tmp_path / "file")!r}, create=True)
    for number in range(200):
        file.pwrite(bytes(4096), number * 4096)
        assert syncs.begin([file] * 16, lambda group: None) is not None
before = opened()
asyncio.run(story())
gc.collect()
assert opened() == before, (before, opened())
""",
        PYTHONMALLOC="debug",
    )


def test_a_process_that_is_forked_off_begins_nothing_and_ends_without_waiting(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from odradek.runtime.real import PosixDisk
from odradek.runtime.real_syncs import thread_syncs
async def story():
    syncs = thread_syncs(2)
    file = PosixDisk().open({str(tmp_path / "file")!r}, create=True)
    over = asyncio.get_running_loop().create_future()
    assert syncs.begin([file], over.set_result) is not None
    await over
    child = os.fork()
    if child == 0:
        async def begun():
            return syncs.begin([file], print)
        refused = asyncio.new_event_loop().run_until_complete(begun()) is None
        syncs.close()
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    over = asyncio.get_running_loop().create_future()
    assert syncs.begin([file], over.set_result) is not None
    assert (await over).error(0) is None
    syncs.close()
asyncio.run(story())
"""
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", script]) == 0


async def test_signals_are_not_for_these_threads(syncs: ThreadSyncs, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/task"))
    await synced(syncs, written(tmp_path))
    (thread,) = set(os.listdir("/proc/self/task")) - before
    assert blocked_signals(thread) >> 14 & 1  # SIGTERM


def blocked_signals(thread: str) -> int:
    status = Path(f"/proc/self/task/{thread}/status").read_text(encoding="ascii")
    (blocked,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk"))
    return blocked


def test_the_plain_twin_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_PURE", "1")
    assert thread_syncs(4) is None
    assert real_runtime().file_syncs is None
