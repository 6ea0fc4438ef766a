"""Where a log begins whose records were deleted by request: what is deleted does not come back, and no more is hidden."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.unit.storage.conftest import PARTITION, TOPIC_ID

from odradek.config.topic import LogConfig
from odradek.testing.sim import CrashAt, CrashKind, HostCrashed

Lab = Any
COPY = "/data/flights-0/log-start-offset"
CHECKPOINT = "/data/log-start-offset-checkpoint"


async def opened(directories: Any, config: LogConfig | None = None) -> Any:
    return await directories.open_log(PARTITION, TOPIC_ID, config or LogConfig())


async def deleted_up_to(lab: Lab, offset: int, config: LogConfig | None = None) -> None:
    """A log of 60 records, cleanly closed."""
    directories = lab.directories()
    log = await opened(directories, config)
    lab.fill(log, 60)
    lab.flush(log)
    log.delete_records(offset)
    await directories.write_checkpoints()
    await directories.close_logs()
    directories.close()


async def start_offset(lab: Lab) -> int:
    return int((await opened(lab.directories())).start_offset)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="lost"),
        pytest.param(b"", id="cut"),
        pytest.param(b"0\n1\nflights 0 5\n", id="too low"),
        pytest.param(b"0\n1\nflights 0 57\n", id="too high"),
        pytest.param(b"0\n1\nflights 0 157\n", id="behind the end"),
        pytest.param(b"0\n1\nflightr 0 7\n", id="of another partition"),
    ],
)
async def test_a_checkpoint_that_is_lost_or_rotten_neither_brings_records_back_nor_hides_others(
    lab: Lab, content: bytes | None
) -> None:
    await deleted_up_to(lab, 7)
    if content is None:
        lab.disk.remove(CHECKPOINT)
    else:
        lab.write("log-start-offset-checkpoint", content, directory="/data")
    assert await start_offset(lab) == 7


@pytest.mark.parametrize("position", range(0, 40, 3))
async def test_a_rotten_copy_is_not_believed(lab: Lab, position: int) -> None:
    await deleted_up_to(lab, 7)
    file = lab.medium.file(COPY)
    file.flip_bit(position % len(lab.disk.read(COPY)), 1)
    assert await start_offset(lab) == 7


async def test_a_checkpoint_without_sums_is_believed(lab: Lab) -> None:
    await deleted_up_to(lab, 7)
    lab.disk.remove(CHECKPOINT + "-sums")
    lab.disk.remove(COPY)
    lab.write("log-start-offset-checkpoint", b"0\n1\nflights 0 9\n", directory="/data")
    assert await start_offset(lab) == 9


async def test_deleted_records_stay_deleted_though_power_fails_before_the_checkpoint(lab: Lab) -> None:
    log = await opened(lab.directories())
    lab.fill(log, 60)
    lab.flush(log)
    assert not log.flush_due
    log.delete_records(7)
    assert log.flush_due
    lab.flush(log)
    assert not log.flush_due
    lab.cut_power()
    assert await start_offset(lab) == 7


async def test_a_log_that_began_again_may_begin_earlier(lab: Lab) -> None:
    await deleted_up_to(lab, 7)
    directories = lab.directories()
    log = await opened(directories)
    log.restart_at(3)
    lab.flush(log)
    lab.cut_power()
    directories = lab.directories()
    log = await opened(directories)
    assert (log.start_offset, log.end_offset) == (3, 3)
    lab.fill(log, 20)
    lab.flush(log)
    await directories.write_checkpoints()
    lab.cut_power()
    log = await opened(lab.directories())
    assert (log.start_offset, log.end_offset) == (3, 23)


@pytest.mark.parametrize("kind", list(CrashKind))
@pytest.mark.parametrize("number", range(1, 14))
async def test_a_crash_while_the_checkpoint_is_written_brings_nothing_back(
    lab: Lab, kind: CrashKind, number: int
) -> None:
    directories = lab.directories()
    log = await opened(directories)
    lab.fill(log, 20)
    lab.flush(log)
    log.delete_records(5)
    await directories.write_checkpoints()
    log.delete_records(9)
    crash = CrashAt(number=lab.disk.point_count + number, kind=kind, rng=Random(number))
    lab.disk.faults.append(crash)
    with suppress(HostCrashed):
        await directories.write_checkpoints()
    lab.kill()
    assert await start_offset(lab) in (5, 9)


async def opened_again(lab: Lab, *, repairable: bool = True) -> Any:
    return await lab.directories().open_log(PARTITION, TOPIC_ID, LogConfig(), repairable=repairable)


def rot(lab: Lab, path: str, how: str) -> None:
    if how == "rotten":
        lab.medium.file(path).flip_bit(3, 1)
    elif how == "gone":
        lab.disk.remove(path)


@pytest.mark.parametrize("copy", ["rotten", "gone"])
@pytest.mark.parametrize("checkpoint", ["rotten", "gone"])
async def test_where_the_log_begins_is_asked_of_another_replica_when_nothing_here_says_it(
    lab: Lab, copy: str, checkpoint: str
) -> None:
    await deleted_up_to(lab, 7)
    rot(lab, COPY, copy)
    rot(lab, CHECKPOINT, checkpoint)
    directories = lab.directories()
    log = await directories.open_log(PARTITION, TOPIC_ID, LogConfig(), repairable=True)
    assert (log.start_offset, log.start_is_doubted, directories.doubtful) == (0, True, [PARTITION])
    lab.fill(log, 5)
    lab.flush(log)
    log.begins_at(9)
    assert log.start_is_doubted, "it begins earlier than that still"
    log.delete_records(9)
    log.begins_at(9)
    assert (log.start_is_doubted, directories.doubtful) == (False, [])
    lab.flush(log)
    lab.cut_power()
    log = await opened_again(lab)
    assert (log.start_offset, log.start_is_doubted) == (9, False)


async def test_a_doubt_that_ends_where_nothing_was_deleted_does_not_come_back(lab: Lab) -> None:
    await deleted_up_to(lab, 0)
    rot(lab, CHECKPOINT, "rotten")
    log = await opened_again(lab)
    assert log.start_is_doubted
    log.begins_at(0)
    assert log.flush_due
    lab.flush(log)
    lab.cut_power()
    log = await opened_again(lab)
    assert (log.start_offset, log.start_is_doubted) == (0, False)


@pytest.mark.parametrize(
    ("copy", "checkpoint", "repairable", "offset_after"),
    [
        pytest.param("rotten", "sound", True, 7, id="the checkpoint of a clean close says it"),
        pytest.param("sound", "rotten", True, 7, id="the copy says it"),
        pytest.param("sound", "gone", True, 7, id="the copy alone is there"),
        pytest.param("rotten", "rotten", False, 0, id="no one else knows"),
    ],
)
async def test_there_is_no_doubt_when(
    lab: Lab, copy: str, checkpoint: str, repairable: bool, offset_after: int
) -> None:
    await deleted_up_to(lab, 7)
    rot(lab, COPY, copy)
    rot(lab, CHECKPOINT, checkpoint)
    log = await opened_again(lab, repairable=repairable)
    assert (log.start_offset, log.start_is_doubted) == (offset_after, False)


async def test_a_log_that_is_new_has_no_doubt_about_its_beginning(lab: Lab) -> None:
    await deleted_up_to(lab, 7)
    rot(lab, CHECKPOINT, "rotten")
    directories = lab.directories()
    log = await directories.open_log(PARTITION._replace(partition=1), TOPIC_ID, LogConfig(), repairable=True)
    assert not log.start_is_doubted


async def test_a_flush_that_comes_late_does_not_undo_what_a_later_one_wrote(lab: Lab) -> None:
    log = await opened(lab.directories())
    lab.fill(log, 60)
    lab.flush(log)
    log.delete_records(7)
    late = log.flush_job()
    log.delete_records(9)
    lab.flush(log)
    late.run()
    log.flushed(late)
    lab.cut_power()
    assert await start_offset(lab) == 9
