"""Opening a log after a crash: what is kept, what is cut, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import split_batches

Lab = Any
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1500)
ACTIVE = "00000000000000000000"


def sizes(data: bytes) -> list[int]:
    return [header.size_bytes for header, _ in split_batches(data)]


def test_a_torn_tail_is_cut_at_the_last_good_batch_at_every_byte(lab: Lab) -> None:
    log = lab.open(CONFIG)
    for number in range(6):
        lab.append(log, *(b"%d" % number for _ in range(3)))
    log.close()
    whole = lab.read(f"{ACTIVE}.log")
    ends = [sum(sizes(whole)[:count]) for count in range(7)]
    for length in range(ends[-3], len(whole)):
        lab.write(f"{ACTIVE}.log", whole[:length])
        reopened = lab.open(CONFIG, clean=False)
        kept = sum(end <= length for end in ends) - 1
        assert reopened.end_offset == reopened.flushed_offset == kept * 3
        assert lab.values(reopened) == [b"%d" % number for number in range(kept) for _ in range(3)]
        assert len(lab.read(f"{ACTIVE}.log")) == ends[kept]
        lab.append(reopened, b"next")
        assert lab.values(reopened)[-1] == b"next"
        reopened.close()
        assert not [name for name in lab.names() if name.endswith(".cut")]


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 700, b"\0" * 16 + b"\x02" + bytes(900)])
def test_garbage_behind_the_last_batch_is_cut(lab: Lab, tail: bytes) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 5)
    log.close()
    good = lab.read(f"{ACTIVE}.log")
    lab.write(f"{ACTIVE}.log", good + tail)
    for clean in (True, False):  # a clean close leaves no such tail, so it is not believed
        reopened = lab.open(CONFIG, clean=clean)
        assert reopened.end_offset == 5
        assert lab.read(f"{ACTIVE}.log") == good
        lab.write(f"{ACTIVE}.log", good + tail)


def test_a_flipped_bit_anywhere_in_the_tail_is_found(lab: Lab) -> None:
    log = lab.open(CONFIG)
    for number in range(4):
        lab.append(log, b"%d" % number)
    log.close()
    whole = lab.read(f"{ACTIVE}.log")
    first_size = sizes(whole)[0]
    start = sum(sizes(whole)[:3])
    uncovered = range(
        start + 12, start + 16
    )  # the leader epoch is outside the CRC: it is the broker's to change
    for position in range(start, len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 8)
        lab.write(f"{ACTIVE}.log", bytes(flipped))
        reopened = lab.open(CONFIG, clean=False)
        base_offset_grew = start <= position < start + 8
        if position in uncovered or base_offset_grew:
            assert lab.values(reopened)[:3] == [b"0", b"1", b"2"]
        else:
            assert reopened.end_offset == 3, position
        assert reopened.size_bytes >= 3 * first_size


def test_good_batches_behind_a_bad_one_are_set_aside(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 8)
    log.close()
    whole = lab.read(f"{ACTIVE}.log")
    start = sum(sizes(whole)[:3])
    damaged = bytearray(whole)
    damaged[start + 100] ^= 4
    lab.write(f"{ACTIVE}.log", bytes(damaged))
    reopened = lab.open(CONFIG, clean=False)
    assert reopened.end_offset == 3
    assert reopened.cut_at_recovery
    assert lab.read(f"{ACTIVE}.log") == whole[:start]
    assert lab.read(f"{ACTIVE}.log.{start}.cut") == bytes(damaged[start:])
    reopened.close()
    assert not lab.open(CONFIG).cut_at_recovery


def test_segments_behind_a_cut_are_set_aside(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 60)
    log.close()
    names = lab.segment_names()
    assert len(names) > 3
    damaged = bytearray(lab.read(names[1]))
    damaged[-1] ^= 1
    lab.write(names[1], bytes(damaged))
    recovery_point = int(names[1][:20])
    reopened = lab.open(CONFIG, clean=False, recovery_point=recovery_point)
    assert reopened.cut_at_recovery
    assert lab.segment_names() == names[:2]
    assert [f"{name}.cut" in lab.names() for name in names[2:]] == [True] * len(names[2:])
    assert len(lab.values(reopened)) == reopened.end_offset == int(names[2][:20]) - 1
    lab.fill(reopened, 40)
    assert len(lab.values(reopened)) == reopened.end_offset


def test_a_hole_between_segments_ends_the_log(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 60)
    log.close()
    names = lab.segment_names()
    whole = lab.read(names[0])
    lab.write(names[0], whole[: -sizes(whole)[-1]])
    reopened = lab.open(CONFIG, clean=False)
    assert reopened.end_offset == int(names[1][:20]) - 1
    assert lab.segment_names() == names[:1]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_below_the_recovery_point_is_refused_and_nothing_is_touched(lab: Lab, damage: str) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 10)
    log.close()
    whole = lab.read(f"{ACTIVE}.log")
    if damage == "remove":
        lab.disk.remove(f"/data/flights-0/{ACTIVE}.log")
    elif damage == "flip":
        lab.write(f"{ACTIVE}.log", whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    else:
        lab.write(f"{ACTIVE}.log", whole[:3000])
    before = {name: lab.read(name) for name in lab.segment_names()}
    with pytest.raises(KafkaError) as caught:
        lab.open(CONFIG, clean=False, recovery_point=9)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "odradek cluster elect flights-0 --unclean" in caught.value.message
    assert {name: lab.read(name) for name in lab.segment_names()} == before


def test_only_segments_from_the_recovery_point_on_are_read(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 100)
    log.close()
    names = lab.segment_names()
    lab.disk.points = []
    lab.open(CONFIG, clean=False, recovery_point=int(names[-2][:20]))
    opened = {point.path.rpartition("/")[2] for point in lab.disk.points if point.operation == "open"}
    assert not opened & set(names[:-2])
    assert set(names[-2:]) <= opened


def test_recovery_makes_durable_what_it_found(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 50)
    lab.kill()  # all of it is in the page cache, none is on the platter
    log = lab.open(CONFIG, clean=False)
    end_offset = log.end_offset
    assert log.flushed_offset == end_offset == 50
    lab.cut_power()
    log = lab.open(CONFIG, clean=False, recovery_point=end_offset)
    assert len(lab.values(log)) == end_offset


def test_epochs_are_read_off_the_batches_when_their_file_is_gone_or_damaged(lab: Lab) -> None:
    log = lab.open(CONFIG)
    for epoch in (0, 2, 5):
        lab.fill(log, 20, epoch=epoch)
    log.close()
    saved = lab.read("leader-epoch-checkpoint")
    assert saved == b"0\n3\n0 0\n2 20\n5 40\n"
    for damaged in (
        None,
        b"",
        b"0\n3\n0 0\n2 20\n",
        b"1\n0\n",
        b"0\n3\n0 0\n2 20\n1 40\n",
        saved.replace(b"2 ", b"x "),
    ):
        if damaged is None:
            lab.disk.remove("/data/flights-0/leader-epoch-checkpoint")
        else:
            lab.write("leader-epoch-checkpoint", damaged)
        for clean in (True, False):
            reopened = lab.open(CONFIG, clean=clean, recovery_point=60)
            assert [reopened.epoch_end_offset(epoch) for epoch in (0, 1, 2, 4, 5)] == [
                (0, 20),
                (0, 20),
                (2, 40),
                (2, 40),
                (5, 60),
            ]
        reopened.close()
        assert lab.read("leader-epoch-checkpoint") == saved


def test_epochs_beyond_the_end_of_the_log_are_forgotten(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 3, epoch=1)
    log.close()
    lab.write("leader-epoch-checkpoint", b"0\n2\n1 0\n2 7\n")
    reopened = lab.open(CONFIG, clean=False)
    assert reopened.latest_epoch == 1


def test_a_log_that_ends_before_its_start_offset_is_refused(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 3)
    log.close()
    with pytest.raises(KafkaError) as caught:
        lab.open(CONFIG, start_offset=4)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_empty_segment_that_lost_its_batches_hides_none_behind_it(lab: Lab) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 5)
    log.close()
    lab.write("00000000000000000005.log", b"")
    lab.write("00000000000000000008.log", b"")
    reopened = lab.open(CONFIG, clean=False, recovery_point=5)
    assert (reopened.start_offset, reopened.end_offset) == (0, 5)
    assert lab.segment_names() == ["00000000000000000000.log", "00000000000000000005.log"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 3, 16, 60])
def test_the_empty_file_of_a_roll_that_failed_hides_nothing(
    lab: Lab, clean: bool, recovery_point: int
) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 60)
    log.close()
    for offset in (3, 25, 58):
        lab.write(f"{offset:020d}.log", b"")
    reopened = lab.open(CONFIG, clean=clean, recovery_point=recovery_point)
    assert reopened.end_offset == 60
    assert [record.offset for record in lab.records(reopened)] == list(range(60))
    for offset in range(60):
        (header, _), *_ = split_batches(reopened.read(offset, 1, end_offset=60, at_least_one=True).records)
        assert header.base_offset == offset


def test_a_log_that_was_never_flushed_begins_where_it_began(lab: Lab) -> None:
    for _ in range(30):
        here = type(lab)(lives=lab.lives)
        log = here.open(CONFIG)
        here.fill(log, 60)
        here.cut_power()
        lab.lives = here.lives
        reopened = here.open(CONFIG, clean=False)
        assert reopened.start_offset == 0
        assert [record.offset for record in here.records(reopened)] == list(range(reopened.end_offset))


@pytest.mark.parametrize("recovery_point", [0, 60])
def test_a_log_that_retention_shortened_begins_where_it_was_cut(lab: Lab, recovery_point: int) -> None:
    log = lab.open(CONFIG)
    lab.fill(log, 60)
    lab.flush(log)
    log.delete_records(30)
    assert log.apply_retention(lab.now_ms)
    log.jobs.removal_job(lab.now_ms).run()
    lab.cut_power()
    reopened = lab.open(CONFIG, clean=False, recovery_point=recovery_point)
    assert reopened.start_offset > 10
    assert reopened.end_offset == 60


def test_what_was_set_aside_is_kept_as_long_as_records_are(lab: Lab) -> None:
    lab.open(CONFIG).close()
    lab.write("00000000000000000000.log.77.cut", b"set aside")
    lab.now_ms += CONFIG.retention_ms
    lab.open(CONFIG).close()
    assert "00000000000000000000.log.77.cut" in lab.names()
    lab.now_ms += 1
    lab.open(CONFIG).close()
    assert "00000000000000000000.log.77.cut" not in lab.names()
