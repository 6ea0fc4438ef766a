"""Transactions in a log: markers, the last stable offset, the index of aborted ones, and all of it after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import ControlKind, read_control, split_batches
from odradek.storage.producers.verification import UNVERIFIED
from odradek.storage.segment.transaction_index import ENTRY, AbortedTransaction, decode_aborted

Lab = Any
ONE, TWO = 7, 8


class Writer:
    """A producer in a log: counts its sequence."""

    def __init__(self, lab: Lab, producer_id: int, *, epoch: int = 0, sequence: int = 0) -> None:
        self.lab = lab
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence

    def send(self, log: Any, *values: bytes, guard: Any = None, transactional: bool = True) -> int:
        values = values or (b"value",)
        batch = self.lab.batch(
            *values, producer=(self.producer_id, self.epoch, self.sequence), transactional=transactional
        )
        appended = log.append(batch, leader_epoch=0, now_ms=self.lab.now_ms, guard=guard)
        self.sequence += len(values)
        return int(appended.first_offset)


def refused(call: Any, *arguments: Any, **more: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **more)
    return caught.value.code


def reopened(lab: Lab, log: Any, how: str, config: LogConfig | None = None) -> Any:
    if how == "closed":
        log.close()
        return lab.open(config)
    lab.flush(log)
    point = log.flushed_offset if how == "power cut" else 0
    lab.cut_power() if how == "power cut" else lab.kill()
    return lab.open(config, clean=False, recovery_point=point)


RESTARTS = pytest.mark.parametrize("how", ["closed", "power cut", "killed"])


# -- markers


def test_a_marker_is_a_control_batch_that_names_the_outcome_and_the_coordinator(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=False, coordinator_epoch=3)
    lab.end(log, ONE, commit=True, coordinator_epoch=4)
    read = log.read(1, 1 << 16, end_offset=3)
    (aborted, first), (committed, second) = split_batches(read.records)
    for header in (aborted, committed):
        assert header.is_control
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (ONE, 0, -1)
    assert (read_control(first).kind, read_control(first).coordinator_epoch) == (ControlKind.ABORT, 3)
    assert (read_control(second).kind, read_control(second).coordinator_epoch) == (ControlKind.COMMIT, 4)


def test_a_marker_of_an_older_coordinator_is_refused(lab: Lab) -> None:
    log = lab.open()
    writer = Writer(lab, ONE)
    writer.send(log)
    lab.end(log, ONE, commit=True, coordinator_epoch=5)
    writer.send(log)
    assert refused(lab.end, log, ONE, commit=True, coordinator_epoch=4) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    assert log.end_offset == 3
    assert log.last_stable_offset(3) == 2


def test_a_marker_of_an_older_producer_epoch_is_refused(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE, epoch=2).send(log)
    assert refused(lab.end, log, ONE, commit=False, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert lab.end(log, ONE, commit=False, epoch=2) == 1


def test_in_version_2_a_marker_under_the_epoch_of_the_open_transaction_is_late(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE, epoch=2).send(log)
    assert refused(lab.end, log, ONE, commit=True, epoch=2, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert lab.end(log, ONE, commit=True, epoch=3, version=2) == 1
    assert lab.end(log, ONE, commit=True, epoch=3, version=2) == 2, "it comes again: nothing is open"


def test_a_marker_of_an_unknown_producer_is_written_and_ends_nothing(lab: Lab) -> None:
    log = lab.open()
    assert lab.end(log, ONE, commit=False, epoch=4) == 0
    assert log.aborted_transactions(0, 1) == []
    assert refused(Writer(lab, ONE, epoch=3).send, log) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on(lab: Lab) -> None:
    log = lab.open()
    writer = Writer(lab, ONE)
    writer.send(log, b"a", b"b")
    lab.end(log, ONE, commit=True)
    assert refused(Writer(lab, ONE, sequence=0).send, log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.send(log) == 3


@RESTARTS
def test_after_a_marker_of_a_higher_epoch_the_sequence_begins_with_0(lab: Lab, how: str) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log, b"a", b"b")
    lab.end(log, ONE, commit=True, epoch=1, version=2)
    log = reopened(lab, log, how)
    assert refused(Writer(lab, ONE, epoch=1, sequence=2).send, log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(Writer(lab, ONE, epoch=0, sequence=2).send, log) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert Writer(lab, ONE, epoch=1).send(log) == 3


def test_a_batch_outside_of_its_producers_open_transaction_is_refused(lab: Lab) -> None:
    log = lab.open()
    writer = Writer(lab, ONE)
    writer.send(log)
    assert refused(writer.send, log, transactional=False) is ErrorCode.INVALID_TXN_STATE
    lab.end(log, ONE, commit=True)
    assert writer.send(log, transactional=False) == 2


# -- the last stable offset


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_began(lab: Lab) -> None:
    log = lab.open()
    first, two = Writer(lab, ONE), Writer(lab, TWO)
    lab.append(log, b"plain")
    first.send(log)
    two.send(log)
    first.send(log)
    assert log.last_stable_offset(4) == 1
    lab.end(log, ONE, commit=True)
    assert log.last_stable_offset(5) == 2
    lab.end(log, TWO, commit=False)
    assert log.last_stable_offset(6) == 6


def test_a_decided_transaction_holds_it_back_until_the_marker_is_below_the_high_watermark(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=True)
    assert log.last_stable_offset(0) == 0
    assert log.last_stable_offset(1) == 0, "the marker at 1 could still be lost"
    assert log.last_stable_offset(2) == 2


def test_it_is_never_below_what_was_deleted(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log, b"a", b"b")
    log.delete_records(2)
    assert log.last_stable_offset(2) == 2


@RESTARTS
def test_an_open_transaction_is_open_after_a_restart(lab: Lab, how: str) -> None:
    log = lab.open()
    writer = Writer(lab, ONE)
    lab.append(log, b"plain")
    writer.send(log)
    log = reopened(lab, log, how)
    assert log.last_stable_offset(2) == 1
    writer.send(log)
    lab.end(log, ONE, commit=False)
    assert log.aborted_transactions(0, 4) == [(ONE, 1)]
    assert log.last_stable_offset(4) == 4


@RESTARTS
def test_the_coordinators_epoch_is_known_after_a_restart(lab: Lab, how: str) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=True, coordinator_epoch=9)
    log = reopened(lab, log, how)
    assert refused(lab.end, log, ONE, commit=True, coordinator_epoch=8) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )


def test_a_producer_with_an_open_transaction_never_expires(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    assert log.producers.expire_idle_producers(lab.now_ms + 10**12, 1000) == 0
    lab.end(log, ONE, commit=True)
    assert log.producers.expire_idle_producers(lab.now_ms + 10**12, 1000) == 1


# -- aborted transactions


def test_a_reader_hears_of_the_aborted_transactions_that_touch_what_it_reads(lab: Lab) -> None:
    log = lab.open()
    first, two = Writer(lab, ONE), Writer(lab, TWO)
    first.send(log)  # 0
    two.send(log)  # 1
    lab.end(log, TWO, commit=False)  # 2
    lab.append(log, b"plain")  # 3
    lab.end(log, ONE, commit=False)  # 4
    first.send(log)  # 5
    lab.end(log, ONE, commit=True)  # 6
    assert log.aborted_transactions(0, 7) == [(TWO, 1), (ONE, 0)]
    assert log.aborted_transactions(3, 7) == [(ONE, 0)]
    assert log.aborted_transactions(0, 1) == [(ONE, 0)]
    assert log.aborted_transactions(5, 7) == []


@RESTARTS
def test_aborted_transactions_are_found_in_every_segment_whatever_happened(
    lab: Lab, small: LogConfig, how: str
) -> None:
    log = lab.open(small)
    expected = []
    writer = Writer(lab, ONE)
    for number in range(12):
        first = writer.send(log, bytes(3000))
        lab.fill(log, 3)
        lab.end(log, ONE, commit=number % 3 == 0)
        if number % 3:
            expected.append((ONE, first))
    assert log.segment_count > 3
    assert log.aborted_transactions(0, log.end_offset) == expected
    files = [lab.disk.exists(f"/data/flights-0/{name[:20]}.txnindex") for name in lab.segment_names()]
    assert any(files)
    log = reopened(lab, log, how, small)
    assert log.aborted_transactions(0, log.end_offset) == expected
    middle = expected[len(expected) // 2]
    assert log.aborted_transactions(middle[1], middle[1] + 1) == [middle]


def test_an_entry_has_kafkas_fields(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, TWO).send(log)
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=False)
    lab.end(log, TWO, commit=False)
    log.close()
    entries = decode_aborted(lab.read("00000000000000000000.txnindex"))
    assert entries == [AbortedTransaction(ONE, 1, 2, 0), AbortedTransaction(TWO, 0, 3, 4)]


def test_a_log_without_aborted_transactions_has_no_index_of_them(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=True)
    log.close()
    assert lab.segment_names(".txnindex") == []


def test_an_index_that_cannot_be_of_its_segment_is_made_again(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=False)
    log.close()
    good = lab.read("00000000000000000000.txnindex")
    for bad in (good[:-1], bytes(ENTRY.size), good + good):
        lab.write("00000000000000000000.txnindex", bad)
        log = lab.open(recovery_point=2)
        assert log.aborted_transactions(0, 2) == [(ONE, 0)]
        log.close()
        assert lab.read("00000000000000000000.txnindex") == good


@pytest.mark.parametrize("how", ["closed", "killed"])
@pytest.mark.parametrize("rot", [0, 9, 17, 25, 33, "lost", "cut", "longer", "the sums"])
def test_an_index_that_is_not_what_was_written_is_made_again(
    lab: Lab, small: LogConfig, how: str, rot: int | str
) -> None:
    log = lab.open(small)
    first = Writer(lab, ONE).send(log)
    Writer(lab, TWO).send(log)
    lab.end(log, ONE, commit=False)
    lab.end(log, TWO, commit=True)
    lab.fill(log, 40)
    lab.flush(log)
    point = log.recovery_point
    assert log.segment_count > 2, "the index is of a sealed segment, below the recovery point"
    log.close() if how == "closed" else lab.kill()
    name = "00000000000000000000.txnindex"
    good, sums = lab.read(name), lab.read("transaction-index-sums")
    changed = {"cut": good[:-9], "longer": good + good}
    if rot == "lost":
        lab.disk.remove(f"/data/flights-0/{name}")
    elif rot == "the sums":
        lab.write("transaction-index-sums", sums[:-4] + b"!!!\n")
    elif isinstance(rot, int):
        lab.medium.file(f"/data/flights-0/{name}").flip_bit(rot, 2)
    else:
        lab.write(name, changed[rot])

    log = lab.open(small, clean=how == "closed", recovery_point=point)
    assert log.aborted_transactions(0, log.end_offset) == [(ONE, first)]
    assert lab.read(name) == good
    log.close()
    assert lab.read("transaction-index-sums") == sums


def test_indexes_that_no_one_wrote_down_are_believed(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    first = Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=False)
    lab.fill(log, 40)
    log.close()
    lab.disk.remove("/data/flights-0/transaction-index-sums")
    log = lab.open(small, recovery_point=log.end_offset)
    assert log.aborted_transactions(0, log.end_offset) == [(ONE, first)]


def test_an_index_goes_with_its_segment(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=False)
    lab.fill(log, 60)
    lab.flush(log)
    assert lab.segment_names(".txnindex") == ["00000000000000000000.txnindex"]
    log.delete_records(30)
    log.apply_retention(lab.now_ms)
    assert log.aborted_transactions(30, log.end_offset) == []
    job = log.jobs.removal_job(lab.now_ms)
    job.run()
    assert lab.segment_names(".txnindex") == []


def test_what_a_crash_cut_off_is_not_in_the_index(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    good_bytes = log.size_bytes
    lab.end(log, ONE, commit=False)
    log.close()
    lab.write("00000000000000000000.log", lab.read("00000000000000000000.log")[: good_bytes + 5])
    log = lab.open(clean=False, recovery_point=1)
    assert log.end_offset == 1
    assert log.aborted_transactions(0, 1) == []
    lab.end(log, ONE, commit=True)
    log.close()
    log = lab.open()
    assert log.aborted_transactions(0, 2) == []


# -- verification


def test_a_clients_first_batch_of_a_transaction_needs_a_verification(lab: Lab) -> None:
    log = lab.open()
    assert refused(Writer(lab, ONE).send, log, guard=UNVERIFIED) is ErrorCode.INVALID_TXN_STATE
    writer = Writer(lab, ONE)
    (header, _) = lab.batch(producer=(ONE, 0, 0), transactional=True)[0]
    guard = log.producers.begin_verification(header, bumps_epoch=False, now_ms=lab.now_ms)
    assert writer.send(log, guard=guard) == 0
    assert log.producers.begin_verification(header, bumps_epoch=False, now_ms=lab.now_ms) is None
    assert writer.send(log, guard=UNVERIFIED) == 1


def test_a_verification_does_not_outlive_a_marker(lab: Lab) -> None:
    """The produce that arrives after the abort: it must not begin a transaction that no one ends (KAFKA-14402)."""
    log = lab.open()
    (header, _) = lab.batch(producer=(ONE, 0, 0), transactional=True)[0]
    guard = log.producers.begin_verification(header, bumps_epoch=False, now_ms=lab.now_ms)
    lab.end(log, ONE, commit=False)
    assert refused(Writer(lab, ONE).send, log, guard=guard) is ErrorCode.INVALID_TXN_STATE
    again = log.producers.begin_verification(header, bumps_epoch=False, now_ms=lab.now_ms)
    assert again is not guard
    assert refused(Writer(lab, ONE).send, log, guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_in_version_2_a_verification_of_the_next_epoch_outlives_the_marker_before_it(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE, epoch=1).send(log)
    (header, _) = lab.batch(producer=(ONE, 2, 0), transactional=True)[0]
    guard = log.producers.begin_verification(header, bumps_epoch=True, now_ms=lab.now_ms)
    lab.end(log, ONE, commit=True, epoch=2, version=2)
    assert Writer(lab, ONE, epoch=2).send(log, guard=guard) == 2


def test_a_later_batch_does_not_overtake_the_one_whose_verification_failed(lab: Lab) -> None:
    log = lab.open()
    (first, _) = lab.batch(producer=(ONE, 0, 4), transactional=True)[0]
    guard = log.producers.begin_verification(first, bumps_epoch=False, now_ms=lab.now_ms)
    later = Writer(lab, ONE, sequence=5)
    assert refused(later.send, log, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert Writer(lab, ONE, sequence=4).send(log, guard=guard) == 0


def test_a_late_request_of_an_older_epoch_does_not_stop_the_transaction_under_way(lab: Lab) -> None:
    log = lab.open()
    (first, _) = lab.batch(producer=(ONE, 3, 0), transactional=True)[0]
    guard = log.producers.begin_verification(first, bumps_epoch=True, now_ms=lab.now_ms)
    writer = Writer(lab, ONE, epoch=3)
    assert writer.send(log, guard=guard) == 0
    (late, _) = lab.batch(producer=(ONE, 2, 0), transactional=True)[0]
    assert log.producers.begin_verification(late, bumps_epoch=True, now_ms=lab.now_ms) is not None
    assert writer.send(log, guard=UNVERIFIED) == 1


def test_in_version_2_an_unknown_producer_begins_with_sequence_0(lab: Lab) -> None:
    log = lab.open()
    (header, _) = lab.batch(producer=(ONE, 1, 3), transactional=True)[0]
    guard = log.producers.begin_verification(header, bumps_epoch=True, now_ms=lab.now_ms)
    assert refused(Writer(lab, ONE, epoch=1, sequence=3).send, log, guard=guard) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_a_batch_sent_again_after_its_transaction_ended_is_known(lab: Lab) -> None:
    log = lab.open()
    Writer(lab, ONE).send(log)
    lab.end(log, ONE, commit=True)
    assert Writer(lab, ONE).send(log, guard=UNVERIFIED) == 0
    assert log.end_offset == 2


def test_what_a_coordinator_writes_in_a_producers_name_has_no_sequence(lab: Lab) -> None:
    log = lab.open()
    for _ in range(3):
        Writer(lab, ONE, sequence=-1).send(log)
    assert log.end_offset == 3
    lab.end(log, ONE, commit=False)
    assert log.aborted_transactions(0, 4) == [(ONE, 0)]
