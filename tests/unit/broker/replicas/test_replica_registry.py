"""Why a replica cannot be used: the answer is the same as often as it is asked, and nothing is kept of the askers."""

import traceback
from uuid import UUID

import pytest

from odradek.broker.replicas.replica_registry import ReplicaRegistry
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition


def test_an_offline_replica_says_why_each_time_without_keeping_who_asked() -> None:
    held = ReplicaRegistry(BrokerId(1))
    held.is_away(
        TopicPartition("t", 0), UUID(int=1), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk broke")
    )
    depths = []
    for _ in range(5):
        with pytest.raises(KafkaError, match="the disk broke") as caught:
            held.leader("t", 0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(depths)) == 1
    assert held.offline == {(UUID(int=1), 0)}
