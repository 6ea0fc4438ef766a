"""AlterPartition (key 56): a leader proposes to the controller who is in sync (KIP-497).

Between brokers. `leader_recovery_state` is 1 while the leader, elected uncleanly, has not recovered yet (KIP-704).

Versions
     2  topics by id; INELIGIBLE_REPLICA and NEW_LEADER_ELECTED (KIP-841)
     3  epochs of the brokers in the new ISR: a restarted broker is not mistaken for its former self (KIP-903)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class TopicData(Struct):
    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class AlterPartitionRequest(Message, api=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class PartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class TopicResult(Struct):
    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class AlterPartitionResponse(Message, api=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicResult] = array(TopicResult, "0+")
