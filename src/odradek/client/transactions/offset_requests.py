"""TxnOffsetCommit: offsets as the request holds them, and the newest version that can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_CLASSIC_MAX: Final = 4
"""The last version for clusters without transaction.version 2 (KIP-890)."""
_WITH_NAMES_MAX: Final = 5
"""The last version that names topics; later ones have their ids (KIP-1319)."""


def topics_of(offsets: Offsets) -> list[TxnOffsetCommitRequestTopic]:
    """Returns the topics of a request, each with its name and, where it is known, its id."""
    topics: dict[tuple[str, UUID], TxnOffsetCommitRequestTopic] = {}
    for tp, committed in offsets.items():
        topic = topics.setdefault(
            (tp.topic, committed.topic_id),
            TxnOffsetCommitRequestTopic(name=tp.topic, topic_id=committed.topic_id, partitions=[]),
        )
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return list(topics.values())


def newest_version(offsets: Offsets, *, epoch_per_transaction: bool) -> int | None:
    """Returns the newest version that can hold the offsets; None: any. A topic without an id needs one with names."""
    if not epoch_per_transaction:
        return _CLASSIC_MAX
    has_ids = all(committed.topic_id != ZERO_UUID for committed in offsets.values())
    return None if has_ids else _WITH_NAMES_MAX
