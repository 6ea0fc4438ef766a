"""Leaves out offsets of deleted topics in transactions: before TxnOffsetCommit 6 they would count for other
topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.client.groups.values import OffsetAndMetadata
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.metadata_snapshot import TopicSnapshot
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.telemetry import events

_log = events.get("client")


async def offsets_of_present_topics(
    cluster: ClusterClient,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_s: float,
    *,
    transactional_id: str,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Leaves out offsets of deleted topics: TxnOffsetCommit below version 6 takes names, and commits them for
    others.

    Only offsets that carry a topic's id are looked at. KafkaError when no broker can be asked within `timeout_s`.
    """
    known = {tp: offset.topic_id for tp, offset in offsets.items() if offset.topic_id != ZERO_UUID}
    if not known:
        return dict(offsets)
    names = {tp.topic for tp in known}
    topics = await _describe(cluster, names, timeout_s)
    if None in topics.values():  # one broker alone may not have heard of a new topic yet
        await asyncio.sleep(cluster.backoff.delay_s(0))
        topics = await _describe(cluster, names, timeout_s)
    gone = {
        tp
        for tp, topic_id in known.items()
        if tp.topic in topics
        and ((now := topics[tp.topic]) is None or now.topic_id not in (topic_id, ZERO_UUID))
    }
    if gone:
        _log.warning(
            "offsets_of_deleted_topics_not_committed",
            transactional_id=transactional_id,
            offsets={str(tp): offsets[tp].offset for tp in gone},
        )
    return {tp: offset for tp, offset in offsets.items() if tp not in gone}


async def _describe(
    cluster: ClusterClient, topics: set[str], timeout_s: float
) -> dict[str, TopicSnapshot | None]:
    async def attempt(left_s: float) -> dict[str, TopicSnapshot | None]:
        return await cluster.metadata.describe(topics)

    described: dict[str, TopicSnapshot | None] = await cluster.retrying(
        "send_offsets_to_transaction", timeout_s, attempt
    )
    return described
