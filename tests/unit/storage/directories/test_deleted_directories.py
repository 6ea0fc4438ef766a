"""The space of deleted partitions: free soon, also on a full disk and after a crash."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.storage.directories.deleted_directories import DeletedDirectories
from odradek.storage.directories.rename_batch import Rename, RenameBatch
from odradek.testing.sim import FailOperations

Lab = Any
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)


async def filled(lab: Lab, directories: Any) -> Any:
    log = await directories.open_log(FLIGHTS, TOPIC_ID, LogConfig(segment_bytes=20_000))
    lab.fill(log, 60)
    lab.flush(log)
    return log


def of_flights(lab: Lab) -> list[str]:
    return [name for name in lab.names("/data") if name.startswith("flights-0")]


async def settled(lab: Lab) -> None:
    for _ in range(200):
        if not of_flights(lab):
            return
        await asyncio.sleep(0)


async def test_a_deleted_partitions_files_go_in_the_background(lab: Lab) -> None:
    directories = lab.directories()
    await filled(lab, directories)
    await directories.delete_log(FLIGHTS)
    directories.remove_deleted_soon()
    await settled(lab)
    assert of_flights(lab) == []
    await directories.close_logs()
    directories.close()


async def test_what_a_crash_left_of_a_deleted_partition_goes_after_the_start(lab: Lab) -> None:
    directories = lab.directories()
    await filled(lab, directories)
    await directories.delete_log(FLIGHTS)
    lab.kill()
    assert len(of_flights(lab)) == 1
    directories = lab.directories()
    directories.remove_deleted_soon()
    await settled(lab)
    assert of_flights(lab) == []
    directories.close()


async def test_a_disk_too_full_for_a_new_name_still_gives_the_space_back(lab: Lab) -> None:
    directories = lab.directories()
    await filled(lab, directories)
    lab.disk.faults.append(FailOperations(operations={"rename"}, error=errno.ENOSPC))
    await directories.delete_log(FLIGHTS)
    lab.disk.faults.clear()
    assert of_flights(lab) == []
    assert not directories.all_failed
    directories.close()


async def test_what_could_not_be_removed_is_tried_again(lab: Lab) -> None:
    directories = lab.directories()
    await filled(lab, directories)
    await directories.delete_log(FLIGHTS)
    lab.disk.faults.append(FailOperations(operations={"remove"}, error=errno.EACCES))
    await directories.remove_deleted()
    assert len(of_flights(lab)) == 1
    lab.disk.faults.clear()
    await directories.remove_deleted()
    assert of_flights(lab) == []
    directories.close()


async def test_closing_waits_for_no_more_than_the_file_that_is_being_removed(lab: Lab) -> None:
    directories = lab.directories()
    await filled(lab, directories)
    await directories.delete_log(FLIGHTS)
    directories.remove_deleted_soon()
    await directories.close_logs()
    directories.close()
    assert len(of_flights(lab)) == 1, "the next start goes on"


class CountingOffload:
    """An offload that counts what is run."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        self.runs.append(getattr(work, "__name__", ""))
        await asyncio.sleep(0)
        return work(*arguments)


def renames(count: int) -> list[Rename]:
    return [Rename("/data", f"/data/{number}", f"/data/{number}-delete") for number in range(count)]


async def test_directories_that_are_renamed_together_share_a_sync(lab: Lab) -> None:
    lab.disk.make_directory("/data")
    for wanted in renames(70)[1:]:
        lab.disk.make_directory(wanted.path)
    synced: list[str] = []
    offload, sync = CountingOffload(), lab.disk.sync_directory
    lab.disk.sync_directory = lambda path: (sync(path), synced.append(path))
    batch = RenameBatch(lab.disk, offload)
    await asyncio.gather(*map(batch.rename, renames(70)))
    assert (len(offload.runs), synced) == (2, ["/data", "/data"]), "64 and 6 of them"
    assert sorted(lab.names("/data")) == sorted(f"{number}-delete" for number in range(1, 70))


async def test_a_rename_that_fails_leaves_the_others_alone(lab: Lab) -> None:
    lab.disk.make_directory("/data")
    for wanted in renames(3):
        lab.disk.make_directory(wanted.path)
    batch = RenameBatch(lab.disk, CountingOffload())
    fault = FailOperations(operations={"rename"}, path_test=lambda path: path == "/data/1")
    lab.disk.faults.append(fault)
    outcomes = await asyncio.gather(*map(batch.rename, renames(3)), return_exceptions=True)
    assert [isinstance(outcome, OSError) for outcome in outcomes] == [False, True, False]
    lab.disk.faults[:] = [FailOperations(operations={"sync_directory"})]
    outcomes = await asyncio.gather(*map(batch.rename, renames(2)), return_exceptions=True)
    assert [isinstance(outcome, OSError) for outcome in outcomes] == [False, True], "0 was renamed before"


async def test_small_directories_go_many_at_a_time_and_large_files_one_by_one(lab: Lab) -> None:
    offload = CountingOffload()
    deleted = DeletedDirectories(lab.disk, offload)
    for number in range(40):
        path = f"/data/t-{number}.x-delete"
        lab.disk.make_directory("/data")
        lab.disk.make_directory(path)
        for name, size_bytes in (("a.log", 2_000_000 if number == 5 else 10), ("a.index", 10)):
            file = lab.disk.open(f"{path}/{name}", create=True)
            file.pwrite(bytes(size_bytes), 0)
            file.close()
        deleted.add(path)
    await deleted.remove()
    assert lab.names("/data") == []
    assert len(offload.runs) == 2 + 3, "two portions; two files and a directory that was large"
