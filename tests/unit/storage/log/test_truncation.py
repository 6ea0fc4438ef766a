"""A log whose end is taken away, or all of it: in memory at once, on the disk with the next flush, whole at every crash."""

from __future__ import annotations

import pytest
from tests.unit.storage.log.truncated import RESTARTS, Lab, at, fetch, reopened, whole

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError

# -- what is left


@pytest.mark.parametrize("offset", [1, 17, 18, 19, 20, 21, 35, 36, 37, 41, 59])
def test_what_lies_below_is_left_and_the_log_goes_on_there(lab: Lab, small: LogConfig, offset: int) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    before = whole(log)
    log.truncate_to(offset)
    assert (log.end_offset, log.flushed_offset, log.recovery_point) == (offset, offset, offset)
    assert whole(log) == before[:offset]
    lab.flush(log)
    assert whole(log) == before[:offset]
    assert log.size_bytes == sum(lab.disk.length(f"/data/flights-0/{name}") for name in lab.segment_names())
    fetch(lab, log, 30, epoch=2)
    assert [record.offset for record in lab.records(log)] == list(range(offset + 30))
    assert log.epoch_of(offset) == 2
    assert log.epoch_end_offset(0) == (0, offset)


@RESTARTS
@pytest.mark.parametrize("offset", [5, 19, 40])
def test_a_restart_finds_what_was_left_and_what_came_after(
    lab: Lab, small: LogConfig, offset: int, how: str
) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.truncate_to(offset)
    fetch(lab, log, 25, epoch=3)
    expected = whole(log)
    log = reopened(lab, log, small, how, recovery_point=60)
    assert whole(log) == expected
    assert log.epoch_end_offset(0) == (0, offset)
    assert log.latest_epoch == 3
    offsets = log.max_timestamp_offset()
    assert offsets is not None
    assert log.offset_for_timestamp(offsets.timestamp).offset <= offsets.offset


def test_a_batch_that_holds_the_offset_goes_as_a_whole(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"a", b"b")
    lab.append(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.end_offset == 2
    assert lab.values(log) == [b"a", b"b"]


def test_where_offsets_are_missing_the_log_ends_behind_the_last_batch(lab: Lab) -> None:
    log = lab.open()
    log.append_as_follower([at(lab, 4), at(lab, 20)], now_ms=lab.now_ms)
    log.truncate_to(15)
    assert log.end_offset == 5


def test_times_that_are_gone_are_not_found(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for number in range(40):
        lab.append(log, bytes(900), timestamps=(1000 + number,))
    log.truncate_to(25)
    assert log.max_timestamp_offset().timestamp == 1024
    assert log.offset_for_timestamp(1030) is None
    lab.flush(log)
    lab.append(log, bytes(900), timestamps=(1030,))
    assert log.offset_for_timestamp(1026).offset == 25


def test_the_cut_of_an_active_segment_reads_no_more_than_its_end(lab: Lab) -> None:
    """Also when all times are the same: the index in memory is known to be right."""
    log = lab.open()
    for _ in range(200):
        lab.append(log, bytes(900), timestamps=(1000,))
    lab.disk.points = []
    log.truncate_to(190)
    read = [point for point in lab.disk.points if point.operation == "pread"]
    assert len(read) <= 4
    assert log.max_timestamp_offset().offset == 0
    lab.flush(log)
    assert log.max_timestamp_offset().timestamp == 1000


def test_files_that_go_are_renamed_and_removed_later(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    names = lab.segment_names()
    log.truncate_to(5)
    lab.flush(log)
    assert lab.segment_names() == names[:1]
    assert lab.segment_names(".deleted") == [f"{name}.deleted" for name in names[1:]]
    assert lab.segment_names(".snapshot") == []
    assert lab.segment_names(".index") == [names[0].replace(".log", ".index")]
    lab.now_ms += small.file_delete_delay_ms + 1
    job = log.jobs.removal_job(lab.now_ms)
    job.run()
    log.jobs.removed(job, lab.now_ms + log.config.file_delete_delay_ms)
    assert lab.segment_names(".deleted") == []


def test_at_the_log_s_end_only_an_epoch_without_records_goes(lab: Lab) -> None:
    log = lab.open()
    lab.fill(log, 5, epoch=1)
    log.begin_epoch(4)
    for offset in (5, 9):
        log.truncate_to(offset)
        assert (log.end_offset, log.latest_epoch) == (5, 1)
    lab.flush(log)
    assert lab.read("leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_epochs_above_are_forgotten(lab: Lab) -> None:
    log = lab.open()
    lab.fill(log, 3, epoch=1)
    lab.fill(log, 3, epoch=4)
    lab.fill(log, 3, epoch=6)
    log.truncate_to(4)
    assert (log.latest_epoch, log.epoch_end_offset(6), log.epoch_end_offset(4)) == (4, (-1, -1), (4, 4))
    log.truncate_to(3)
    assert (log.latest_epoch, log.epoch_end_offset(1)) == (1, (1, 3))


# -- nothing is left


@RESTARTS
@pytest.mark.parametrize("offset", [0, 7, 20, 60, 1000])
def test_a_log_can_begin_again_anywhere(lab: Lab, small: LogConfig, offset: int, how: str) -> None:
    log = lab.open(small)
    lab.fill(log, 60, epoch=3)
    lab.flush(log)
    log.restart_at(offset)
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.latest_epoch) == (offset,) * 3 + (-1,)
    assert log.size_bytes == 0
    lab.flush(log)
    assert lab.segment_names() == [f"{offset:020d}.log"]
    fetch(lab, log, 25, epoch=1)
    expected = whole(log)
    log = reopened(lab, log, small, how, recovery_point=60, start_offset=50)
    assert (log.start_offset, log.end_offset, log.latest_epoch) == (offset, offset + 25, 1)
    assert whole(log) == expected


@RESTARTS
def test_an_empty_log_that_began_again_stays_there(lab: Lab, small: LogConfig, how: str) -> None:
    log = lab.open(small)
    lab.fill(log, 30)
    lab.flush(log)
    log.restart_at(500)
    lab.flush(log)
    log = reopened(lab, log, small, how, recovery_point=30)
    assert (log.start_offset, log.end_offset) == (500, 500)


@pytest.mark.parametrize("offset", [0, 3, 10])
def test_a_truncation_at_or_below_the_start_leaves_an_empty_log_there(lab: Lab, offset: int) -> None:
    log = lab.open()
    lab.fill(log, 20)
    lab.flush(log)
    log.delete_records(10)
    log.truncate_to(offset)
    assert (log.start_offset, log.end_offset) == (offset, offset)


def test_a_truncation_inside_the_batch_with_the_start_leaves_an_empty_log_at_the_start(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, *[b"x"] * 10)
    lab.flush(log)
    log.delete_records(4)
    log.truncate_to(8)
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_offsets_below_zero_are_refused(lab: Lab) -> None:
    log = lab.open()
    for call in (log.truncate_to, log.restart_at):
        with pytest.raises(KafkaError) as caught:
            call(-1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@RESTARTS
def test_an_empty_log_takes_a_first_batch_that_begins_before_it(lab: Lab, how: str) -> None:
    config = LogConfig()
    log = lab.open()
    lab.fill(log, 8)
    lab.flush(log)
    log.restart_at(105)
    lab.flush(log)
    first = at(lab, 100, *[b"x"] * 10)
    assert log.starts_inside_batch(first[0])
    log.begin_with(first[0])
    lab.flush(log)
    log.append_as_follower([first, at(lab, 110, b"y")], now_ms=lab.now_ms)
    assert (log.start_offset, log.end_offset) == (105, 111)
    assert len(lab.values(log)) == 6
    log = reopened(lab, log, config, how, recovery_point=8)
    assert (log.start_offset, log.end_offset) == (105, 111)
    assert len(lab.values(log)) == 6


# -- producers and transactions


def test_producers_are_those_of_what_is_left(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for sequence in range(40):
        lab.append(log, bytes(900), producer=(7, 0, sequence))
    lab.append(log, producer=(8, 0, 0))
    lab.flush(log)
    log.truncate_to(30)
    lab.flush(log)
    assert log.producers.get(8) is None
    assert lab.append(log, bytes(900), producer=(7, 0, 29)).duplicate
    assert lab.append(log, bytes(900), producer=(7, 0, 30)).first_offset == 30


@RESTARTS
def test_a_marker_that_is_gone_ended_nothing(lab: Lab, how: str) -> None:
    config = LogConfig()
    log = lab.open()
    for producer in (7, 8):
        lab.append(log, producer=(producer, 0, 0), transactional=True)
    lab.end(log, 7, commit=False)
    lab.end(log, 8, commit=False)
    log.close()
    log = lab.open()
    assert log.aborted_transactions(0, 4) == [(7, 0), (8, 1)]
    log.truncate_to(3)
    lab.flush(log)
    assert log.aborted_transactions(0, 3) == [(7, 0)]
    assert log.last_stable_offset(3) == 1
    lab.fill(log, 3, value_bytes=5)
    log = reopened(lab, log, config, how, recovery_point=4)
    assert log.aborted_transactions(0, 6) == [(7, 0)]
    assert log.last_stable_offset(6) == 1
    assert lab.end(log, 8, commit=True) == 6
    assert log.aborted_transactions(0, 7) == [(7, 0)]


def test_without_any_marker_left_there_is_no_index_of_them(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.append(log, producer=(7, 0, 0), transactional=True)
    lab.end(log, 7, commit=False)
    lab.fill(log, 40)
    lab.flush(log)
    assert lab.segment_names(".txnindex")
    log.truncate_to(1)
    lab.flush(log)
    assert not lab.segment_names(".txnindex")
    assert log.aborted_transactions(0, 1) == []


# -- the data directory's checkpoints


async def test_the_note_about_a_truncation_goes_with_the_next_checkpoint(lab: Lab, small: LogConfig) -> None:
    from uuid import UUID

    from odradek.model.ids import TopicPartition

    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small)
    lab.fill(log, 60)
    lab.flush(log)
    await directories.write_checkpoints()
    log.truncate_to(20)
    lab.flush(log)
    assert "truncation" in lab.names()
    await directories.write_checkpoints()
    assert "truncation" not in lab.names()
    log.truncate_to(10)
    await directories.close_logs()
    assert "truncation" in lab.names()
    directories.close()
    assert "truncation" not in lab.names()
    directories = lab.directories()
    assert (await directories.open_log(name, topic_id, small)).end_offset == 10
    directories.close()
