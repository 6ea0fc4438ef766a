"""A log on its way to another data directory: complete when it arrives, and never lost on the way."""

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.directories.log_dir_move import FUTURE, moving_directory, parse_moving_directory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.testing.guarded_disk import off_loop
from odradek.testing.sim import CrashAt, CrashKind, HostCrashed

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)
A, B = "/a", "/b"


@pytest.fixture
def small(small: LogConfig) -> LogConfig:
    return replace(small, segment_bytes=20_000)


async def opened(lab: Any, config: LogConfig) -> tuple[LogManager, Log]:
    for path in (A, B):
        lab.medium.make_durable_folder(path)
    directories = lab.directories(A, B)
    return directories, await directories.open_log(PARTITION, TOPIC_ID, config)


def elsewhere(directories: LogManager) -> str:
    return B if directories.log_directory_of(PARTITION) == A else A


async def move(directories: LogManager, log: Log, config: LogConfig) -> Log:
    copy = directories.begin_move(PARTITION, elsewhere(directories))
    with off_loop():
        copy.begin()
    with off_loop():
        copy.run(log.end_offset)
    return await directories.move_log(PARTITION, copy, TOPIC_ID, config)


async def test_everything_arrives_and_the_old_files_go(lab: Any, small: LogConfig) -> None:
    directories, log = await opened(lab, small)
    lab.fill(log, 60)
    lab.append(log, b"x", producer=(9, 0, 0))
    log.delete_records(5)
    before, target = lab.values(log), elsewhere(directories)
    log = await move(directories, log, small)
    assert log.directory == f"{target}/flights-0"
    assert (log.start_offset, log.end_offset, log.flushed_offset) == (5, 61, 61)
    assert lab.values(log) == before
    assert lab.append(log, b"x", producer=(9, 0, 0)).duplicate, "producers are known at the new place"
    lab.append(log, b"y", producer=(9, 0, 1))
    await directories.remove_deleted()
    left = [name for path in (A, B) for name in lab.names(path) if name.startswith("flights")]
    assert left == ["flights-0"]


async def test_what_is_appended_between_passes_is_copied_too(lab: Any, small: LogConfig) -> None:
    directories, log = await opened(lab, small)
    copy = directories.begin_move(PARTITION, elsewhere(directories))
    with off_loop():
        copy.begin()
    copied = []
    for _ in range(5):
        lab.fill(log, 15)
        with off_loop():
            copied.append(copy.run(log.end_offset))
    assert copy.copied_offset == 75
    assert max(copied[1:]) < 2 * copied[0] + 20_000, "what was there is not copied again"
    lab.fill(log, 3)
    before = lab.values(log)
    log = await directories.move_log(PARTITION, copy, TOPIC_ID, small)
    assert lab.values(log) == before


async def test_segments_deleted_meanwhile_do_not_come_back(lab: Any, small: LogConfig) -> None:
    directories, log = await opened(lab, replace(small, retention_bytes=1, file_delete_delay_ms=0))
    lab.fill(log, 60)
    lab.flush(log)
    copy = directories.begin_move(PARTITION, elsewhere(directories))
    with off_loop():
        copy.begin()
    with off_loop():
        copy.run(log.end_offset)
    for _ in range(2):
        await directories.apply_retention(log, lab.now_ms)
        lab.now_ms += 60_000
    start_offset = log.start_offset
    assert start_offset > 0
    log = await directories.move_log(PARTITION, copy, TOPIC_ID, small)
    assert log.start_offset == start_offset
    assert [record.offset for record in lab.records(log)] == list(range(start_offset, 60))


async def test_ages_of_segments_are_kept(lab: Any, small: LogConfig) -> None:
    directories, log = await opened(lab, small)
    lab.fill(log, 60)
    lab.flush(log)
    hours = 3_600_000
    config = replace(small, retention_ms=5 * hours)
    lab.now_ms += 4 * hours
    log = await move(directories, log, config)
    assert not log.apply_retention(lab.now_ms)
    lab.now_ms += 2 * hours
    assert log.apply_retention(lab.now_ms)


@pytest.mark.parametrize("kind", list(CrashKind))
async def test_a_crash_at_any_point_loses_nothing(lab: Any, small: LogConfig, kind: CrashKind) -> None:
    finished = crashed = 0
    for number in range(1, 400, 3):
        here = type(lab)()
        directories, log = await opened(here, small)
        here.fill(log, 30)
        here.flush(log)
        before, target = here.values(log), elsewhere(directories)
        here.disk.faults.append(CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number)))
        try:
            log = await move(directories, log, small)
            here.append(log, b"after")
            here.flush(log)
            before.append(b"after")
        except HostCrashed:
            crashed += 1
        else:
            break
        here.mount()
        directories = here.directories(A, B)
        log = await directories.open_log(PARTITION, TOPIC_ID, small)
        assert here.values(log)[: len(before)] == before, number
        finished += directories.log_directory_of(PARTITION) == target
        await directories.remove_deleted()
        left = [name for path in (A, B) for name in here.names(path) if name.startswith("flights")]
        assert left == ["flights-0"], number
    assert crashed > 20
    assert 0 < finished < crashed


async def test_a_move_into_a_full_directory_leaves_the_log_where_it_was(lab: Any, small: LogConfig) -> None:
    directories, log = await opened(lab, small)
    lab.fill(log, 30)
    lab.flush(log)
    before = lab.values(log)
    lab.medium.capacity_bytes = lab.medium.used_bytes() + 5000
    copy = directories.begin_move(PARTITION, elsewhere(directories))
    with off_loop():
        copy.begin()
    with pytest.raises(OSError, match="space"), off_loop():
        copy.run(log.end_offset)
    await directories.give_up_move(copy)
    assert lab.values(log) == before
    assert not directories.all_failed


async def test_directories_that_cannot_be_are_refused(lab: Any, small: LogConfig) -> None:
    directories, _ = await opened(lab, small)
    with pytest.raises(KafkaError) as unknown:
        directories.begin_move(PARTITION, "/nowhere")
    assert unknown.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    directories.all()[1].failed(OSError(5, "broken"))
    with pytest.raises(KafkaError) as offline:
        directories.begin_move(PARTITION, B)
    assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_names_of_moving_directories_are_kafkas_and_read_back() -> None:
    move_id = UUID(int=5).hex
    name = moving_directory(PARTITION, move_id, FUTURE)
    assert name == f"flights-0.{move_id}-future"
    assert parse_moving_directory(name) == (PARTITION, move_id, FUTURE)
    assert parse_moving_directory("flights-0") is None
    with pytest.raises(KafkaError):
        moving_directory(TopicPartition("t" * 249, 0), move_id, FUTURE)
