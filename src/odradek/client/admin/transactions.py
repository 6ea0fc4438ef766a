"""The messages of admin calls about transactions, elections and features, and how their answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.client.admin.transaction_descriptions import (
    FeatureDescription,
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.groups.member_bytes import by_topic
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.cluster.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.messages.data.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.topics.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.protocol.messages.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_PREFERRED, _UNCLEAN = 0, 1


def list_transactions(
    broker: int,
    states: Sequence[str],
    producer_ids: Sequence[int],
    duration_ms: int | None,
    pattern: str | None,
) -> Exchange:
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if duration_ms is None else duration_ms,
        transactional_id_pattern=pattern,
    )

    def read(told: ListTransactionsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        found = [
            TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.transaction_state,
                coordinator=broker,
            )
            for each in told.transaction_states
        ]
        outcome.note(broker, told.error_code, None, found)
        return outcome

    return Exchange(request=request, answer=ListTransactionsResponse, read=read)


def describe_transactions(ids: Iterable[str], coordinator: int) -> Exchange:
    def read(told: DescribeTransactionsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for each in told.transaction_states:
            description = TransactionDescription(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                state=each.transaction_state,
                timeout_ms=each.transaction_timeout_ms,
                start_time_ms=each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
                partitions=tuple(
                    TopicPartition(topic.topic, number)
                    for topic in each.topics
                    for number in topic.partitions
                ),
                coordinator=coordinator,
            )
            outcome.note(each.transactional_id, each.error_code, None, description)
        return outcome

    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    return Exchange(request=request, answer=DescribeTransactionsResponse, read=read)


def describe_producers(wanted: Iterable[TopicPartition], timeout_s: float) -> Exchange:
    def read(told: DescribeProducersResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in told.topics:
            for each in topic.partitions:
                producers = tuple(
                    ProducerDescription(
                        producer_id=one.producer_id,
                        producer_epoch=one.producer_epoch,
                        last_sequence=one.last_sequence,
                        last_timestamp_ms=one.last_timestamp,
                        coordinator_epoch=one.coordinator_epoch,
                        transaction_start_offset=one.current_txn_start_offset
                        if one.current_txn_start_offset >= 0
                        else None,
                    )
                    for one in each.active_producers
                )
                tp = TopicPartition(topic.name, each.partition_index)
                outcome.note(tp, each.error_code, each.error_message, producers)
        return outcome

    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(wanted).items()
        ]
    )
    return Exchange(request=request, answer=DescribeProducersResponse, read=read)


def abort_transactions(wanted: Mapping[TopicPartition, OpenTransaction], timeout_s: float) -> Exchange:
    """Abort markers, written into the partitions as a coordinator would."""
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                transaction_result=False,
                coordinator_epoch=max(each.coordinator_epoch, 0),
                topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            )
            for tp, each in wanted.items()
        ]
    )

    def read(told: WriteTxnMarkersResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for marker in told.markers:
            for topic in marker.topics:
                for each in topic.partitions:
                    outcome.note(TopicPartition(topic.name, each.partition_index), each.error_code, None)
        return outcome

    return Exchange(request=request, answer=WriteTxnMarkersResponse, read=read)


def elect_leaders(wanted: Iterable[TopicPartition], unclean: bool, timeout_s: float) -> Exchange:
    """That no election was needed is a success."""
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=[
            TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(wanted).items()
        ],
        timeout_ms=max(1, int(timeout_s * 1000)),
    )

    def read(told: ElectLeadersResponse) -> CallOutcome:
        _check(told.error_code, None)
        outcome = CallOutcome.none()
        for topic in told.replica_election_results:
            for each in topic.partition_result:
                elected = each.error_code != ErrorCode.ELECTION_NOT_NEEDED
                outcome.note(
                    TopicPartition(topic.topic, each.partition_id),
                    each.error_code if elected else ErrorCode.NONE,
                    each.error_message,
                    elected,
                )
        return outcome

    return Exchange(request=request, answer=ElectLeadersResponse, read=read)


def describe_features() -> Exchange:
    def read(told: ApiVersionsResponse) -> CallOutcome:
        _check(told.error_code, None)
        levels = {each.name: each.max_version_level for each in told.finalized_features}
        outcome = CallOutcome.none()
        for each in told.supported_features:
            outcome.results[each.name] = FeatureDescription(
                name=each.name,
                supported=(each.min_version, each.max_version),
                finalized=levels.get(each.name, 0),
            )
        return outcome

    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="admin")
    return Exchange(request=request, answer=ApiVersionsResponse, read=read)


def update_features(
    levels: Mapping[str, int], current: Mapping[str, int], validate_only: bool, timeout_s: float
) -> Exchange:
    """They succeed or fail together."""
    request = UpdateFeaturesRequest(
        timeout_ms=max(1, int(timeout_s * 1000)),
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=_UPGRADE if level >= current.get(name, 0) else _SAFE_DOWNGRADE,
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )

    def read(told: UpdateFeaturesResponse) -> CallOutcome:
        _check(told.error_code, told.error_message)
        outcome = CallOutcome.none()
        for each in told.results:
            outcome.note(each.feature, each.error_code, each.error_message)
        return outcome

    return Exchange(request=request, answer=UpdateFeaturesResponse, read=read)


def _check(error_code: int, message: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, message)
