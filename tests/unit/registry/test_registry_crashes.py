"""Two processes share a journal, one dies at each of its I/O points, and the power may go with it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.registry import (
    Create,
    EmbeddedRegistry,
    Node,
    Put,
    RegistryError,
    shared_journal,
    space_reserve,
)
from odradek.registry.journal import line_of, lines_of
from odradek.runtime.ports import Runtime
from odradek.testing.sim import (
    CrashAt,
    CrashKind,
    FailAt,
    HostCrashed,
    Medium,
    SimDisk,
    SimEntropy,
    World,
    stream,
)
from odradek.testing.sim.disk_faults import DiskFault, FailOperations

_DIRECTORY = "/data"
_JOURNAL = f"{_DIRECTORY}/{shared_journal.JOURNAL_NAME}"
_COMMITS = 9


class Inline:
    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        return work(*arguments)


class StandingClock:
    """A clock that stands: no one is silent for too long."""

    def wall_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


def process(medium: Medium, name: str, *faults: DiskFault) -> tuple[SimDisk, Runtime]:
    """A mount of the medium, as a process that was started has it."""
    disk = SimDisk(medium, rng=stream(name, "disk"), faults=faults)
    runtime = Runtime(
        clock=StandingClock(), entropy=SimEntropy(stream(name, "entropy")), disk=disk, offload=Inline()
    )
    return disk, runtime


def machine() -> Medium:
    medium = Medium()
    disk, _ = process(medium, "setup")
    disk.make_directory(_DIRECTORY)
    disk.sync_directory("/")
    return medium


async def write(runtime: Runtime, acknowledged: list[int]) -> None:
    registry = EmbeddedRegistry.open(runtime, _DIRECTORY)
    await registry.commit([Create(path="/mine", data=b"", ephemeral=True)])
    node = await registry.get("/counter")
    version = -1 if node is None else node.version
    for _ in range(_COMMITS):
        if version < 0:
            await registry.commit([Create(path="/counter", data=b"x" * 100)])
        else:
            await registry.commit([Put(path="/counter", data=b"x" * 100, version=version)])
        version += 1
        acknowledged.append(version)
    await registry.close()


async def version_of(registry: EmbeddedRegistry) -> int:
    node = await registry.get("/counter")
    return -1 if node is None else node.version


@pytest.fixture(autouse=True)
async def the_dead_are_silent() -> None:
    """What a process that died had under way ends with its death, and nothing waits for it."""

    def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), HostCrashed):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(unhandled)


@pytest.fixture(autouse=True)
def the_reserve_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reserve of six portions: a crash at its 64th leaves what one at its sixth leaves, and more zeros.

    A test here keeps more than a hundred media, and each holds the reserve three times.
    """
    monkeypatch.setattr(space_reserve, "RESERVE_BYTES", 6 * space_reserve.PORTION_BYTES)


@contextmanager
def rewriting_often() -> Iterator[None]:
    """For journals that are opened within: those of the others stay as they are for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_journal, "SLACK_BYTES", 400)
        yield


@pytest.mark.parametrize(
    ("kind", "onlooker_writes"),
    [(CrashKind.PROCESS_KILL, True), (CrashKind.PROCESS_KILL, False), (CrashKind.POWER_LOSS, False)],
)
async def test_a_writer_that_dies_at_any_point_loses_nothing_acknowledged_or_seen_and_stops_no_one(
    kind: CrashKind, onlooker_writes: bool
) -> None:
    point = 0
    died = True
    while died:
        point += 1
        medium = machine()
        onlooker = EmbeddedRegistry.open(process(medium, f"onlooker {point}")[1], _DIRECTORY)
        crash = CrashAt(number=point, kind=kind, rng=stream(point, "crash"))
        disk, runtime = process(medium, f"writer {point}", crash)
        acknowledged = [-1]
        try:
            with rewriting_often():
                await write(runtime, acknowledged)
        except HostCrashed:
            pass
        died = disk.is_revoked
        seen = acknowledged[-1]
        if kind is CrashKind.PROCESS_KILL:
            await onlooker.sync()
            seen = await version_of(onlooker)
            assert acknowledged[-1] <= seen <= acknowledged[-1] + 1
            if onlooker_writes:
                await onlooker.commit([Create(path="/after", data=b"")])
                assert await version_of(onlooker) in (seen, acknowledged[-1] + 1)
            process(medium, f"all {point}")[0].crash(CrashKind.POWER_LOSS)
        restarted = EmbeddedRegistry.open(process(medium, f"restarted {point}")[1], _DIRECTORY)
        assert seen <= await version_of(restarted) <= acknowledged[-1] + 1
        assert await restarted.get("/mine") is None
        assert (await restarted.get("/after") is not None) == onlooker_writes
        await restarted.commit([Create(path="/last", data=b"")])
        assert died or b'"generation"' in disk.medium.file(_JOURNAL).cache
        await restarted.close()
    assert point > 60


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_an_error_of_the_disk_at_any_point_leaves_both_processes_with_one_truth(number: int) -> None:
    point, failed = 0, True
    while failed:
        point += 1
        medium = machine()
        _, onlooker_runtime = process(medium, f"onlooker {point}")
        onlooker = EmbeddedRegistry.open(onlooker_runtime, _DIRECTORY)
        fault = FailAt(number=point, error=number, done=stream(point, "done").random())
        disk, runtime = process(medium, f"writer {point}", fault)
        acknowledged = [-1]
        try:
            with rewriting_often():
                await write(runtime, acknowledged)
        except RegistryError:
            pass
        failed = disk.failure_count > 0
        await onlooker.commit([Create(path="/after", data=b"")])
        seen = await version_of(onlooker)
        assert acknowledged[-1] <= seen <= acknowledged[-1] + 1
        disk.crash(CrashKind.POWER_LOSS)
        _, restarted_runtime = process(medium, f"restarted {point}")
        restarted = EmbeddedRegistry.open(restarted_runtime, _DIRECTORY)
        assert await version_of(restarted) == seen
        assert await restarted.get("/after") is not None
        await restarted.close()
    assert point > 60


async def test_what_a_killed_writer_left_is_nothing_to_readers_and_cut_by_the_next_writer_at_every_byte() -> (
    None
):
    line = line_of([("/b", Node(data=b"much more than the next one" * 3, version=0))])
    for length in range(1, len(line)):
        medium = machine()
        disk, first_runtime = process(medium, "first")
        first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
        await first.commit([Create(path="/a", data=b"")])
        journal = disk.open(_JOURNAL)
        good = journal.length()
        second = EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)
        journal.pwrite(line[:length], good)
        await second.sync()
        assert await second.children("/") == ["a"]
        assert journal.length() == good + length
        await second.commit([Create(path="/c", data=b"")])
        content = disk.read(_JOURNAL)
        assert lines_of(content, "")[1] == len(content)
        await first.sync()
        assert await first.children("/") == await second.children("/") == ["a", "c"]
        third = EmbeddedRegistry.open(process(medium, "third")[1], _DIRECTORY)
        assert await third.children("/") == ["a", "c"]
        await asyncio.gather(first.close(), second.close(), third.close())


async def test_a_line_whose_sync_failed_is_durable_once_it_was_seen() -> None:
    medium = machine()
    disk, first_runtime = process(medium, "first")
    first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
    await first.commit([Create(path="/a", data=b"")])
    second = EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)
    disk.faults.append(FailOperations(operations={"sync", "truncate"}, remaining=2))
    with pytest.raises(RegistryError):
        await first.commit([Create(path="/b", data=b"x" * 9000)])
    await second.commit([Create(path="/c", data=b"")])
    seen = await second.children("/")
    disk.crash(CrashKind.POWER_LOSS)
    restarted = EmbeddedRegistry.open(process(medium, "restarted")[1], _DIRECTORY)
    assert await restarted.children("/") == seen
    await restarted.close()


async def test_a_whole_line_behind_the_head_is_kept_by_the_next_writer() -> None:
    medium = machine()
    disk, first_runtime = process(medium, "first")
    first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
    await first.commit([Create(path="/a", data=b"")])
    node = await first.get("/a")
    assert node is not None
    journal = disk.open(_JOURNAL)
    journal.pwrite(line_of([("/b", node)]), journal.length())
    await first.sync()
    assert await first.get("/b") is None, "it may not be durable"
    await first.commit([Put(path="/b", data=b"1", version=0)])
    disk.crash(CrashKind.POWER_LOSS)
    second = EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)
    version = await second.get("/b")
    assert version is not None
    assert version.data == b"1"
    await second.close()


@pytest.mark.parametrize(
    "head", [b"", b"\0" * 42, b"x" * 42, b"0" * 20], ids=["none", "zeros", "noise", "half"]
)
async def test_a_head_that_was_lost_is_found_again_from_the_journal(head: bytes) -> None:
    medium = machine()
    disk, first_runtime = process(medium, "first")
    first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
    second = EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)
    await first.commit([Create(path="/a", data=b"")])
    lock_file = disk.open(f"{_DIRECTORY}/{shared_journal.LOCK_NAME}")
    lock_file.truncate(0)
    lock_file.pwrite(head, 0)
    await second.sync()
    assert await second.get("/a") is not None
    await first.commit([Create(path="/b", data=b"")])
    await second.sync()
    assert await second.children("/") == ["a", "b"]
    await asyncio.gather(first.close(), second.close())


async def test_a_reader_follows_through_any_number_of_rewritings() -> None:
    medium = machine()
    disk, writer_runtime = process(medium, "writer")
    reader = EmbeddedRegistry.open(process(medium, "reader")[1], _DIRECTORY)
    answers: list[int] = []
    reader.watch("/a", lambda: answers.append(1))
    with rewriting_often():
        writer = EmbeddedRegistry.open(writer_runtime, _DIRECTORY)
        await writer.commit([Create(path="/a", data=b""), Create(path="/own", data=b"", ephemeral=True)])
        for version in range(60):
            await writer.commit([Put(path="/a", data=b"x" * (version % 7) * 30, version=version)])
            if version % 3 == 0:
                await reader.sync()
                node = await reader.get("/a")
                assert node is not None
                assert node.version == version + 1
                assert disk.length(_JOURNAL) < 2000
                await asyncio.sleep(0)
    assert len(answers) >= 20
    await asyncio.gather(writer.close(), reader.close())


async def test_a_journal_that_was_put_back_is_believed_once_it_is_said_that_commits_are_lost() -> None:
    medium = machine()
    disk, first_runtime = process(medium, "first")
    first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
    await first.commit([Create(path="/a", data=b"")])
    path = _JOURNAL
    backup = disk.read(path)
    await first.commit([Create(path="/b", data=b"")])
    await first.close()
    disk.replace(path, backup)
    with pytest.raises(RegistryError, match=r"go on with the commits that are left, remove .*registry.lock"):
        EmbeddedRegistry.open(process(medium, "refused")[1], _DIRECTORY)
    disk.remove(f"{_DIRECTORY}/{shared_journal.LOCK_NAME}")
    restored = EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)
    assert await restored.children("/") == ["a"]
    await restored.commit([Create(path="/c", data=b"")])
    await restored.close()


@pytest.mark.parametrize("rot", ["zeroed", "cut off", "torn", "all of it", "an older rewriting"])
async def test_what_rots_at_the_end_of_the_journal_is_not_taken_for_a_torn_commit(rot: str) -> None:
    medium = machine()
    disk, first_runtime = process(medium, "first")
    with rewriting_often():
        first = EmbeddedRegistry.open(first_runtime, _DIRECTORY)
        await first.commit([Create(path="/a", data=b"")])
        older = disk.read(_JOURNAL)
        for version in range(20):
            await first.commit([Put(path="/a", data=b"x" * 30, version=version)])
    before = disk.length(_JOURNAL)
    await first.commit([Create(path="/b", data=b"")])
    after = disk.length(_JOURNAL)
    assert after > before
    journal = disk.open(_JOURNAL)
    if rot == "zeroed":
        journal.pwrite(bytes(after - before), before)
    elif rot == "an older rewriting":
        disk.replace(_JOURNAL, older)
    else:
        journal.truncate({"cut off": before, "torn": after - 7, "all of it": 0}[rot])
    with pytest.raises(RegistryError, match=r"registry\.journal is damaged: its commits were durable up to"):
        EmbeddedRegistry.open(process(medium, "second")[1], _DIRECTORY)


def test_while_a_process_is_stopped_in_the_middle_of_a_commit_the_others_read_and_refuse_to_write() -> None:
    with World(1) as world:
        host = world.host("machine")
        life = host.boot()
        stopped, _ = process(host.medium, "stopped")
        stopped.make_directory(_DIRECTORY)

        async def live() -> None:
            registry = EmbeddedRegistry.open(life.runtime, _DIRECTORY)
            await registry.commit([Create(path="/a", data=b"")])
            lock = stopped.lock_file(f"{_DIRECTORY}/{shared_journal.LOCK_NAME}")
            with pytest.raises(RegistryError, match="if it is stopped, let it go on or kill it"):
                await registry.commit([Create(path="/b", data=b"")])
            assert await registry.children("/") == ["a"]
            lock.release()
            await registry.commit([Create(path="/b", data=b"")])
            assert await registry.children("/") == ["a", "b"]
            await registry.close()

        world.run(lambda: host.spawn(live()))


def test_a_process_that_opens_while_another_writes_reads_when_it_is_first_asked() -> None:
    with World(2) as world:
        host = world.host("machine")
        life = host.boot()
        writing, other_runtime = process(host.medium, "writing")
        writing.make_directory(_DIRECTORY)

        async def live() -> None:
            first = EmbeddedRegistry.open(other_runtime, _DIRECTORY)
            await first.commit([Create(path="/a", data=b"")])
            lock = writing.lock_file(f"{_DIRECTORY}/{shared_journal.LOCK_NAME}")
            second = EmbeddedRegistry.open(life.runtime, _DIRECTORY)
            assert await second.children("/") == ["a"]
            lock.release()
            await asyncio.gather(first.close(), second.close())

        world.run(lambda: host.spawn(live()))
