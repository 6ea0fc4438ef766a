"""Describing a segment and finding what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.records import ControlKind
from odradek.storage.dump import (
    UnreadableFileError,
    check_segment,
    read_batches,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_transaction_index,
)
from odradek.storage.segment.transaction_index import AbortedTransaction, encode_aborted

Lab = Any
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1500)
STEM = "/data/flights-0/00000000000000000000"


@pytest.fixture
def size(lab: Lab) -> int:
    log = lab.open(CONFIG)
    for number in range(10):
        lab.append(log, b"%d" % number, bytes(900), producer=(5, 0, number * 2))
    log.close()
    return int(log.size_bytes)


def test_batches_are_described_one_by_one(lab: Lab, size: int) -> None:
    batches = list(read_batches(lab.disk, f"{STEM}.log", with_records=True))
    assert [batch.header.base_offset for batch in batches] == list(range(0, 20, 2))
    assert sum(batch.header.size_bytes for batch in batches) == size
    assert [batch.records[0].value for batch in batches] == [b"%d" % number for number in range(10)]
    assert all(batch.problem is None for batch in batches)


def test_a_sound_segment_has_no_problems(lab: Lab, size: int) -> None:
    summary = check_segment(lab.disk, f"{STEM}.log")
    assert summary.problems == ()
    assert (summary.batch_count, summary.record_count) == (10, 20)
    assert (summary.first_offset, summary.last_offset) == (0, 19)
    assert (summary.size_bytes, summary.good_bytes) == (size, size)
    assert summary.offset_entry_count == len(read_offset_index(lab.disk, f"{STEM}.index")) > 2
    assert summary.time_entry_count == len(read_time_index(lab.disk, f"{STEM}.timeindex")) > 0


def test_damaged_batches_are_named_with_their_position(lab: Lab, size: int) -> None:
    data = bytearray(lab.disk.read(f"{STEM}.log"))
    batch_bytes = size // 10
    data[3 * batch_bytes + 100] ^= 1
    lab.disk.replace(f"{STEM}.log", bytes(data[:-1]))
    summary = check_segment(lab.disk, f"{STEM}.log")
    assert summary.good_bytes < size
    first, *_, last = [problem for problem in summary.problems if problem.startswith("byte")]
    assert "CRC" in first
    assert "are there" in last
    described = list(read_batches(lab.disk, f"{STEM}.log"))
    assert described[-1].header is None


def test_index_entries_that_lie_are_named(lab: Lab, size: int) -> None:
    for suffix, word in ((".index", "offset index"), (".timeindex", "time index")):
        good = lab.disk.read(STEM + suffix)
        lab.disk.replace(STEM + suffix, good[:-1] + bytes([good[-1] ^ 1]))
        assert any(problem.startswith(word) for problem in check_segment(lab.disk, f"{STEM}.log").problems)
        lab.disk.replace(STEM + suffix, good + b"x")
        assert any("whole entry" in problem for problem in check_segment(lab.disk, f"{STEM}.log").problems)
        lab.disk.remove(STEM + suffix)
        assert any("missing" in problem for problem in check_segment(lab.disk, f"{STEM}.log").problems)
        lab.disk.replace(STEM + suffix, good)


def test_a_snapshot_is_described(lab: Lab, size: int) -> None:
    (name,) = lab.segment_names(".snapshot")
    (state,) = read_snapshot(lab.disk, f"/data/flights-0/{name}")
    assert (state.producer_id, state.epoch, state.last_sequence) == (5, 0, 19)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(lab: Lab, size: int) -> None:
    (name,) = lab.segment_names(".snapshot")
    path = f"/data/flights-0/{name}"
    lab.disk.replace(path, bytes(100))
    with pytest.raises(UnreadableFileError, match=f"{path} cannot be read: version 0 is unknown"):
        read_snapshot(lab.disk, path)
    lab.disk.replace(f"{STEM}.txnindex", b"\xff" * 34)
    with pytest.raises(UnreadableFileError, match="txnindex cannot be read: version -1 is unknown"):
        read_transaction_index(lab.disk, f"{STEM}.txnindex")


def test_an_empty_segment_is_described(lab: Lab) -> None:
    lab.open(CONFIG).close()
    summary = check_segment(lab.disk, f"{STEM}.log")
    assert (summary.batch_count, summary.first_offset, summary.problems) == (0, -1, ())


# -- transactions


@pytest.fixture
def aborted(lab: Lab) -> AbortedTransaction:
    log = lab.open(CONFIG)
    for producer_id in (7, 8):
        batch = lab.batch(b"v", producer=(producer_id, 0, 0), transactional=True)
        log.append(batch, leader_epoch=0, now_ms=lab.now_ms)
    lab.end(log, 7, commit=False, coordinator_epoch=4)
    lab.end(log, 8, commit=True)
    log.close()
    return AbortedTransaction(7, 0, 2, 1)


def test_markers_are_described_with_their_outcome(lab: Lab, aborted: AbortedTransaction) -> None:
    markers = [batch.marker for batch in read_batches(lab.disk, f"{STEM}.log")]
    assert markers[:2] == [None, None]
    assert [marker.kind for marker in markers[2:]] == [ControlKind.ABORT, ControlKind.COMMIT]
    assert markers[2].coordinator_epoch == 4


def test_aborted_transactions_are_listed(lab: Lab, aborted: AbortedTransaction) -> None:
    assert read_transaction_index(lab.disk, f"{STEM}.txnindex") == [aborted]
    assert check_segment(lab.disk, f"{STEM}.log").problems == ()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (AbortedTransaction(7, 0, 3, 1), "no such marker"),
        (AbortedTransaction(8, 0, 2, 1), "no such marker"),
        (AbortedTransaction(7, 0, 9, 1), "no batch begins at 9"),
    ],
)
def test_an_index_that_names_other_markers_is_reported(
    lab: Lab, aborted: AbortedTransaction, wrong: AbortedTransaction, problem: str
) -> None:
    lab.write("00000000000000000000.txnindex", encode_aborted(wrong))
    (index_problem,) = check_segment(lab.disk, f"{STEM}.log").problems
    assert problem in index_problem


def test_an_index_of_broken_entries_is_reported(lab: Lab, aborted: AbortedTransaction) -> None:
    lab.write("00000000000000000000.txnindex", encode_aborted(aborted)[:-1])
    (problem,) = check_segment(lab.disk, f"{STEM}.log").problems
    assert "whole entry" in problem
    lab.write("00000000000000000000.txnindex", b"\x07" + encode_aborted(aborted)[1:])
    (problem,) = check_segment(lab.disk, f"{STEM}.log").problems
    assert "version" in problem
