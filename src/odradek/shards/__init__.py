"""Replicated state machines whose log is a partition: what groups and transactions are built on."""

from odradek.shards.held import WaitingRequest
from odradek.shards.log import ShardLog
from odradek.shards.machine import ShardMachine, StoredRecord
from odradek.shards.outcome import BatchProducer, DeferredReply, Moment, NewRecord, Outcome, Ticket
from odradek.shards.shard import PATIENCE_SECONDS, Shard
from odradek.shards.shards import Shards, decided, java_hash, partition_of

__all__ = [
    "PATIENCE_SECONDS",
    "BatchProducer",
    "DeferredReply",
    "Moment",
    "NewRecord",
    "Outcome",
    "Shard",
    "ShardLog",
    "ShardMachine",
    "Shards",
    "StoredRecord",
    "Ticket",
    "WaitingRequest",
    "decided",
    "java_hash",
    "partition_of",
]
