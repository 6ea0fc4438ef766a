"""Records of a share consumer: each is returned, decided about, sent, and settled, or given up with its session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.client.network.errors import IllegalStateError
from odradek.client.share.acknowledgements import TypedRange
from odradek.client.share.acquired_chunk import AcquiredChunk, DeliveredRange
from odradek.client.share.deliveries import Deliveries, session_over
from odradek.client.share.share_record import SharePartitionId, ShareRecord, ShareSource
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.records import TimestampType

PARTITION = SharePartitionId("t", UUID(int=7), 0)
FIRST, SECOND = ShareSource(1, 0), ShareSource(1, 1)
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


def record(offset: int) -> ShareRecord[Any, Any]:
    return ShareRecord("t", 0, offset, 5, TimestampType.CREATE_TIME, None, b"v", (), 3, 1)


def chunk_of(source: ShareSource = FIRST, *, deadline: float = 100.0, gap: bool = False) -> AcquiredChunk:
    ranges = [DeliveredRange(50, 60, 1)] if gap else []
    return AcquiredChunk(PARTITION, source, b"", ranges, deadline=deadline, check_crcs=True)


def with_records(*offsets: int, explicit: bool = False, source: ShareSource = FIRST) -> Deliveries:
    """The user has these records."""
    deliveries = Deliveries(is_explicit=explicit)
    deliveries.hand_out([(chunk_of(source), [record(offset) for offset in offsets])], 0.0)
    return deliveries


def sent(deliveries: Deliveries, source: ShareSource = FIRST) -> list[TypedRange]:
    [group] = deliveries.drain_outgoing(source)
    deliveries.settle(group, None)
    return group.ranges()


def test_implicitly_the_next_poll_accepts_what_the_last_one_returned() -> None:
    deliveries = with_records(3, 4, 6)
    assert deliveries.drain_outgoing(FIRST) == []
    assert deliveries.begin_poll(1.0)
    assert sent(deliveries) == [TypedRange(3, 4, [1]), TypedRange(6, 6, [1])]
    assert not deliveries.begin_poll(2.0)


def test_explicitly_each_record_has_its_own_decision_and_neighbours_share_a_range() -> None:
    deliveries = with_records(3, 4, 5, explicit=True)
    for offset, kind in ((3, ACCEPT), (4, REJECT), (5, RELEASE)):
        deliveries.acknowledge(("t", 0, offset), kind)
    deliveries.begin_poll(1.0)
    assert sent(deliveries) == [TypedRange(3, 5, [1, 3, 2])]


def test_a_decision_may_be_changed_until_it_is_sent() -> None:
    deliveries = with_records(3, explicit=True)
    deliveries.acknowledge(("t", 0, 3), REJECT)
    deliveries.acknowledge(("t", 0, 3), ACCEPT)
    deliveries.begin_commit(1.0)
    assert sent(deliveries) == [TypedRange(3, 3, [1])]
    with pytest.raises(IllegalStateError, match="offset 3 of t-0 is not in hand"):
        deliveries.acknowledge(("t", 0, 3), REJECT)


def test_explicitly_a_poll_waits_for_every_decision_and_a_commit_does_not() -> None:
    deliveries = with_records(3, 4, explicit=True)
    deliveries.acknowledge(("t", 0, 3), ACCEPT)
    with pytest.raises(
        IllegalStateError, match="1 record was not acknowledged, the first at offset 4 of t-0"
    ):
        deliveries.begin_poll(1.0)
    deliveries.begin_commit(1.0)
    assert sent(deliveries) == [TypedRange(3, 3, [1])]
    deliveries.acknowledge(("t", 0, 4), ACCEPT)


def test_decisions_need_explicit_mode_and_a_type_for_users() -> None:
    with pytest.raises(IllegalStateError, match=r"share\.acknowledgement\.mode=explicit"):
        with_records(3).acknowledge(("t", 0, 3), ACCEPT)
    with pytest.raises(ValueError, match="GAP"):
        with_records(3, explicit=True).acknowledge(("t", 0, 3), AcknowledgeType.GAP)


def test_a_renewed_record_comes_back_once_the_broker_agrees() -> None:
    deliveries = with_records(3, 4, explicit=True)
    deliveries.acknowledge(("t", 0, 3), RENEW)
    deliveries.acknowledge(("t", 0, 4), ACCEPT)
    deliveries.begin_poll(1.0)
    assert deliveries.sources_with_acknowledgements() == {FIRST: True}
    assert deliveries.renewed_count == 0
    assert sent(deliveries) == [TypedRange(3, 4, [4, 1])]
    assert deliveries.renewed(10) == [record(3)]
    deliveries.acknowledge(("t", 0, 3), ACCEPT)
    deliveries.begin_poll(1.0)
    assert sent(deliveries) == [TypedRange(3, 3, [1])]


def test_a_renewed_record_may_be_decided_about_without_another_poll() -> None:
    deliveries = with_records(3, explicit=True)
    deliveries.acknowledge(("t", 0, 3), RENEW)
    deliveries.begin_commit(1.0)
    with pytest.raises(IllegalStateError, match="on its way"):
        deliveries.acknowledge(("t", 0, 3), ACCEPT)
    sent(deliveries)
    deliveries.acknowledge(("t", 0, 3), ACCEPT)
    assert deliveries.renewed_count == 0
    deliveries.begin_poll(2.0)
    assert sent(deliveries) == [TypedRange(3, 3, [1])]


def test_a_record_whose_renewal_was_refused_does_not_come_back() -> None:
    deliveries = with_records(3, explicit=True)
    deliveries.acknowledge(("t", 0, 3), RENEW)
    deliveries.begin_poll(1.0)
    [group] = deliveries.drain_outgoing(FIRST)
    deliveries.settle(group, KafkaError(ErrorCode.INVALID_RECORD_STATE))
    assert deliveries.renewed_count == 0


def test_a_commit_waits_for_what_is_outgoing_and_under_way_and_knows_what_was_refused() -> None:
    deliveries = with_records(3)
    deliveries.begin_poll(1.0)
    [under_way] = deliveries.drain_outgoing(FIRST)
    deliveries.hand_out([(chunk_of(), [record(4), record(5)])], 1.0)
    waiter = deliveries.begin_commit(2.0)
    [outgoing] = deliveries.drain_outgoing(FIRST)
    deliveries.settle(under_way, KafkaError(ErrorCode.INVALID_RECORD_STATE, "too late"))
    states = [waiter.is_done]
    deliveries.settle(outgoing, None)
    assert [*states, waiter.is_done] == [False, True]
    assert {str(tp): str(error) for tp, error in waiter.errors.items()} == {
        "t-0": "INVALID_RECORD_STATE: too late"
    }
    assert list(waiter.offset_counts.values()) == [2]


def test_a_commit_is_sent_at_once_and_a_poll_lets_decisions_wait() -> None:
    deliveries = with_records(3)
    deliveries.begin_poll(7.0)
    assert deliveries.outgoing_since == 7.0
    deliveries.begin_commit(8.0)
    assert deliveries.outgoing_since == float("-inf")
    sent(deliveries)
    assert deliveries.outgoing_since is None


def test_a_session_that_ends_takes_its_buffer_and_refuses_its_decisions() -> None:
    deliveries = with_records(3, 4)
    deliveries.keeps_outcomes = True
    deliveries.add(chunk_of(gap=True))
    deliveries.begin_poll(1.0)
    deliveries.session_ended(FIRST, session_over(FIRST))
    [outcome] = deliveries.drain_outcomes()
    assert (outcome.offsets, outcome.error and outcome.error.code) == (
        (3, 4),
        ErrorCode.SHARE_SESSION_NOT_FOUND,
    )
    assert "delivered again" in str(outcome.error)
    assert deliveries.chunks() == ()
    assert deliveries.drain_outgoing(FIRST) == []


def test_what_a_late_answer_of_an_ended_session_brings_is_not_buffered() -> None:
    deliveries = Deliveries(is_explicit=False)
    deliveries.session_ended(FIRST, session_over(FIRST))
    deliveries.add(chunk_of(FIRST, gap=True))
    assert deliveries.chunks() == ()
    deliveries.add(chunk_of(SECOND, gap=True))
    assert len(deliveries.chunks()) == 1


def test_decisions_about_records_of_an_ended_session_are_refused_without_a_request() -> None:
    deliveries = with_records(3, 4, explicit=True)
    deliveries.keeps_outcomes = True
    deliveries.session_ended(FIRST, session_over(FIRST))
    deliveries.acknowledge(("t", 0, 3), ACCEPT)
    deliveries.acknowledge(("t", 0, 4), RELEASE)
    waiter = deliveries.begin_commit(2.0)
    assert waiter.is_done
    [outcome] = deliveries.drain_outcomes()
    assert outcome.error is not None
    assert deliveries.sources_with_acknowledgements() == {}


def test_a_release_is_done_when_its_session_has_ended() -> None:
    deliveries = with_records(3, explicit=True)
    deliveries.keeps_outcomes = True
    deliveries.session_ended(FIRST, session_over(FIRST))
    deliveries.acknowledge(("t", 0, 3), RELEASE)
    deliveries.begin_commit(2.0)
    assert [outcome.error for outcome in deliveries.drain_outcomes()] == [None]


def test_gaps_are_acknowledged_as_ranges_and_stay_off_the_users_outcomes() -> None:
    deliveries = with_records(3)
    deliveries.keeps_outcomes = True
    chunk = chunk_of(gap=True)
    assert chunk.next_records(5) == []
    deliveries.add(chunk)
    deliveries.hand_out([(chunk, [])], 1.0)
    deliveries.begin_poll(1.0)
    assert sent(deliveries) == [TypedRange(3, 3, [1]), TypedRange(50, 60, [0])]
    assert [outcome.offsets for outcome in deliveries.drain_outcomes()] == [(3,)]
    assert deliveries.chunks() == ()


def test_buffered_records_whose_lock_has_ended_are_not_returned() -> None:
    deliveries = Deliveries(is_explicit=False)
    deliveries.add(chunk_of(deadline=10.0, gap=True))
    with deliveries.lock:
        assert deliveries.has_records(9.9)
        assert not deliveries.has_records(10.0)
    assert deliveries.chunks() == ()


def test_only_partitions_that_a_request_may_carry_are_taken() -> None:
    deliveries = with_records(3)
    deliveries.begin_poll(1.0)
    assert deliveries.drain_outgoing(FIRST, lambda group: False) == []
    assert deliveries.outgoing_since == 1.0
    assert deliveries.drain_outgoing(FIRST, lambda group: group.partition == PARTITION) != []


def test_the_end_sends_decisions_and_gives_up_the_rest() -> None:
    deliveries = with_records(3, 4, explicit=True)
    deliveries.acknowledge(("t", 0, 4), ACCEPT)
    deliveries.end_decisions(1.0)
    assert sent(deliveries) == [TypedRange(4, 4, [1])]
    implicit = with_records(3, 4)
    implicit.end_decisions(1.0)
    assert implicit.drain_outgoing(FIRST) == []
