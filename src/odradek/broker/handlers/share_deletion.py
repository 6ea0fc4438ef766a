"""Deletes a share group's state of topics: first the state, then the group's note that it exists."""

from __future__ import annotations

from uuid import UUID

from odradek.broker.requests.context import BrokerContext
from odradek.groups.share.state_formats import SharePartitionKey


async def forget_topic(broker: BrokerContext, group_id: str, topic_id: UUID) -> None:
    """The group has no members."""
    topic = (await broker.groups.share_topics(group_id)).get(topic_id)
    if topic is not None:
        for partition in sorted(topic.partitions):
            await broker.shares.forget(SharePartitionKey(group_id, topic_id, partition))
        await broker.groups.end_share_topics(group_id, frozenset({topic_id}))


async def forget_group(broker: BrokerContext, group_id: str) -> None:
    """Deletes a share group's state before the group is deleted; does nothing for other groups. Raises NON_EMPTY_GROUP."""
    topics = await broker.groups.share_topics(group_id)
    if topics:
        await broker.groups.check_share_unused(group_id)
        for topic_id in topics:
            await forget_topic(broker, group_id, topic_id)
