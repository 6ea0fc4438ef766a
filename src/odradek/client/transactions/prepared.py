"""Transactions that one process writes and another one ends: what two-phase commit needs of a Kafka cluster.

A producer prepares its transaction (`Producer.prepare_transaction`, KIP-939's name) and hands its identity
over. The holder of the identity commits or aborts it, also after the producer has ended: brokers check the
transactional id, the producer id and the epoch, and nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Final

from odradek.client.groups.coordinator import GROUP, TRANSACTION, Coordinator
from odradek.client.network.cluster import ClusterClient
from odradek.client.transactions.core import epoch_after_commit
from odradek.client.transactions.error_actions import TransactionErrorAction, action_for_response, as_error
from odradek.client.transactions.offset_requests import Offsets, newest_version, topics_of
from odradek.client.transactions.present_topics import offsets_of_present_topics
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Message, api_by_name
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest

_FEATURE: Final = "transaction.version"
EPOCH_PER_TRANSACTION: Final = 2
_CLASSIC_END_MAX: Final = 4
_END: Final = api_by_name("EndTxn")
_CONCURRENT_PAUSE_S: Final = 0.005
"""Another step of the same transactional id is being finished: that takes milliseconds."""
_COORDINATORS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionIdentity:
    """The owner of a transaction. Its holder can end the transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionClient:
    """Asks transaction coordinators on behalf of identities. Lives on one event loop.

    Every method tries again what is worth it for `timeout_s` and then raises TimedOutError; the same call may be made
    again. ProducerFencedError: the identity is no longer the current one of its transactional id.
    """

    def __init__(self, cluster: ClusterClient, request_timeout_s: float) -> None:
        self._cluster = cluster
        self._request_timeout_s = request_timeout_s
        self._coordinators: dict[tuple[int, str], Coordinator] = {}

    async def fence(
        self, transactional_id: str, transaction_timeout_ms: int, timeout_s: float
    ) -> TransactionIdentity:
        """Become the producer of this id: older ones are fenced, and what they left open is aborted."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        what = f"fencing the producers of {transactional_id!r}"
        response = await self._call(what, TRANSACTION, transactional_id, "InitProducerId", request, timeout_s)
        return TransactionIdentity(
            transactional_id=transactional_id,
            producer_id=response.producer_id,
            producer_epoch=response.producer_epoch,
        )

    async def end(self, identity: TransactionIdentity, *, committed: bool, timeout_s: float) -> None:
        """Commit or abort. Idempotent until the transactional id is used again."""
        request = EndTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        what = f"{'committing' if committed else 'aborting'} the transaction of {identity.transactional_id!r}"
        at_most = None if await self._has_epoch_per_transaction(identity, timeout_s) else _CLASSIC_END_MAX
        await self._call(
            what, TRANSACTION, identity.transactional_id, "EndTxn", request, timeout_s, at_most=at_most
        )

    async def commit_offsets(
        self, identity: TransactionIdentity, group_id: str, offsets: Offsets, timeout_s: float
    ) -> None:
        """Make a group's offsets part of the transaction; they count when it is committed.

        Offsets of deleted topics are left out, if the offsets carry topic ids.
        """
        offsets = await offsets_of_present_topics(
            self._cluster, offsets, timeout_s, transactional_id=identity.transactional_id
        )
        if not offsets:
            return
        what = f"committing offsets of group {group_id!r} in the transaction of {identity.transactional_id!r}"
        key = identity.transactional_id
        modern = await self._has_epoch_per_transaction(identity, timeout_s)
        if not modern:
            add = AddOffsetsToTxnRequest(
                transactional_id=key,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                group_id=group_id,
            )
            await self._call(what, TRANSACTION, key, "AddOffsetsToTxn", add, timeout_s)
        request = TxnOffsetCommitRequest(
            transactional_id=key,
            group_id=group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=topics_of(offsets),
        )
        at_most = newest_version(offsets, epoch_per_transaction=modern)
        await self._call(what, GROUP, group_id, "TxnOffsetCommit", request, timeout_s, at_most=at_most)

    async def after_commit(
        self, committed: TransactionIdentity, timeout_s: float
    ) -> TransactionIdentity | None:
        """Returns the producer's identity once its transaction is committed; None where only the coordinator can tell."""
        modern = await self._has_epoch_per_transaction(committed, timeout_s)
        epoch = epoch_after_commit(committed.producer_epoch, epoch_per_transaction=modern)
        return None if epoch is None else replace(committed, producer_epoch=epoch)

    async def broker_of(self, transactional_id: str, *, search: bool = False) -> int:
        """Returns the id of the coordinator's broker; with `search`, no earlier answer counts. One attempt; KafkaError."""
        coordinator = self._coordinator(TRANSACTION, transactional_id)
        if search:
            coordinator.forget()
        return await coordinator.broker()

    # -- inside

    async def _has_epoch_per_transaction(self, identity: TransactionIdentity, timeout_s: float) -> bool:
        """Tells whether the cluster runs transaction.version 2 (KIP-890)."""
        coordinator = self._coordinator(TRANSACTION, identity.transactional_id)

        async def attempt(_: float) -> bool:
            connection = await coordinator.connection()
            return (
                connection.feature(_FEATURE) >= EPOCH_PER_TRANSACTION
                and connection.version_of(_END) > _CLASSIC_END_MAX
            )

        what = f"finding the coordinator of {identity.transactional_id!r}"
        modern: bool = await self._cluster.retrying(what, timeout_s, attempt)
        return modern

    def _coordinator(self, key_type: int, key: str) -> Coordinator:
        coordinator = self._coordinators.pop((key_type, key), None) or Coordinator(
            self._cluster, key, key_type
        )
        self._coordinators[key_type, key] = coordinator
        if len(self._coordinators) > _COORDINATORS_MAX:
            del self._coordinators[next(iter(self._coordinators))]
        return coordinator

    async def _call(
        self,
        what: str,
        key_type: int,
        key: str,
        api: str,
        request: Message,
        timeout_s: float,
        *,
        at_most: int | None = None,
    ) -> Any:
        coordinator = self._coordinator(key_type, key)

        async def attempt(left_s: float) -> object:
            while True:
                response = await coordinator.send(
                    api, request, timeout_s=min(left_s, self._request_timeout_s), at_most=at_most
                )
                code = _code_of(response)
                coordinator.note(code)
                verdict = action_for_response(code)
                if verdict is TransactionErrorAction.FINE:
                    return response
                if verdict is not TransactionErrorAction.RETRY:
                    raise as_error(verdict, code, what)
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise KafkaError(code, f"{what}: {code.meaning}")
                await asyncio.sleep(_CONCURRENT_PAUSE_S)

        return await self._cluster.retrying(what, timeout_s, attempt)


def _code_of(response: Any) -> ErrorCode:
    """Returns the first error that is not a consequence of another one."""
    topics = getattr(response, "topics", None)
    if topics is None:
        return ErrorCode.of(response.error_code)
    codes = [ErrorCode.of(partition.error_code) for topic in topics for partition in topic.partitions]
    errors = [code for code in codes if code is not ErrorCode.NONE]
    return next(
        (code for code in errors if code is not ErrorCode.OPERATION_NOT_ATTEMPTED),
        errors[0] if errors else ErrorCode.NONE,
    )
