"""What clients hear from a broker that listens, and has not yet heard who is in its cluster: nothing, until it has."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.kit.waiting import until

from odradek.broker.cluster.link import ClusterLink
from odradek.cluster.image import ClusterImage
from odradek.model.ids import BrokerId
from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest


class SilentRegistry:
    """One that no one asks anything."""

    on_expired: Callable[[], None]


async def _applied(before: ClusterImage, after: ClusterImage) -> None: ...


@pytest.mark.parametrize(
    ("request_", "version"), [(MetadataRequest(topics=[]), 12), (DescribeClusterRequest(), 1)]
)
async def test_an_answer_waits_until_it_can_name_a_broker(
    scene: Any,
    wire: Any,
    monkeypatch: pytest.MonkeyPatch,
    request_: Any,
    version: int,
) -> None:
    """librdkafka forgets every broker that an answer does not name: named none, a client has no broker left, and hangs."""
    context = scene.broker.context
    known = context.image
    link = ClusterLink(
        context.runtime,
        cast(Any, SilentRegistry()),
        replace(known, brokers=()),
        broker_id=BrokerId(1),
        apply=_applied,
        request_timeout_s=1.0,
    )
    monkeypatch.setattr(context, "cluster", link)
    wire.ask_later(request_, version)
    await until(lambda: link.waiting_count)

    await link.apply_image(known)

    assert [broker.port for broker in (await wire.response()).brokers] == [scene.broker.port]
