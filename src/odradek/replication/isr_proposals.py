"""Sends proposals of ISRs to the controller, for all partitions together, in AlterPartition requests
(KIP-497).

One request is under way at a time. What the controller decided goes to the partition. What it did not get to, because it could
not be reached, is none any more, or does not know this broker's epoch yet, is asked again after a pause, for as long as the
leader still wants it: the same proposal, of the same epochs. So if the controller carried it out and the answer was lost,
the second one is refused as outdated, and the partition waits for the state that holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.protocol import Message
from odradek.protocol.messages.cluster.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.telemetry import events

_log = events.get("replication")

ALTER_PARTITION: Final = 56
_PARTITIONS_MAX: Final = 2000
"""The most partitions of one request."""
PAUSE_S_MIN: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_RECOVERED: Final = 0
_DECIDED: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""There is no use in asking again: the partition has to learn a newer state first."""

SendToController = Callable[[int, Message], Awaitable[Message]]
"""(API key, request) -> response, of the controller; an OdradekError when there is none."""


class AlterPartitions:
    """Sends the ISR proposals of a broker's partitions to the controller: implements `IsrProposals`. Used on the event loop
    only."""

    def __init__(
        self, send: SendToController, *, broker_id: BrokerId, broker_epoch: Callable[[], int]
    ) -> None:
        self._send = send
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting: dict[LeaderRole, IsrProposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        self._waiting[leader] = proposal
        if self._task is None and not self._closed:
            # It starts in the loop's next round: what is proposed in this one goes together.
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Proposals that were not answered are forgotten: the next leader makes its own."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        pause_s = PAUSE_S_MIN
        while proposals := self._next_batch():
            try:
                again = await self._propose_batch(proposals)
            except OdradekError as error:
                _log.warning("isr_proposals_not_answered", partitions=len(proposals), reason=str(error))
                again = proposals
            except Exception:  # noqa: BLE001 - a root: without this loop no ISR would change any more
                _log.exception("isr_proposals_failed", partitions=len(proposals))
                again = proposals
            for leader, proposal in again.items():
                self._waiting.setdefault(leader, proposal)
            if not again:
                pause_s = PAUSE_S_MIN
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        self._task = None

    def _next_batch(self) -> dict[LeaderRole, IsrProposal]:
        """Returns the proposals that are still wanted, the oldest first."""
        taken: dict[LeaderRole, IsrProposal] = {}
        for leader in list(self._waiting):
            if len(taken) == _PARTITIONS_MAX:
                break
            proposal = self._waiting.pop(leader)
            if leader.wants(proposal):
                taken[leader] = proposal
        return taken

    async def _propose_batch(self, proposals: dict[LeaderRole, IsrProposal]) -> dict[LeaderRole, IsrProposal]:
        """Sends the proposals, and passes the answers to the leaders; returns proposals to make again."""
        response = await self._send(ALTER_PARTITION, self._request(proposals.items()))
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            raise KafkaError(code, f"the controller refused all proposals: {code.meaning}")
        results = dict(_results(response))
        again: dict[LeaderRole, IsrProposal] = {}
        for leader, proposal in proposals.items():
            partition = results.get((leader.topic_id, leader.name.partition))
            reply = None if partition is None else _answer(partition)
            if reply is None:
                again[leader] = proposal
            else:
                leader.isr_answered(proposal, reply)
        return again

    def _request(self, proposals: Iterable[tuple[LeaderRole, IsrProposal]]) -> AlterPartitionRequest:
        topics: dict[UUID, list[PartitionData]] = {}
        for leader, proposal in proposals:
            data = PartitionData(
                partition_index=leader.name.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr
                ],
                leader_recovery_state=_RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
            topics.setdefault(leader.topic_id, []).append(data)
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                TopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
            ],
        )


def _results(response: AlterPartitionResponse) -> Iterator[tuple[tuple[UUID, int], PartitionResult]]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield (topic.topic_id, partition.partition_index), partition


def _answer(partition: PartitionResult) -> IsrAnswer | KafkaError | None:
    """Returns None for an error that passes."""
    if partition.error_code == ErrorCode.NONE:
        return IsrAnswer(
            leader=BrokerId(partition.leader_id),
            leader_epoch=LeaderEpoch(partition.leader_epoch),
            isr=tuple(BrokerId(broker) for broker in partition.isr),
            partition_epoch=partition.partition_epoch,
        )
    code = ErrorCode.of(partition.error_code)
    if code not in _DECIDED:
        return None
    return KafkaError(code, f"the controller answers {code.name} ({code.meaning}); its log says more")
