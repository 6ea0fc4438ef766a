"""From where to where a log is durable: written down every second, so that what is lost in a crash is noticed."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.unit.storage.conftest import PARTITION, TOPIC_ID

from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.damage import LostRecordsError
from odradek.storage.files.extents import Extent, decode, encode_all, encode_changed
from odradek.testing.sim import CrashAt, CrashKind, FailOperations, HostCrashed

Lab = Any
EXTENTS = "/data/log-extents"
POINTS = "/data/recovery-point-offset-checkpoint"
ONE = TopicPartition("flights", 0)
OTHER = TopicPartition("перелёты", 7)


async def opened(directories: Any, config: LogConfig, **more: Any) -> Any:
    return await directories.open_log(PARTITION, TOPIC_ID, config, **more)


async def filled(lab: Lab, config: LogConfig, count: int = 60) -> tuple[Any, Any]:
    """A log with records that are durable, and whose extent is written down; no checkpoint speaks of it."""
    directories = lab.directories()
    log = await opened(directories, config)
    lab.fill(log, count)
    lab.flush(log)
    await directories.write_extents()
    return directories, log


async def stop(directories: Any) -> None:
    await directories.write_checkpoints()
    await directories.close_logs()
    directories.close()


def remove_segment(lab: Lab, number: int) -> None:
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[number]}")
    lab.disk.sync_directory("/data/flights-0")


# -- the file


def file_of_three_blocks() -> tuple[bytes, list[int], list[dict[TopicPartition, Extent]]]:
    """A file, where its blocks end, and what it says up to each end."""
    said = [{ONE: Extent(0, 5, 6), OTHER: Extent(3, 3, 3)}, {ONE: Extent(0, 9, 9)}, {OTHER: Extent(4, 8, 9)}]
    data, crc = encode_all(said[0], [b"0\n0\n", b""])
    ends = [len(data)]
    for changed in said[1:]:
        block, crc = encode_changed(changed, crc)
        data += block
        ends.append(len(data))
    return data, ends, [said[0], said[0] | said[1], said[0] | said[1] | said[2]]


def test_a_file_says_what_was_written_last_of_each_log() -> None:
    data, _, said = file_of_three_blocks()
    decoded = decode(data)
    assert decoded.extents == said[-1]
    assert decoded.is_whole
    assert decoded.go_with(b"")
    assert decoded.go_with(b"0\n0\n")
    assert not decoded.go_with(b"0\n1\nflights 0 9\n")


def test_what_is_cut_short_anywhere_says_what_came_before() -> None:
    data, ends, said = file_of_three_blocks()
    for length in range(len(data)):
        whole = sum(end <= length for end in ends)
        if not whole:
            with pytest.raises(BadCheckpointError):
                decode(data[:length])
        else:
            decoded = decode(data[:length])
            assert decoded.extents == said[whole - 1]
            assert decoded.is_whole == (length == ends[whole - 1])


@pytest.mark.parametrize("tail", [bytes(4), bytes(8), bytes(512), b"\xff" * 40])
def test_what_a_power_cut_left_behind_the_last_block_says_nothing(tail: bytes) -> None:
    data, _, said = file_of_three_blocks()
    decoded = decode(data + tail)
    assert decoded.extents == said[-1]
    assert not decoded.is_whole


def test_a_flipped_bit_voids_its_block_and_what_follows() -> None:
    data, ends, said = file_of_three_blocks()
    for position in range(len(data)):
        for bit in range(8):
            rotten = bytearray(data)
            rotten[position] ^= 1 << bit
            whole = sum(end <= position for end in ends)
            if not whole:
                with pytest.raises(BadCheckpointError):
                    decode(bytes(rotten))
            else:
                assert decode(bytes(rotten)).extents == said[whole - 1]


def test_blocks_of_another_file_do_not_follow() -> None:
    data, ends, said = file_of_three_blocks()
    other, _ = encode_changed({ONE: Extent(0, 99, 99)}, 17)
    assert decode(data[: ends[0]] + other).extents == said[0]
    assert decode(data[: ends[0]] + data[ends[1] :]).extents == said[0], "the block in between is missing"


# -- what a crash must not hide


async def test_without_a_checkpoint_a_missing_last_segment_is_noticed(lab: Lab, small: LogConfig) -> None:
    await filled(lab, small)
    lab.kill()
    remove_segment(lab, -1)
    names = lab.names()
    with pytest.raises(LostRecordsError, match="durable up to offset 60") as caught:
        await opened(lab.directories(), small)
    assert "accept the loss" in caught.value.message
    assert lab.names() == names, "nothing is touched"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_missing_segment_is_noticed(lab: Lab, small: LogConfig, number: int, clean: bool) -> None:
    directories, _ = await filled(lab, small)
    if clean:
        await stop(directories)
        if number:
            return  # one in the middle is met by readers
    lab.kill()
    remove_segment(lab, number)
    with pytest.raises(LostRecordsError):
        await opened(lab.directories(), small)


@pytest.mark.parametrize("clean", [False, True])
async def test_a_log_without_any_segment_is_noticed(lab: Lab, small: LogConfig, clean: bool) -> None:
    directories, _ = await filled(lab, small)
    if clean:
        await stop(directories)
    lab.kill()
    for _ in lab.segment_names():
        remove_segment(lab, 0)
    with pytest.raises(LostRecordsError, match="no segments are left"):
        await opened(lab.directories(), small)


async def test_a_damaged_batch_is_damage_below_the_extent_and_a_torn_tail_above(
    lab: Lab, small: LogConfig
) -> None:
    for is_written in (True, False):
        here = type(lab)()
        directories, log = await filled(here, small)
        here.fill(log, 3)
        here.flush(log)
        if is_written:
            await directories.write_extents()
        here.kill()
        last = here.segment_names()[-1]
        size = len(here.read(last))
        here.medium.file(f"/data/flights-0/{last}").flip_bit(size - 20, 3)
        if is_written:
            with pytest.raises(LostRecordsError):
                await opened(here.directories(), small)
        else:
            assert (await opened(here.directories(), small)).end_offset == 62


async def test_the_last_marker_of_a_log_that_names_aborted_transactions_is_not_cut(lab: Lab) -> None:
    directories = lab.directories()
    log = await opened(directories, LogConfig())
    lab.append(log, b"a", producer=(7, 0, 0), transactional=True)
    lab.end(log, 7, commit=False)
    lab.flush(log)
    await directories.write_extents()
    assert log.recovery_point < log.flushed_offset
    lab.kill()
    last = lab.segment_names()[-1]
    lab.medium.file(f"/data/flights-0/{last}").flip_bit(len(lab.read(last)) - 2, 1)
    with pytest.raises(LostRecordsError):
        await opened(lab.directories(), LogConfig())


async def test_a_replica_that_others_can_mend_opens_with_what_is_left(lab: Lab, small: LogConfig) -> None:
    from tests.unit.storage.log.test_damage import batches_of

    _, log = await filled(lab, small)
    before = batches_of(log)
    lab.kill()
    remove_segment(lab, -1)
    directories = lab.directories()
    log = await opened(directories, small, repairable=True)
    assert PARTITION in directories.damaged
    assert log.end_offset < 60
    log.append_as_follower(before[log.end_offset :], now_ms=lab.now_ms)
    lab.flush(log)
    assert directories.damaged == {}


async def test_a_replica_that_lost_its_first_segment_fetches_all_again(lab: Lab, small: LogConfig) -> None:
    from tests.unit.storage.log.test_damage import batches_of

    directories, log = await filled(lab, small)
    before = batches_of(log)
    await stop(directories)
    remove_segment(lab, 0)
    for number in range(3):
        directories = lab.directories()
        log = await opened(directories, small, repairable=True)
        assert log.start_offset > 0
        assert log.damage_offset == 0, "from there on it must come again"
        assert log.lacks_records, "it must not lead"
        lab.fill(log, 1)
        lab.flush(log)
        assert PARTITION in directories.damaged, "the end is here, the beginning is not"
        if number == 0:
            await stop(directories)
        else:
            await directories.write_extents()
            await directories.write_checkpoints()
            lab.kill()
    directories = lab.directories()
    log = await opened(directories, small, repairable=True)
    log.truncate_to(log.damage_offset)
    lab.flush(log)
    assert (log.start_offset, log.end_offset) == (0, 0)
    log.append_as_follower(before, now_ms=lab.now_ms)
    for offset in range(60, log.end_offset + 5):
        lab.fill(log, 1)
        assert offset >= 0
    lab.flush(log)
    assert directories.damaged == {}
    await directories.write_checkpoints()
    lab.kill()
    log = await opened(lab.directories(), small)
    assert batches_of(log)[:60] == before


# -- what is not lost, but gone


@pytest.mark.parametrize("is_full", [False, True])
async def test_what_was_deleted_is_not_missed_wherever_a_crash_comes(lab: Lab, is_full: bool) -> None:
    config = LogConfig(
        segment_bytes=20_000,
        retention_bytes=20_000,
        file_delete_delay_ms=0,
        index_interval_bytes=(1 << 20) if is_full else 4096,
    )
    number, is_over = 0, False
    while not is_over:
        number += 1
        for kind in CrashKind:
            here = type(lab)()
            here.lives = number * 2
            here.mount()
            directories, log = await filled(here, config)
            if is_full:
                here.medium.capacity_bytes = here.medium.used_bytes() - 100
            here.disk.faults.append(
                CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
            )
            try:
                await directories.apply_retention(log, here.now_ms)
                await directories.apply_retention(log, here.now_ms)
                is_over = True
            except HostCrashed:
                pass
            here.disk.crash(kind)
            here.mount()
            for _ in range(2):
                log = await opened(here.directories(), config)
                assert log.end_offset == 60
                if not is_full:
                    assert here.values(log)[-1].startswith(b"59:")  # type: ignore[union-attr]
                here.kill()
    assert number > 10


async def test_a_truncated_log_is_not_missed_wherever_a_crash_comes(lab: Lab, small: LogConfig) -> None:
    for restart_offset in (None, 0, 500):
        number, is_over = 0, False
        while not is_over:
            number += 1
            for kind in CrashKind:
                here = type(lab)()
                here.lives = number * 2
                here.mount()
                directories, log = await filled(here, small)
                await directories.write_checkpoints({PARTITION: 5})
                here.disk.faults.append(
                    CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
                )
                try:
                    if restart_offset is None:
                        log.truncate_to(15)
                    else:
                        log.restart_at(restart_offset)
                    await directories.write_extents()
                    here.flush(log)
                    await directories.write_extents()
                    for _ in range(10):
                        await directories.write_extents()
                    here.fill(log, 2)
                    here.flush(log)
                    await directories.write_extents()
                    is_over = True
                except HostCrashed:
                    pass
                here.disk.crash(kind)
                here.mount()
                log = await opened(here.directories(), small)
                ends = {None: range(15, 18), 0: range(3), 500: range(500, 503)}[restart_offset]
                assert log.end_offset == 60 or log.end_offset in ends
                assert not is_over or log.end_offset == ends[-1]
        assert number > 10


async def test_after_a_truncation_what_is_appended_has_an_extent_soon(lab: Lab, small: LogConfig) -> None:
    directories, log = await filled(lab, small)
    await directories.write_checkpoints({PARTITION: 5})
    log.truncate_to(15)
    lab.flush(log)
    lab.fill(log, 20)
    lab.flush(log)
    for _ in range(10):
        await directories.write_extents()
    lab.kill()
    remove_segment(lab, -1)
    with pytest.raises(LostRecordsError, match="35"):
        await opened(lab.directories(), small)


async def test_a_topic_of_the_same_name_is_another_one(lab: Lab, small: LogConfig) -> None:
    directories, _ = await filled(lab, small)
    await directories.delete_log(PARTITION)
    log = await directories.open_log(PARTITION, UUID(int=8, version=4), small, is_new=True)
    lab.fill(log, 1)
    lab.flush(log)
    lab.kill()
    log = await lab.directories().open_log(PARTITION, UUID(int=8, version=4), small)
    assert log.end_offset == 1


async def test_a_log_that_moved_is_noticed_in_its_new_directory_alone(lab: Lab, small: LogConfig) -> None:
    lab.medium.make_durable_folder("/more")
    paths = ("/data", "/more")
    directories = lab.directories(*paths)
    log = await opened(directories, small)
    lab.fill(log, 60)
    lab.flush(log)
    await directories.write_extents()
    copy = directories.begin_move(PARTITION, "/more")
    await lab.runtime.offload.run(copy.begin)
    await lab.runtime.offload.run(copy.run, log.end_offset)
    log = await directories.move_log(PARTITION, copy, TOPIC_ID, small)
    await directories.remove_deleted()
    lab.kill()
    log = await opened(lab.directories(*paths), small)
    assert log.end_offset == 60
    lab.kill()
    last = [name for name in lab.names("/more/flights-0") if name.endswith(".log")][-1]
    lab.disk.remove(f"/more/flights-0/{last}")
    with pytest.raises(LostRecordsError):
        await opened(lab.directories(*paths), small)


# -- when the file cannot be believed


async def test_an_older_copy_of_the_file_is_not_believed(lab: Lab, small: LogConfig) -> None:
    directories, log = await filled(lab, small)
    await directories.write_checkpoints()
    older = lab.disk.read(EXTENTS)
    log.truncate_to(15)
    lab.flush(log)
    await stop(directories)
    lab.write("log-extents", older, directory="/data")
    assert (await opened(lab.directories(), small)).end_offset == 15


async def test_who_wants_to_go_on_with_what_is_left_can(lab: Lab, small: LogConfig) -> None:
    directories, _ = await filled(lab, small)
    await stop(directories)
    remove_segment(lab, 0)
    remove_segment(lab, -1)
    with pytest.raises(LostRecordsError):
        await opened(lab.directories(), small)
    lab.kill()
    lab.write("recovery-point-offset-checkpoint", b"0\n0\n", directory="/data")
    lab.disk.remove(EXTENTS)
    log = await opened(lab.directories(), small)
    assert 0 < log.start_offset < log.end_offset < 60


@pytest.mark.parametrize("content", [b"", b"\0" * 100, None], ids=["empty", "zeros", "gone"])
async def test_without_the_file_a_log_opens_as_its_checkpoints_say(
    lab: Lab, small: LogConfig, content: bytes | None
) -> None:
    directories, log = await filled(lab, small)
    await directories.write_checkpoints()
    lab.fill(log, 5)
    lab.flush(log)
    await directories.write_extents()
    lab.kill()
    if content is None:
        lab.disk.remove(EXTENTS)
    else:
        lab.write("log-extents", content, directory="/data")
    directories = lab.directories()
    assert (await opened(directories, small)).end_offset == 65
    await directories.write_extents()
    lab.kill()
    remove_segment(lab, -1)
    with pytest.raises(LostRecordsError):
        await opened(lab.directories(), small)


# -- what it costs


async def test_nothing_is_written_when_nothing_changed(lab: Lab, small: LogConfig) -> None:
    directories, log = await filled(lab, small)
    count = lab.disk.point_count
    for _ in range(20):
        await directories.write_extents()
    assert lab.disk.point_count == count
    lab.fill(log, 1)
    lab.flush(log)
    before = lab.disk.point_count
    await directories.write_extents()
    assert lab.disk.point_count - before == 2, "one write, one sync"
    await stop(directories)
    directories = lab.directories()
    await opened(directories, small)
    count = lab.disk.point_count
    await directories.write_extents()
    assert lab.disk.point_count == count, "what is here is what the file says"


async def test_it_does_not_grow_without_end(lab: Lab, small: LogConfig) -> None:
    directories, log = await filled(lab, small, 1)
    sizes = []
    lab.disk.points = None
    from odradek.storage.directories import extent_file

    limit, extent_file.BYTES_MIN = extent_file.BYTES_MIN, 1000  # type: ignore[misc]
    try:
        for _ in range(100):
            lab.fill(log, 1, value_bytes=1)
            lab.flush(log)
            await directories.write_extents()
            sizes.append(lab.disk.length(EXTENTS))
    finally:
        extent_file.BYTES_MIN = limit  # type: ignore[misc]
    assert max(sizes) < 1200
    lab.kill()
    remove_segment(lab, -1)
    with pytest.raises(KafkaError):
        await opened(lab.directories(), small)


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
async def test_an_error_is_made_up_for_and_fails_no_append(
    lab: Lab, small: LogConfig, operation: str
) -> None:
    directories, log = await filled(lab, small)
    lab.fill(log, 1)
    lab.flush(log)
    fault = FailOperations(
        operations={operation}, error=errno.ENOSPC, path_test=lambda path: path.endswith("log-extents")
    )
    lab.disk.faults.append(fault)
    await directories.write_extents()
    lab.disk.faults.remove(fault)
    lab.fill(log, 1)
    lab.flush(log)
    assert log.flushed_offset == 62
    await directories.write_extents()
    lab.kill()
    last = lab.segment_names()[-1]
    lab.medium.file(f"/data/flights-0/{last}").flip_bit(len(lab.read(last)) - 20, 3)
    with pytest.raises(LostRecordsError, match="batch CRC"):
        await opened(lab.directories(), small)


@pytest.mark.parametrize("first", ["checkpoints", "extents"])
async def test_a_directory_that_fails_under_one_write_is_left_alone_by_the_next(
    lab: Lab, small: LogConfig, first: str
) -> None:
    """The next one waits its turn while the directory still works. It said that it wrote extents, and wrote older ones."""
    directories, log = await filled(lab, small)
    lab.fill(log, 1)
    lab.flush(log)
    fault = FailOperations(operations={"sync"}, error=errno.EIO, path_test=lambda path: "flights" not in path)
    lab.disk.faults.append(fault)
    writes = [directories.write_checkpoints, directories.write_extents]
    if first == "extents":
        writes.reverse()

    async def next_one() -> None:
        lab.fill(log, 1)
        lab.flush(log)
        await writes[1]()

    await asyncio.gather(writes[0](), next_one())
    assert fault.remaining == 0
    (directory,) = directories.all()
    assert directory.offline is not None
    assert directory.has_unwritten_extents


@pytest.mark.parametrize("kind", list(CrashKind))
async def test_a_crash_at_any_point_of_the_files_life_loses_no_more_than_the_last_second(
    lab: Lab, small: LogConfig, kind: CrashKind
) -> None:
    number, is_over = 0, False
    while not is_over:
        number += 1
        here = type(lab)()
        here.lives = number * 2
        here.mount()
        written = 0
        here.disk.faults.append(CrashAt(number=number, kind=kind, rng=Random(number)))
        try:
            directories, log = await filled(here, small, 20)
            written = 20
            for _ in range(3):
                here.fill(log, 5)
                here.flush(log)
                await directories.write_extents()
                written = log.flushed_offset
            await directories.write_checkpoints({PARTITION: 1})
            here.fill(log, 5)
            here.flush(log)
            await directories.write_extents()
            written = log.flushed_offset
            is_over = True
        except HostCrashed:
            pass
        here.disk.crash(kind)
        here.mount()
        if written:
            extent = here.directories().all()[0].extents[PARTITION]
            assert extent.end_offset >= written
    assert number > 30
