"""Images that are kept for deltas: many while they are small, few when each names many topics."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from odradek.cluster.controller.publishing import Publication
from odradek.cluster.image import BrokerImage, ClusterImage, TopicImage
from odradek.model.ids import BrokerId


async def nothing(before: ClusterImage, after: ClusterImage) -> None:
    return None


def image_of(topic_count: int, version: int) -> ClusterImage:
    topics = {
        f"t{number}": TopicImage(name=f"t{number}", topic_id=UUID(int=number + 1), partitions=(), configs={})
        for number in range(topic_count)
    }
    return ClusterImage(
        version=version,
        cluster_id="c",
        controller_id=1,
        brokers=(),
        topics=topics,
        topics_by_id={topic.topic_id: topic for topic in topics.values()},
    )


@pytest.mark.parametrize(("topic_count", "kept"), [(10, 128), (1000, 128), (4000, 40), (40_000, 8)])
async def test_as_many_images_are_kept_as_have_room_together(topic_count: int, kept: int) -> None:
    image = image_of(topic_count, 0)
    publication = Publication(image, nothing)
    for version in range(1, 200):
        publication.remember(image.with_topics([]) if version % 2 else image)
    assert publication.kept_count == kept


async def test_a_change_waits_for_its_own_logs_and_not_for_those_of_an_earlier_one() -> None:
    logs: list[asyncio.Future[None]] = []

    async def apply(before: ClusterImage, after: ClusterImage) -> asyncio.Future[None] | None:
        if after.version > 2:
            return None
        logs.append(asyncio.get_running_loop().create_future())
        return logs[-1]

    publication = Publication(image_of(1, 0), apply)
    publication.publish(image_of(1, 1))
    first = asyncio.ensure_future(publication.applied_here())
    await turns()
    assert publication.applied.version == 1, "it is shown though its logs are not open"
    publication.publish(image_of(1, 2))
    second = asyncio.ensure_future(publication.applied_here())
    await turns()
    publication.publish(image_of(1, 3))
    await publication.applied_here()
    assert not first.done()
    logs[1].set_result(None)
    await second
    assert not first.done()
    publication.end()
    await first


async def test_a_topic_is_there_when_its_holders_opened_it_whatever_else_they_are_opening() -> None:
    publication = Publication(image_with_brokers(image_of(2, 5), 7), nothing)
    ids = [topic.topic_id for topic in publication.latest.topics.values()]
    slow, wanted = (ids[0], 0), (ids[1], 3)
    publication.acknowledged_by(BrokerId(7), 5, frozenset({slow, wanted}))
    waiting = asyncio.ensure_future(
        publication.applied_by([BrokerId(7)], 5, topic_ids={ids[1]}, timeout_s=20.0)
    )
    await turns()
    assert not waiting.done()
    publication.acknowledged_by(BrokerId(7), 5, frozenset({slow}))
    assert await waiting


def image_with_brokers(image: ClusterImage, *brokers: int) -> ClusterImage:
    return replace(
        image, brokers=tuple(BrokerImage(broker_id=BrokerId(broker), host="h", port=1) for broker in brokers)
    )


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
