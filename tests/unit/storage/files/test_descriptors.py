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
from odradek.storage.files.open_files import CrowdedError, OpenFiles
from odradek.storage.files.writer import SegmentWriter
from odradek.testing.guarded_disk import off_loop
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


class _Writers:
    """Dirty writers of files of their own, and the `OpenFiles` that they share."""

    def __init__(self, lab: Lab, writers_max: int, kind: type[SegmentWriter] = SegmentWriter) -> None:
        self._kind = kind
        self._disk = lab.runtime.disk
        self._disk.make_directory("/w")
        self.files = OpenFiles(self._disk, 4, writers_max)
        self.asked: list[SegmentWriter] = []
        self.files.on_crowding = lambda: self.asked.extend(self.files.drain_crowding())
        self._count = 0

    def resting(self) -> SegmentWriter:
        self._count += 1
        writer = self._kind(self._disk.open(f"/w/{self._count}", create=True))
        assert writer.rest()
        return writer

    def write(self, writer: SegmentWriter, *, is_urgent: bool = False) -> None:
        if writer.resting:
            self.files.wake(writer, is_urgent=is_urgent)
        writer.write_count += 1

    def write_many(self, count: int) -> list[SegmentWriter]:
        writers = [self.resting() for _ in range(count)]
        for writer in writers:
            self.write(writer)
        return writers

    def sync(self, *writers: SegmentWriter) -> None:
        with off_loop():
            for writer in writers:
                writer.sync()
        self.files.synced(writers)


@pytest.fixture
def writers(lab: Lab) -> _Writers:
    return _Writers(lab, 64)


async def test_the_oldest_writers_are_flushed_before_the_last_descriptor_is_taken(writers: _Writers) -> None:
    dirty = writers.write_many(58)
    assert writers.files.writer_file_count < 60, "4 of 64 are left to appends that cannot wait"
    assert 0 < len(writers.asked) <= 15
    assert writers.asked == dirty[: len(writers.asked)]


async def test_a_flush_lets_one_append_in_for_each_descriptor_in_the_order_in_which_they_came(
    writers: _Writers,
) -> None:
    dirty = writers.write_many(60)
    waiting = writers.resting()
    with pytest.raises(CrowdedError):
        writers.write(waiting)
    gone, *futures = [writers.files.when_room() for _ in range(4)]
    gone.cancel()
    writers.sync(dirty[0])
    assert [future.done() for future in futures] == [True, False, False]
    assert dirty[0].resting
    writers.write(waiting)
    with pytest.raises(CrowdedError):
        writers.write(dirty[0])
    writers.sync(*dirty[1:3])
    assert all(future.done() for future in futures)


async def test_a_writer_that_was_written_to_during_its_flush_keeps_its_descriptor(writers: _Writers) -> None:
    dirty = writers.write_many(60)
    future = writers.files.when_room()
    with off_loop():
        dirty[0].sync()
    writers.write(dirty[0])
    writers.files.synced([dirty[0]])
    assert not future.done()
    assert not dirty[0].resting
    writers.sync(dirty[0])
    assert future.done()


async def test_an_urgent_append_gets_a_descriptor_where_others_must_wait(writers: _Writers) -> None:
    writers.write_many(60)
    for _ in range(4):
        writers.write(writers.resting(), is_urgent=True)
    with pytest.raises(CrowdedError):
        writers.write(writers.resting(), is_urgent=True)
    assert writers.files.writer_file_count == 64


async def test_descriptors_of_closed_logs_are_noticed_by_a_review(writers: _Writers) -> None:
    dirty = writers.write_many(60)
    future = writers.files.when_room()
    for writer in dirty[:30]:
        writer.close()
    assert not future.done()
    writers.files.review_crowding()
    assert future.done()
    writers.write_many(20)


async def test_a_flush_that_was_lost_is_asked_for_again(writers: _Writers) -> None:
    writers.write_many(60)
    asked = list(writers.asked)
    writers.asked.clear()
    writers.files.review_crowding()
    assert writers.asked[: len(asked)] == asked


async def test_logs_that_are_opened_while_others_are_crowded_take_no_descriptor(writers: _Writers) -> None:
    writers.write_many(60)
    for _ in range(40):
        writer = writers.resting()
        writers.files.opened(writer)
        assert writer.resting
    assert writers.files.writer_file_count == 60


async def test_a_crowd_is_logged_once_until_it_is_over_for_a_while(
    writers: _Writers, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> int:
        with pytest.raises(CrowdedError):
            writers.write(writers.resting())
        return sum("writers_crowded" in record.getMessage() for record in caplog.records)

    dirty = writers.write_many(60)
    assert [refused() for _ in range(3)] == [1, 1, 1]
    writers.sync(*dirty)
    writers.write_many(60)
    assert refused() == 1, "it began again at once"


async def test_writers_that_are_durable_are_no_crowd(writers: _Writers) -> None:
    """They rest for others, however many there are, and nothing is flushed for that."""
    for writer in writers.write_many(50):
        writers.sync(writer)
    for _ in range(200):
        (writer,) = writers.write_many(1)
        writers.sync(writer)
        assert writers.files.writer_file_count <= 60
    assert writers.asked == []


async def test_where_there_are_fewer_descriptors_later_writers_rest_and_the_oldest_are_flushed(
    writers: _Writers,
) -> None:
    durable, *dirty = writers.write_many(40)
    writers.sync(durable)
    assert writers.asked == []
    writers.files.resize(4, 32)
    assert durable.resting
    assert writers.asked[0] is dirty[0]
    waiting = writers.resting()
    with pytest.raises(CrowdedError):
        writers.write(waiting)
    while writers.files.writer_file_count > 24:
        writers.sync(dirty.pop(0))
    writers.write(waiting)


async def test_where_there_are_more_descriptors_later_waiting_appends_get_them(writers: _Writers) -> None:
    writers.write_many(60)
    waiting = writers.resting()
    with pytest.raises(CrowdedError):
        writers.write(waiting)
    future = writers.files.when_room()
    writers.files.resize(4, 128)
    assert future.done()
    writers.write(waiting)


def test_where_there_are_fewer_descriptors_later_files_for_reading_are_closed(lab: Lab) -> None:
    lab.disk.make_directory("/r")
    files = OpenFiles(lab.disk, 4)
    for name in "abcd":
        lab.disk.open(f"/r/{name}", create=True)
        files.get(f"/r/{name}")
    files.resize(1, 64)
    assert len(files) == 1


async def test_a_look_at_the_descriptors_of_many_writers_asks_each_of_them_once(lab: Lab) -> None:
    asked: list[SegmentWriter] = []

    class Asked(SegmentWriter):
        __slots__ = ()

        @property
        def open_file_count(self) -> int:
            asked.append(self)
            return super().open_file_count

    writers = _Writers(lab, 4000, Asked)
    for writer in writers.write_many(600):
        writers.sync(writer)
    looks = (64, 128, 256, 512)  # each after as many new writers as there were
    assert sum(looks) - len(looks) <= len(asked) <= sum(looks)
