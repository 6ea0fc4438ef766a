"""Who asks a transaction's coordinator whether a producer may write, wherever that coordinator is (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.cluster.peer_requests import SendToPeer
from odradek.cluster.image import TRANSACTION_STATE
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.broker.coordinators import remote_transaction_verification
    from odradek.broker.coordinators.remote_transaction_verification import Question, RemoteVerification
else:
    remote_transaction_verification = lazy("odradek.broker.coordinators.remote_transaction_verification")

Codes = Mapping[TopicPartition, ErrorCode]


class CoordinatorDirectory(Protocol):
    """Where coordinators are, here and elsewhere."""

    @property
    def here(self) -> BrokerId:
        """This broker."""

    @property
    def ask_peer(self) -> SendToPeer: ...
    def coordinator_of(self, topic: str, key: str) -> tuple[int, BrokerId]:
        """The partition that a key belongs to, and the broker that coordinates it; COORDINATOR_NOT_AVAILABLE without one."""

    def service(self, topic: str) -> Any:
        """This broker's service of a kind."""

    def on_close(self, close: Callable[[], None]) -> None:
        """What is to end with the coordinators."""


class ClusterVerifier:
    """A `verification.TransactionVerifier`. The coordinator is found by this broker's image: on this broker it is called,
    elsewhere it is asked with AddPartitionsToTxn."""

    def __init__(
        self,
        coordinators: CoordinatorDirectory,
        config: Callable[[], BrokerConfig],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._coordinators = coordinators
        self._config = config
        self._sleep = sleep
        self._remote: RemoteVerification | None = None
        coordinators.on_close(self._close)

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Codes:
        """See `Transactions.verify`; NETWORK_EXCEPTION too, when the coordinator cannot be reached."""
        wanted = frozenset(partitions)
        try:
            _, coordinator = self._coordinators.coordinator_of(TRANSACTION_STATE, transactional_id)
        except KafkaError as error:
            return dict.fromkeys(wanted, error.code)
        if coordinator == self._coordinators.here:
            transactions = self._coordinators.service(TRANSACTION_STATE)
            found: Codes = await transactions.verify(
                transactional_id, producer_id, producer_epoch, wanted, add=add
            )
            return found
        if not add and not self._config().transaction.partition_verification_enable:
            return dict.fromkeys(wanted, ErrorCode.NONE)

        question = remote_transaction_verification.Question(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            adds=add,
            partitions=wanted,
        )
        return await self._patiently(coordinator, question)

    async def _patiently(self, coordinator: BrokerId, question: Question) -> Codes:
        """A client goes on at once, while its last transaction gets its markers. That takes less than its own next attempt."""
        config = self._config()
        pause_seconds = config.transaction.add_partitions_to_txn_retry_backoff_ms / 1000
        left_seconds = config.transaction.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            codes = await self._asked().verify(coordinator, question)
            if not question.adds or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                return codes
            if left_seconds <= 0:
                return codes
            await self._sleep(min(pause_seconds, left_seconds))
            left_seconds -= pause_seconds

    def _asked(self) -> remote_transaction_verification.RemoteVerification:
        if self._remote is None:
            self._remote = remote_transaction_verification.RemoteVerification(
                lambda: self._coordinators.ask_peer
            )
        return self._remote

    def _close(self) -> None:
        if self._remote is not None:
            self._remote.close()
