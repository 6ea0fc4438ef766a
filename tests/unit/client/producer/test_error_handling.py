"""The producer's table of errors."""

from __future__ import annotations

import pytest

from odradek.client.producer.error_handling import ProduceErrorAction, judge
from odradek.model.errors import ErrorCode


def verdict(
    code: ErrorCode, *, idempotent: bool = True, head: bool = True, records: int = 2, may_retry: bool = True
) -> ProduceErrorAction:
    return judge(code, idempotent=idempotent, head=head, record_count=records, may_retry=may_retry)


@pytest.mark.parametrize("idempotent", [True, False])
def test_no_error_is_delivered(idempotent: bool) -> None:
    assert verdict(ErrorCode.NONE, idempotent=idempotent, may_retry=False) is ProduceErrorAction.DELIVERED


def test_a_recognised_duplicate_is_delivered_only_with_idempotence() -> None:
    assert verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is ProduceErrorAction.DELIVERED
    assert verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, idempotent=False) is ProduceErrorAction.GIVE_UP


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_too_large_is_split_down_to_single_records(code: ErrorCode) -> None:
    assert verdict(code, may_retry=False) is ProduceErrorAction.SPLIT
    assert verdict(code, records=1) is ProduceErrorAction.GIVE_UP


def test_a_gap_in_sequences_is_the_fault_of_an_earlier_batch_or_else_of_the_epoch() -> None:
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(code, head=False, may_retry=False) is ProduceErrorAction.RETRY_IN_TURN
    assert verdict(code, head=True) is ProduceErrorAction.NEW_EPOCH
    assert verdict(code, idempotent=False) is ProduceErrorAction.GIVE_UP


def test_a_forgotten_producer_gets_a_new_epoch_and_a_fenced_one_a_new_id() -> None:
    assert verdict(ErrorCode.UNKNOWN_PRODUCER_ID) is ProduceErrorAction.NEW_EPOCH
    assert verdict(ErrorCode.INVALID_PRODUCER_EPOCH) is ProduceErrorAction.NEW_PRODUCER_ID


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_what_a_moved_leader_explains_is_retried_elsewhere(code: ErrorCode) -> None:
    assert verdict(code) is ProduceErrorAction.RETRY_ELSEWHERE


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_other_retriable_errors_are_retried_where_they_were(code: ErrorCode) -> None:
    assert verdict(code) is ProduceErrorAction.RETRY


@pytest.mark.parametrize("code", list(ErrorCode))
def test_nothing_is_tried_again_when_time_is_up_except_what_costs_no_attempt(code: ErrorCode) -> None:
    outcome = verdict(code, records=1, may_retry=False)
    assert outcome in (ProduceErrorAction.DELIVERED, ProduceErrorAction.GIVE_UP)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_a_verdict_and_only_retriable_ones_are_retried_as_they_are(code: ErrorCode) -> None:
    outcome = verdict(code, idempotent=False, records=1)
    if outcome in (ProduceErrorAction.RETRY, ProduceErrorAction.RETRY_ELSEWHERE):
        assert code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE
