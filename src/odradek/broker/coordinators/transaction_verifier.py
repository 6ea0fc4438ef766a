"""Verification of producers' writes with the transaction's coordinator, on any broker (KIP-890).

The port is `TransactionVerifier`: a TransactionCoordinator of this broker, or RemoteVerification for other
brokers' coordinators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from odradek.broker.cluster.peer_requests import SendToPeer
from odradek.broker.coordinators.local_or_remote import LocalOrRemote
from odradek.cluster.image import TRANSACTION_STATE
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy
from odradek.transactions.verification import TransactionVerifier, VerificationQuestion

if TYPE_CHECKING:
    from odradek.broker.coordinators import remote_transaction_verification
else:
    remote_transaction_verification = lazy("odradek.broker.coordinators.remote_transaction_verification")


class CoordinatorDirectory(Protocol):
    """Finds the brokers of coordinators, this broker or another one."""

    @property
    def here(self) -> BrokerId:
        """The id of this broker."""

    @property
    def send_to_peer(self) -> SendToPeer: ...
    def coordinator_of(self, topic: str, key: str) -> tuple[int, BrokerId]:
        """Returns the partition that a key belongs to, and the broker that coordinates it; COORDINATOR_NOT_AVAILABLE without
        one."""

    def on_close(self, close: Callable[[], None]) -> None:
        """Registers a callback for the end of the coordinators."""


class ClusterVerifier:
    """A `TransactionVerifier` that finds the coordinator by this broker's image. `local` is the one of this broker."""

    def __init__(
        self,
        coordinators: CoordinatorDirectory,
        local: Callable[[], TransactionVerifier],
        config: Callable[[], BrokerConfig],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._coordinators = coordinators
        self._config = config
        self._verifiers = LocalOrRemote[TransactionVerifier](
            lambda: coordinators.here,
            local,
            lambda: remote_transaction_verification.RemoteVerification(
                lambda: coordinators.send_to_peer, config, sleep
            ),
        )
        coordinators.on_close(self._verifiers.close)

    async def verify(self, question: VerificationQuestion) -> Mapping[TopicPartition, ErrorCode]:
        try:
            _, coordinator = self._coordinators.coordinator_of(TRANSACTION_STATE, question.transactional_id)
        except KafkaError as error:
            return dict.fromkeys(question.partitions, error.code)
        if not question.adds and not self._config().transaction.partition_verification_enable:
            return dict.fromkeys(question.partitions, ErrorCode.NONE)
        return await self._verifiers.at(coordinator).verify(question)
