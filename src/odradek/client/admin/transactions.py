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

    def read(response: ListTransactionsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        transaction_listings = [
            TransactionListing(
                transactional_id=transaction_state.transactional_id,
                producer_id=transaction_state.producer_id,
                state=transaction_state.transaction_state,
                coordinator=broker,
            )
            for transaction_state in response.transaction_states
        ]
        outcome.note(broker, response.error_code, None, transaction_listings)
        return outcome

    return Exchange(request=request, answer=ListTransactionsResponse, read=read)


def describe_transactions(ids: Iterable[str], coordinator: int) -> Exchange:
    def read(response: DescribeTransactionsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for transaction_state in response.transaction_states:
            description = TransactionDescription(
                transactional_id=transaction_state.transactional_id,
                producer_id=transaction_state.producer_id,
                producer_epoch=transaction_state.producer_epoch,
                state=transaction_state.transaction_state,
                timeout_ms=transaction_state.transaction_timeout_ms,
                start_time_ms=transaction_state.transaction_start_time_ms
                if transaction_state.transaction_start_time_ms >= 0
                else None,
                partitions=tuple(
                    TopicPartition(topic.topic, number)
                    for topic in transaction_state.topics
                    for number in topic.partitions
                ),
                coordinator=coordinator,
            )
            outcome.note(transaction_state.transactional_id, transaction_state.error_code, None, description)
        return outcome

    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    return Exchange(request=request, answer=DescribeTransactionsResponse, read=read)


def describe_producers(wanted: Iterable[TopicPartition], timeout_s: float) -> Exchange:
    def read(response: DescribeProducersResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in response.topics:
            for partition in topic.partitions:
                producers = tuple(
                    ProducerDescription(
                        producer_id=active_producer.producer_id,
                        producer_epoch=active_producer.producer_epoch,
                        last_sequence=active_producer.last_sequence,
                        last_timestamp_ms=active_producer.last_timestamp,
                        coordinator_epoch=active_producer.coordinator_epoch,
                        transaction_start_offset=active_producer.current_txn_start_offset
                        if active_producer.current_txn_start_offset >= 0
                        else None,
                    )
                    for active_producer in partition.active_producers
                )
                tp = TopicPartition(topic.name, partition.partition_index)
                outcome.note(tp, partition.error_code, partition.error_message, producers)
        return outcome

    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(wanted).items()
        ]
    )
    return Exchange(request=request, answer=DescribeProducersResponse, read=read)


def abort_transactions(wanted: Mapping[TopicPartition, OpenTransaction], timeout_s: float) -> Exchange:
    """Writes abort markers into the partitions, as a coordinator would."""
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=partition_state.producer_id,
                producer_epoch=partition_state.producer_epoch,
                transaction_result=False,
                coordinator_epoch=max(partition_state.coordinator_epoch, 0),
                topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            )
            for tp, partition_state in wanted.items()
        ]
    )

    def read(response: WriteTxnMarkersResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for marker in response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    outcome.note(
                        TopicPartition(topic.name, partition.partition_index), partition.error_code, None
                    )
        return outcome

    return Exchange(request=request, answer=WriteTxnMarkersResponse, read=read)


def elect_leaders(wanted: Iterable[TopicPartition], unclean: bool, timeout_s: float) -> Exchange:
    """Elects leaders. A partition that needs no election counts as a success."""
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=[
            TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(wanted).items()
        ],
        timeout_ms=max(1, int(timeout_s * 1000)),
    )

    def read(response: ElectLeadersResponse) -> CallOutcome:
        _check(response.error_code, None)
        outcome = CallOutcome.none()
        for topic in response.replica_election_results:
            for partition_result in topic.partition_result:
                elected = partition_result.error_code != ErrorCode.ELECTION_NOT_NEEDED
                outcome.note(
                    TopicPartition(topic.topic, partition_result.partition_id),
                    partition_result.error_code if elected else ErrorCode.NONE,
                    partition_result.error_message,
                    elected,
                )
        return outcome

    return Exchange(request=request, answer=ElectLeadersResponse, read=read)


def describe_features() -> Exchange:
    def read(response: ApiVersionsResponse) -> CallOutcome:
        _check(response.error_code, None)
        levels = {
            finalized_feature.name: finalized_feature.max_version_level
            for finalized_feature in response.finalized_features
        }
        outcome = CallOutcome.none()
        for supported_feature in response.supported_features:
            outcome.results[supported_feature.name] = FeatureDescription(
                name=supported_feature.name,
                supported=(supported_feature.min_version, supported_feature.max_version),
                finalized=levels.get(supported_feature.name, 0),
            )
        return outcome

    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="admin")
    return Exchange(request=request, answer=ApiVersionsResponse, read=read)


def update_features(
    levels: Mapping[str, int], current: Mapping[str, int], validate_only: bool, timeout_s: float
) -> Exchange:
    """Returns the exchange. The updates succeed or fail together."""
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

    def read(response: UpdateFeaturesResponse) -> CallOutcome:
        _check(response.error_code, response.error_message)
        outcome = CallOutcome.none()
        for feature in response.results:
            outcome.note(feature.feature, feature.error_code, feature.error_message)
        return outcome

    return Exchange(request=request, answer=UpdateFeaturesResponse, read=read)


def _check(error_code: int, message: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, message)
