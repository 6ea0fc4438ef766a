"""What the log says about requests that were refused."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers import served_apis
from odradek.broker.requests.refusals import log_refusals, refusals
from odradek.model.errors import ErrorCode
from odradek.protocol import APIS, RequestHeader
from odradek.protocol.messages.data.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.metadata.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.telemetry.events import event_of

HEADER = RequestHeader(api_key=0, api_version=9, correlation_id=1, client_id="c")


def connection() -> Any:
    """What a connection is to the log: its peer, and what was reported about it."""
    return SimpleNamespace(peer="10.0.0.1:5", reported={})


def produced(*codes: int) -> ProduceResponse:
    partitions = [
        PartitionProduceResponse(index=number, error_code=code) for number, code in enumerate(codes)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=partitions)])


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.odradek_values for record in caplog.records if event_of(record) == "request_refused"]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="odradek.broker")


def test_every_response_that_can_refuse_is_understood() -> None:
    for served in served_apis():
        assert refusals(APIS[served.api_key].response()) == []


def test_a_response_without_errors_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    log_refusals(connection(), HEADER, "Produce", produced(0, 0), lambda: 0.0)
    assert not logged(caplog)


def test_one_event_names_the_first_and_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    log_refusals(connection(), HEADER, "Produce", produced(0, 3, 56, 3), lambda: 0.0)
    [values] = logged(caplog)
    assert values == {
        "peer": "10.0.0.1:5",
        "client": "c",
        "api": "Produce",
        "version": 9,
        "code": "UNKNOWN_TOPIC_OR_PARTITION",
        "reason": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.meaning,
        "about": "t-1",
        "more": 2,
    }


def test_the_reason_is_the_one_that_the_client_was_given() -> None:
    topic_result = CreatableTopicResult(name="t", error_code=17, error_message="no spaces")
    [refusal] = refusals(CreateTopicsResponse(topics=[topic_result]))
    assert (refusal.code, refusal.reason, refusal.about) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no spaces",
        "t",
    )


def test_a_mistake_that_is_repeated_is_not_repeated_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    peer = connection()
    for moment in (0.0, 1.0, 59.0, 61.0):
        log_refusals(peer, HEADER, "Produce", produced(3), lambda moment=moment: moment)  # type: ignore[misc]
    log_refusals(peer, HEADER, "Produce", produced(56), lambda: 62.0)
    log_refusals(connection(), HEADER, "Produce", produced(3), lambda: 62.0)
    assert len(logged(caplog)) == 4


def test_many_refusals_are_one_event(caplog: pytest.LogCaptureFixture) -> None:
    topics = [MetadataResponseTopic(name=f"t{number}", error_code=3) for number in range(500)]
    log_refusals(connection(), HEADER, "Metadata", MetadataResponse(topics=topics), lambda: 0.0)
    assert [values["more"] for values in logged(caplog)] == [499]


def test_what_the_protocol_tells_a_client_to_do_next_is_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    member_id_required, rebalancing = int(ErrorCode.MEMBER_ID_REQUIRED), int(ErrorCode.REBALANCE_IN_PROGRESS)
    log_refusals(connection(), HEADER, "JoinGroup", produced(member_id_required, rebalancing), lambda: 0.0)
    assert not logged(caplog)
