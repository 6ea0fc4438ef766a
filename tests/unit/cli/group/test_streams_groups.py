"""`odradek group list` and `describe` of streams groups, with members and without."""

from __future__ import annotations

import asyncio
import json

import pytest

from odradek import Admin, AsyncAdmin, NewTopic
from odradek.cli.main import main
from odradek.client.admin.session import AdminSession
from odradek.client.network.cluster import ClusterClient
from odradek.client.settings.settings import AdminSettings
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.testing import LocalBroker

TOPOLOGY = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["lines"])])


async def beat(cluster: ClusterClient, epoch: int, topology: Topology | None = None) -> int:
    """Sends a heartbeat of the group's only member, once the broker coordinates the group. Returns the member's epoch."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["counts"])
    no_tasks: list[TaskIds] = []
    request = StreamsGroupHeartbeatRequest(
        group_id="counts",
        member_id="thread-1",
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        topology=topology,
        process_id="process",
        active_tasks=no_tasks,
        standby_tasks=no_tasks,
        warmup_tasks=no_tasks,
    )
    async with asyncio.timeout(30):
        while (
            (await cluster.send(-1, find, FindCoordinatorResponse, timeout_s=10)).coordinators[0].error_code
        ):
            await asyncio.sleep(0.01)
        while True:
            response = await cluster.send(-1, request, StreamsGroupHeartbeatResponse, timeout_s=10)
            if not response.error_code:
                return response.member_epoch
            await asyncio.sleep(0.01)


async def live(address: str) -> None:
    session = AdminSession(AdminSettings.of(address, {}), None, None)
    await session.start()
    async with AsyncAdmin(address) as admin:
        await admin.create_topics([NewTopic("lines", 2)])
    await beat(session.cluster, 0, TOPOLOGY)
    await session.close()


async def leave(address: str) -> None:
    session = AdminSession(AdminSettings.of(address, {}), None, None)
    await session.start()
    await beat(session.cluster, -1)
    await session.close()


def test_a_streams_group_is_described_by_the_partitions_that_its_members_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LocalBroker({"group.streams.initial.rebalance.delay.ms": "0"}) as broker:
        asyncio.run(live(broker.address))
        assert main(["group", "describe", "counts", "--json", "--bootstrap", broker.address]) == 0
        (group,) = json.loads(capsys.readouterr().out)
        assert (group["type"], group["state"], group["assignor"]) == ("streams", "Stable", "sticky")
        (member,) = group["members"]
        assert (member["member"], member["partitions"]) == ("thread-1", ["lines-0", "lines-1"])
        assert [(row["topic"], row["partition"], row["member"]) for row in group["offsets"]] == [
            ("lines", 0, "thread-1"),
            ("lines", 1, "thread-1"),
        ]
        assert main(["group", "list", "--type", "streams", "--json", "--bootstrap", broker.address]) == 0
        assert [entry["group"] for entry in json.loads(capsys.readouterr().out)] == ["counts"]
        asyncio.run(leave(broker.address))
        with Admin(broker.address) as admin:
            assert admin.describe_groups(["counts"])["counts"].state == "Empty"
            admin.delete_groups(["counts"])
            assert admin.list_groups(types=["streams"]) == []
