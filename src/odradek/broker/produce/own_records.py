"""Records that a broker writes itself into topics of the cluster: into its own log where it leads the partition, and else at
the leader, over the channel between brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.broker.cluster.peer_requests import SendToPeer
from odradek.broker.produce.record_validation import ValidationTerms, checked_batches
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.cluster.image import TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.data.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.replication.crowded_appends import append_with_room
from odradek.runtime.ports import Clock

_VERSION: Final = 9
_PRODUCE: Final = 0


class OwnRecords:
    """Writes with acks=all. `what` names the records in errors, and the lane of requests to other brokers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        send_to_peer: Callable[[], SendToPeer],
        *,
        what: str,
        timeout_s: float,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._send_to_peer = send_to_peer
        self._what = what
        self._timeout_s = timeout_s

    async def append(self, topic: str, index: int, batch: bytearray) -> None:
        """Returns when it is durable. Raises NOT_LEADER_OR_FOLLOWER where another broker leads, and what the log refuses."""
        partition = self._replicas.leader(topic, index)
        now_ms = self._clock.wall_ms()
        terms = ValidationTerms(config=partition.config, api_version=_VERSION, now_ms=now_ms)
        leader = partition.leader()
        batches = checked_batches(batch, terms)
        appended = await append_with_room(partition.log, lambda: leader.append(batches, now_ms=now_ms))
        durable = leader.acknowledgement(appended.last_offset)
        if durable is not None:
            await durable

    async def send(self, topic: TopicImage, index: int, leader: BrokerId, batch: bytearray) -> None:
        """Raises PeerUnreachable, and what the leader refuses."""
        data = TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=index, records=batch)],
        )
        request = ProduceRequest(acks=-1, timeout_ms=int(self._timeout_s * 1000), topic_data=[data])
        response = await self._send_to_peer()(
            leader, _PRODUCE, request, timeout_s=self._timeout_s, lane=self._what
        )
        assert isinstance(response, ProduceResponse)
        for partition in (outcome for topic in response.responses for outcome in topic.partition_responses):
            code = ErrorCode.of(partition.error_code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, self._refusal(code, leader, partition.error_message))

    def _refusal(self, code: ErrorCode, leader: BrokerId, message: str | None) -> str:
        reason = f"broker {leader} refuses this broker's {self._what}: {code.name}"
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"{reason}; the principal by which brokers log in at each other belongs in super.users"
        return f"{reason}: {message}" if message else reason
