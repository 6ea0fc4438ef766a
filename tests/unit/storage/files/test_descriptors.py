"""Logs share descriptors: a log without writes gives its own back, and a lack of them is never the disk's fault."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.descriptors import UNLIMITED
from odradek.testing.sim import FailOperations

Lab = Any
TOPIC_ID = UUID(int=7, version=4)
FEW = replace(UNLIMITED, readers=2, writers=4)


@pytest.fixture
def lab_of_few(lab: Lab) -> Lab:
    lab.descriptors = FEW
    return lab


async def open_logs(directories: Any, count: int) -> list[Any]:
    names = [TopicPartition("t", number) for number in range(count)]
    return [await directories.open_log(name, TOPIC_ID, LogConfig()) for name in names]


async def test_more_logs_than_descriptors_are_written_and_read(lab_of_few: Lab) -> None:
    lab = lab_of_few
    directories = lab.directories()
    logs = await open_logs(directories, 20)
    for number in range(3):
        for log in logs:
            lab.append(log, b"%d" % number)
            lab.flush(log)
            assert directories.writer_file_count <= FEW.writers
    assert all([record.value for record in lab.records(log)] == [b"0", b"1", b"2"] for log in logs)
    assert directories.writer_file_count <= FEW.writers
    await directories.close_logs()
    directories.close()


async def test_what_is_not_durable_keeps_its_descriptor_and_others_must_wait(lab_of_few: Lab) -> None:
    lab = lab_of_few
    directories = lab.directories()
    logs = await open_logs(directories, 20)
    written, refused = [], []
    codes = set()
    for log in logs:
        try:
            lab.append(log)
            written.append(log)
        except KafkaError as error:
            codes.add(error.code)
            refused.append(log)
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(written) >= FEW.writers - 1
    assert len(refused) >= 20 - 2 * FEW.writers
    assert all(log.failed is None for log in logs), "it passes"
    for log in written:
        lab.flush(log)
    lab.append(refused[0])
    lab.flush(refused[0])
    assert refused[0].flushed_offset == 1
    await directories.close_logs()
    directories.close()


async def test_logs_that_no_one_flushes_are_flushed_when_others_need_their_descriptors(
    lab_of_few: Lab,
) -> None:
    lab = lab_of_few
    directories = lab.directories()
    logs = {log.topic_partition: log for log in await open_logs(directories, 20)}
    assert directories.drain_crowding_logs() == []
    waiting = dict(logs)
    for _ in range(len(logs)):
        for name, log in list(waiting.items()):
            with contextlib.suppress(KafkaError):
                lab.append(log)
                del waiting[name]
        if not waiting:
            break
        crowding = directories.drain_crowding_logs()
        assert crowding
        for name in crowding:
            lab.flush(logs[name])
    assert not waiting
    await directories.close_logs()
    directories.close()


async def test_a_lack_of_descriptors_takes_no_directory_offline(lab: Lab) -> None:
    directories = lab.directories()
    (log,) = await open_logs(directories, 1)
    failed: list[str] = []
    directories.on_failure(lambda path, error: failed.append(path))
    lab.append(log)
    lab.disk.faults.append(
        FailOperations(operations={"open", "create", "sync_directory"}, error=errno.EMFILE)
    )
    directories.fail(log, OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(KafkaError):
        await directories.delete_log(log.topic_partition)
    lab.disk.faults.clear()
    assert failed == []
    assert not directories.all_failed
    directories.close()


def test_a_start_without_descriptors_says_so(lab: Lab) -> None:
    lab.directories().close()
    lab.disk.faults.append(FailOperations(operations={"open", "sync_directory"}, error=errno.EMFILE))
    with pytest.raises(ConfigError, match="Raise the limit of open files"):
        lab.directories()
    lab.disk.faults.clear()
    lab.directories().close()
