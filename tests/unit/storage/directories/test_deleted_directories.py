"""The space of deleted partitions: free soon, also on a full disk and after a crash."""

from __future__ import annotations

import asyncio
import errno
from typing import Any
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
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
