"""What clients are told by a broker that listens, and has not yet heard who is in its cluster: nothing, until it has."""

from dataclasses import replace
from typing import Any

import pytest

from odradek.cluster.image import ClusterImage
from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest


@pytest.mark.parametrize(
    ("name", "version", "request_"),
    [("Metadata", 12, MetadataRequest(topics=[])), ("DescribeCluster", 1, DescribeClusterRequest())],
)
async def test_an_answer_waits_until_it_can_name_a_broker(
    scene: Any, wire: Any, until: Any, name: str, version: int, request_: Any
) -> None:
    """librdkafka forgets every broker that an answer does not name: named none, a client has nobody left, and hangs."""
    link = scene.broker.context.cluster
    known: ClusterImage = link.image
    link._image = replace(known, brokers=())
    before = len(link._waiting)
    wire.send(name, version, request_)
    await until(lambda: len(link._waiting) > before)

    await link.take(known)

    assert [one.port for one in (await wire.receive()).brokers] == [scene.broker.port]
