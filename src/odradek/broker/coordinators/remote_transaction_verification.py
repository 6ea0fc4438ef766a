"""Questions to transaction coordinators on other brokers: AddPartitionsToTxn from version 4 on, gathered by coordinator.

One request is under way to a coordinator at a time, as in Kafka: what is asked meanwhile shares the next one, with at most one
transaction of a transactional id in each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.cluster.peer_requests import RequestBatcher, SendToPeer
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.telemetry import events
from odradek.transactions.verification import TransactionVerifier, VerificationQuestion

_log = events.caused_by_peers("transactions")
_ADD_PARTITIONS_TO_TXN: Final = 24
_LANE: Final = "transactions"
_RESPONSE_SECONDS_MAX: Final = 10.0

Codes = Mapping[TopicPartition, ErrorCode]


class RemoteVerification:
    """Verifies transactions with coordinators on other brokers by AddPartitionsToTxn requests. Used on the event loop only.
    A coordinator elsewhere does not wait for a transaction that is being completed: it is asked again, for
    `add.partitions.to.txn.retry.backoff.max.ms`."""

    def __init__(
        self,
        send_to_peer: Callable[[], SendToPeer],
        config: Callable[[], BrokerConfig],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._send_to_peer = send_to_peer
        self._config = config
        self._sleep = sleep
        self._gathered: RequestBatcher[VerificationQuestion, Codes] = RequestBatcher(
            self._send, key=lambda question: question.transactional_id, under_way_max=1
        )

    def at(self, broker: BrokerId) -> TransactionVerifier:
        return _VerifierOfCoordinator(self, broker)

    def close(self) -> None:
        self._gathered.close()

    async def verify(self, coordinator: BrokerId, question: VerificationQuestion) -> Codes:
        """Asks the coordinator again while the producer's last transaction gets its markers: the client
        continues at once, which takes less time than its own retry."""
        config = self._config()
        pause_seconds = config.transaction.add_partitions_to_txn_retry_backoff_ms / 1000
        left_seconds = config.transaction.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            codes = await self._answered(coordinator, question)
            if not question.adds or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                return codes
            if left_seconds <= 0:
                return codes
            await self._sleep(min(pause_seconds, left_seconds))
            left_seconds -= pause_seconds

    async def _answered(self, coordinator: BrokerId, question: VerificationQuestion) -> Codes:
        try:
            return await self._gathered.submit(coordinator, question)
        except OdradekError as error:
            _log.debug("coordinator_not_asked", broker=coordinator, reason=str(error))
            return dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _send(
        self, coordinator: BrokerId, questions: Sequence[VerificationQuestion]
    ) -> Sequence[Codes]:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in questions])
        response = await self._send_to_peer()(
            coordinator, _ADD_PARTITIONS_TO_TXN, request, timeout_s=_RESPONSE_SECONDS_MAX, lane=_LANE
        )
        assert isinstance(response, AddPartitionsToTxnResponse)
        return answers(questions, response)


class _VerifierOfCoordinator(NamedTuple):
    remote: RemoteVerification
    coordinator: BrokerId

    async def verify(self, question: VerificationQuestion) -> Codes:
        return await self.remote.verify(self.coordinator, question)


def answers(questions: Sequence[VerificationQuestion], response: AddPartitionsToTxnResponse) -> list[Codes]:
    """Returns the response's answer to each question; no two have the same transactional id."""
    if response.error_code != ErrorCode.NONE:
        code = ErrorCode.of(response.error_code)
        if (
            code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ):  # that is between brokers: a client would not understand
            code = ErrorCode.INVALID_TXN_STATE
        return [dict.fromkeys(question.partitions, code) for question in questions]
    results = {verified.transactional_id: verified for verified in response.results_by_transaction}
    return [_codes(question, results.get(question.transactional_id)) for question in questions]


def _codes(question: VerificationQuestion, verified: AddPartitionsToTxnResult | None) -> Codes:
    codes = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
    for topic in verified.topic_results if verified is not None else ():
        for partition_result in topic.results_by_partition:
            name = TopicPartition(topic.name, partition_result.partition_index)
            if name in codes:
                codes[name] = _known(ErrorCode.of(partition_result.partition_error_code))
    return codes


def _known(code: ErrorCode) -> ErrorCode:
    """Producers expect INVALID_PRODUCER_EPOCH from partitions."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _transaction(question: VerificationQuestion) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.adds,
        topics=_by_topic(sorted(question.partitions)),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()]
