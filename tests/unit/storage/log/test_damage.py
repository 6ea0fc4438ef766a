"""A replica that lost something, or finds it damaged: it says so, opens where others have it, and is mended by fetching."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import split_batches
from odradek.storage.directories.log_manager import MissingLogAction
from odradek.storage.files.damage import DamagedBatchError, LostRecordsError
from odradek.testing.sim import CrashAt, CrashKind, HostCrashed

Lab = Any
LOG = "00000000000000000000.log"


def batches_of(log: Any) -> list[Any]:
    records: list[Any] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        records += split_batches(bytearray(read.records))
        offset = read.next_offset
    return records


def damage(lab: Lab, name: str, position: int) -> None:
    """Bits rot in a file."""
    lab.medium.file(f"/data/flights-0/{name}").flip_bit(position, 3)


def filled(lab: Lab, config: LogConfig) -> tuple[Any, list[Any]]:
    log = lab.open(config)
    lab.fill(log, 60)
    lab.flush(log)
    return log, batches_of(log)


# -- when it is opened


@pytest.mark.parametrize("recovery_point", [30, 60])
def test_damage_below_the_recovery_point_is_refused_unless_others_have_it(
    lab: Lab, small: LogConfig, recovery_point: int
) -> None:
    _, before = filled(lab, small)
    lab.kill()
    name = lab.segment_names()[0]
    damage(lab, name, 5000)
    damage(lab, name, 5016)
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[-1]}")
    with pytest.raises(LostRecordsError) as caught:
        lab.open(small, clean=False, recovery_point=60)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log = lab.open(small, clean=False, recovery_point=60, repairable=True)
    assert log.damage
    assert log.end_offset < 10, "it ends before the first bad batch"
    assert batches_of(log) == before[: log.end_offset]
    log.append_as_follower(before[log.end_offset :], now_ms=lab.now_ms)
    assert log.damage, "what came again is not durable"
    lab.flush(log)
    assert log.damage is None
    assert batches_of(log) == before


def test_a_log_without_files_begins_again_where_others_have_it(lab: Lab, small: LogConfig) -> None:
    filled(lab, small)
    lab.kill()
    for name in lab.names():
        lab.disk.remove(f"/data/flights-0/{name}")
    with pytest.raises(LostRecordsError):
        lab.open(small, clean=False, recovery_point=60, start_offset=20)
    log = lab.open(small, clean=False, recovery_point=60, start_offset=20, repairable=True)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert log.damage


def test_what_an_opening_kept_is_not_spared_its_check_by_old_checkpoints(lab: Lab, small: LogConfig) -> None:
    for seed in range(10):
        here = type(lab)()
        here.lives = seed * 100
        here.mount()
        _, before = filled(here, small)
        here.kill()
        for name in here.segment_names()[1:]:
            here.disk.remove(f"/data/flights-0/{name}")
        here.disk.sync_directory("/data/flights-0")
        log = here.open(small, clean=False, recovery_point=60, repairable=True)
        log.append_as_follower(before[log.end_offset :], now_ms=here.now_ms)
        here.cut_power()
        log = here.open(small, clean=False, recovery_point=60, repairable=True)
        assert batches_of(log) == before[: log.end_offset]


async def test_a_log_that_ends_below_its_high_watermark_says_so_until_it_is_mended(
    lab: Lab, small: LogConfig
) -> None:
    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small)
    lab.fill(log, 60)
    lab.flush(log)
    before = batches_of(log)
    await directories.write_checkpoints({name: 50})
    assert directories.checkpointed_high_watermark(name) == 50
    lab.kill()
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[-1]}")
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[-1]}")
    lab.write("recovery-point-offset-checkpoint", b"0\n1\nflights 0 20\n", directory="/data")

    for _ in range(2):
        directories = lab.directories()
        log = await directories.open_log(name, topic_id, small, repairable=True)
        assert "50" in directories.damaged[name]
        assert directories.checkpointed_high_watermark(name) == log.end_offset
        await directories.write_checkpoints({name: 10})
        lab.kill()  # it is not forgotten before it is mended

    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small, repairable=True)
    log.append_as_follower(before[log.end_offset :], now_ms=lab.now_ms)
    lab.flush(log)
    assert directories.damaged == {}
    await directories.write_checkpoints({name: 55})
    await directories.close_logs()
    directories.close()
    assert lab.disk.read("/data/replication-offset-checkpoint") == b"0\n1\nflights 0 55\n"


async def test_a_replica_that_is_not_found_says_that_it_lost_all_until_no_one_counts_on_it(
    lab: Lab, small: LogConfig
) -> None:
    names = [TopicPartition("flights", 0), TopicPartition("planes", 0)]
    topic_id = UUID(int=7, version=4)
    directories = lab.directories()
    log = await directories.open_log(names[0], topic_id, small)
    lab.fill(log, 60)
    lab.flush(log)
    before = batches_of(log)
    await directories.write_checkpoints({names[0]: 50})
    await directories.close_logs()
    directories.close()
    for name in lab.disk.list_directory("/data/flights-0"):
        lab.disk.remove(f"/data/flights-0/{name}")
    lab.disk.remove_directory("/data/flights-0")

    directories = lab.directories()
    log = await directories.open_log(
        names[0], topic_id, small, repairable=True, if_absent=MissingLogAction.LACKS
    )
    await directories.open_log(names[1], UUID(int=8, version=4), small, is_new=True, repairable=True)

    assert (list(directories.damaged), log.end_offset) == ([names[0]], 0)
    for _ in range(2):
        lab.kill()  # the cluster did not hear of it
        directories = lab.directories()
        log = await directories.open_log(
            names[0], topic_id, small, repairable=True, if_absent=MissingLogAction.LACKS
        )
        assert list(directories.damaged) == [names[0]]
        log.append_as_follower(
            [
                batch
                for batch in before
                if log.end_offset <= batch[0].base_offset and batch[0].last_offset < 50
            ],
            now_ms=lab.now_ms,
        )
        lab.flush(log)
        assert log.lacks_records, "what it had, nothing here knows"

    note = directories.lack_notes[names[0]]
    await directories.settle_lack(log, replace(note, is_counted_on=False))
    log.mended()
    lab.kill()
    directories = lab.directories()
    log = await directories.open_log(names[0], topic_id, small, repairable=True)
    assert directories.damaged == {}
    assert not directories.lack_notes[names[0]].is_counted_on
    await directories.settle_lack(log, None)
    lab.cut_power()
    directories = lab.directories()
    await directories.open_log(names[0], topic_id, small, repairable=True)
    assert directories.lack_notes == {}


@pytest.mark.parametrize("kind", CrashKind)
async def test_an_empty_log_is_never_there_without_the_note_that_it_lacks_something(
    lab: Lab, small: LogConfig, kind: CrashKind
) -> None:
    """A crash after each step that the disk takes."""
    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    seen = 0
    for number in range(1000):
        here = type(lab)()
        crash = CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
        here.disk.faults.append(crash)
        finished = False
        with suppress(HostCrashed):
            await here.directories().open_log(
                name, topic_id, small, repairable=True, if_absent=MissingLogAction.LACKS
            )
            finished = True
        if finished:
            break
        here.mount()
        directories = here.directories()
        if directories.log_directory_of(name) is not None:
            await directories.open_log(name, topic_id, small, repairable=True)
            assert list(directories.damaged) == [name], number
            seen += 1
    assert seen > 3


@pytest.mark.parametrize("stop", ["clean", "kill"])
async def test_a_log_that_was_made_is_missed_when_it_is_gone_and_no_one_else_has_it(
    lab: Lab, small: LogConfig, stop: str
) -> None:
    name, topic_id, other = TopicPartition("flights", 0), UUID(int=7, version=4), UUID(int=8, version=4)
    directories = lab.directories()
    await directories.open_log(name, topic_id, small)
    assert directories.was_held(name, topic_id)
    if stop == "clean":
        await directories.close_logs()
        directories.close()
        lab.mount()
    else:
        await directories.record_created_logs()
        lab.kill()
    for file in lab.disk.list_directory("/data/flights-0"):
        lab.disk.remove(f"/data/flights-0/{file}")
    lab.disk.remove_directory("/data/flights-0")

    for _ in range(2):
        directories = lab.directories()
        assert directories.was_held(name, topic_id)
        assert not directories.was_held(name, other), "a topic that was made again is another one"
        with pytest.raises(LostRecordsError) as caught:
            await directories.open_log(name, topic_id, small, if_absent=MissingLogAction.LOST)
        assert "odradek cluster elect flights-0 --unclean" in caught.value.message
        assert not lab.disk.exists("/data/flights-0")
        await directories.note_evidence()
        lab.kill()
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small, repairable=True)  # the loss was accepted
    assert (log.end_offset, directories.damaged) == (0, {})


async def test_a_loss_that_only_the_cluster_knew_of_is_known_here_from_then_on(
    lab: Lab, small: LogConfig
) -> None:
    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    directories = lab.directories()
    assert not directories.was_held(name, topic_id)
    with pytest.raises(LostRecordsError):
        await directories.open_log(name, topic_id, small, if_absent=MissingLogAction.LOST)
    await directories.note_evidence()
    lab.cut_power()
    directories = lab.directories()
    assert directories.was_held(name, topic_id)
    await directories.delete_log(name)  # the topic was
    assert not directories.was_held(name, topic_id)


# -- high watermarks


async def test_high_watermarks_are_kept_bounded_and_follow_a_truncation(lab: Lab, small: LogConfig) -> None:
    name, other = TopicPartition("flights", 0), TopicPartition("planes", 0)
    directories = lab.directories()
    log = await directories.open_log(name, UUID(int=7, version=4), small)
    quiet = await directories.open_log(other, UUID(int=8, version=4), small)
    lab.fill(log, 60)
    await directories.write_checkpoints({name: 60, other: 0})
    assert directories.checkpointed_high_watermark(name) == 0, "nothing is durable"
    lab.flush(log)
    await directories.write_checkpoints({name: 55})
    await directories.checkpoint(quiet)
    assert directories.checkpointed_high_watermark(name) == 55
    log.truncate_to(20)
    lab.flush(log)
    assert directories.checkpointed_high_watermark(name) == 20
    lab.fill(log, 40)
    lab.flush(log)
    await directories.checkpoint(quiet)
    assert lab.disk.read("/data/replication-offset-checkpoint") == b"0\n2\nflights 0 20\nplanes 0 0\n"
    await directories.write_checkpoints({name: 44})
    await directories.close_logs()
    directories.close()
    directories = lab.directories()
    assert directories.checkpointed_high_watermark(name) == 44
    assert directories.checkpointed_high_watermark(TopicPartition("trains", 0)) is None
    directories.close()


async def test_a_truncation_that_no_checkpoint_knows_lowers_the_high_watermark(
    lab: Lab, small: LogConfig
) -> None:
    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small)
    lab.fill(log, 60)
    lab.flush(log)
    await directories.write_checkpoints({name: 60})
    log.truncate_to(20)
    lab.flush(log)
    lab.kill()
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small)
    assert (log.end_offset, directories.checkpointed_high_watermark(name)) == (20, 20)
    assert directories.damaged == {}
    lab.fill(log, 50)
    lab.flush(log)
    lab.kill()
    directories = lab.directories()
    await directories.open_log(name, topic_id, small)
    assert directories.checkpointed_high_watermark(name) == 20


# -- while it runs


@pytest.mark.parametrize("byte", [3, 14, 30, 80], ids=["base offset", "epoch", "header", "records"])
@pytest.mark.parametrize("to_send", [False, True])
def test_what_rotted_while_no_one_ran_is_not_served(
    lab: Lab, small: LogConfig, byte: int, to_send: bool
) -> None:
    heard: list[int] = []
    log, before = filled(lab, small)
    mark = lab.marks(LOG)[2]
    log.close()
    damage(lab, LOG, mark.position + byte)

    log = lab.open(small, on_damaged=lambda name, error: heard.append(error.offset))
    offset = mark.base_offset
    assert log.read(0, mark.position, end_offset=60, to_send=to_send).next_offset == offset
    with pytest.raises(DamagedBatchError) as caught:
        log.read(0, 1 << 20, end_offset=60, to_send=to_send)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert caught.value.offset <= offset
    assert heard == [caught.value.offset]
    log.truncate_to(heard[0])
    kept = batches_of(log)
    assert kept == before[: len(kept)]
    lab.flush(log)
    log.append_as_follower(before[len(kept) :], now_ms=lab.now_ms)
    lab.flush(log)
    assert batches_of(log) == before
    assert log.damage is None


def test_what_a_later_leader_appends_is_no_damage_to_who_reads_it_with_what_was_there_before(
    lab: Lab,
) -> None:
    log = lab.open()
    lab.append(log, b"a", epoch=1)
    lab.flush(log)
    log.close()
    log = lab.open()
    lab.append(log, b"b", epoch=4)
    assert log.read(0, 1 << 20, end_offset=2).next_offset == 2


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_segment_that_is_gone_from_the_middle_is_missed(lab: Lab, small: LogConfig, max_bytes: int) -> None:
    log, before = filled(lab, small)
    bounds = [int(name.removesuffix(".log")) for name in lab.segment_names()]
    log.close()
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[1]}")

    def read_all(log: Any) -> None:
        offset = 0
        while offset < 60:
            offset = log.read(offset, max_bytes, end_offset=60, at_least_one=True).next_offset

    log = lab.open(small)
    with pytest.raises(DamagedBatchError) as caught:
        read_all(log)
    assert caught.value.offset == bounds[1]
    log.truncate_to(bounds[1])
    lab.flush(log)
    log.append_as_follower(before[bounds[1] :], now_ms=lab.now_ms)
    assert batches_of(log) == before


def test_a_reader_that_meets_a_broken_batch_names_its_offset(lab: Lab, small: LogConfig) -> None:
    heard: list[Any] = []
    log = lab.open(small, on_damaged=lambda name, error: heard.append((str(name), error.offset)))
    lab.fill(log, 60)
    lab.flush(log)
    mark = next(batch_mark for batch_mark in lab.marks(LOG) if batch_mark.base_offset == 7)
    damage(lab, LOG, mark.position + 16)
    for _ in range(2):
        with pytest.raises(DamagedBatchError) as caught:
            log.read(7, 100, end_offset=60, at_least_one=True)
        assert (caught.value.code, caught.value.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 7)
    assert heard == [("flights-0", 7)]
    assert log.damage_offset == 7


def test_a_wrong_crc_is_found_when_it_is_asked_for(lab: Lab) -> None:
    log = lab.open()
    lab.fill(log, 3, value_bytes=50)
    before = batches_of(log)
    read = log.read(0, 1 << 20, end_offset=3)
    assert log.verify(read) is read
    mark = next(batch_mark for batch_mark in lab.marks(LOG) if batch_mark.base_offset == 1)
    damage(lab, LOG, mark.position + 80)
    with pytest.raises(DamagedBatchError) as caught:
        log.verify(log.read(0, 1 << 20, end_offset=3))
    assert (caught.value.code, caught.value.offset) == (ErrorCode.CORRUPT_MESSAGE, 1)
    assert log.damage
    log.truncate_to(1)
    lab.flush(log)
    log.append_as_follower(before[1:], now_ms=lab.now_ms)
    lab.flush(log)
    assert log.damage is None
    assert log.verify(log.read(0, 1 << 20, end_offset=3))


@pytest.mark.parametrize("offset", [7, 30])
def test_a_truncation_cuts_off_what_cannot_be_read(lab: Lab, small: LogConfig, offset: int) -> None:
    log, before = filled(lab, small)
    marks = lab.marks(LOG)
    damage(lab, LOG, marks[-1].position + 16)
    if offset == 7:
        first = next(mark for mark in marks if mark.base_offset == 7)
        damage(lab, LOG, first.position + 16)
        with pytest.raises(KafkaError):
            log.read(7, 100, end_offset=60, at_least_one=True)
    log.truncate_to(offset)
    assert log.end_offset <= offset
    lab.flush(log)
    log.append_as_follower(before[log.end_offset :], now_ms=lab.now_ms)
    lab.flush(log)
    if offset == 7:
        assert batches_of(log) == before
        assert log.damage is None
