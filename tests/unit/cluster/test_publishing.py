"""Images that are kept for deltas: many while they are small, few when each names many topics."""

from uuid import UUID

import pytest

from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.publishing import Publication


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
        publication._remember(image.with_topics([]) if version % 2 else image)
    assert len(publication._recent) == kept
