"""`odradek group describe` of share groups, with members and without."""

from __future__ import annotations

import asyncio

import pytest

from odradek import Admin, AsyncAdmin
from odradek.cli.group.lag import describe_group
from odradek.client.admin.session import AdminSession
from odradek.client.network.cluster import ClusterClient
from odradek.client.settings.settings import AdminSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.testing import LocalBroker

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


async def beat(cluster: ClusterClient, epoch: int) -> None:
    """A heartbeat of the group's only member, once the broker coordinates the group."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["shared"])
    topics = ["t"] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest(
        group_id="shared", member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=topics
    )
    async with asyncio.timeout(30):
        while (
            (await cluster.send(-1, find, FindCoordinatorResponse, timeout_s=10)).coordinators[0].error_code
        ):
            await asyncio.sleep(0.01)
        while (await cluster.send(-1, request, ShareGroupHeartbeatResponse, timeout_s=10)).error_code:
            await asyncio.sleep(0.01)


def test_a_share_group_is_described_with_members_and_without() -> None:
    async def live_and_leave(address: str) -> None:
        session = AdminSession(AdminSettings.of(address, {}), None, None)
        await session.start()
        async with AsyncAdmin(address) as admin:
            await admin.create_topics(["t"])
            await beat(session.cluster, 0)
            group = (await admin.describe_groups(["shared"]))["shared"]
            assert (group.type, group.state) == ("share", "Stable")
            assert [member.member_id for member in group.members] == [MEMBER]
            await beat(session.cluster, -1)
        await session.close()

    with LocalBroker() as broker:
        asyncio.run(live_and_leave(broker.address))
        with Admin(broker.address) as admin:
            described = describe_group(admin, "shared", dict)
            assert (described["type"], described["state"]) == ("share", "Empty")
            assert described["members"] == []
            with pytest.raises(KafkaError, match="there is no such group") as caught:
                describe_group(admin, "nobody", dict)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
