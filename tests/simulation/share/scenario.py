"""A share group (KIP-932) on a broker on trial: records that are accepted, given back, rejected or forgotten, locks
that end, and a broker that dies at any point of what it writes.

After the faults stop, the group must be done with every record within bounded time, and still be so after a power cut.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Final

from tests.kit.requests import produce_request
from tests.simulation.broker.clients import RefusedError, check_code, create_topic
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.members import GROUP, find_coordinator
from tests.simulation.groups.scenario import TOPIC, GroupPlan
from tests.simulation.share.history import ShareHistory
from tests.simulation.share.members import ShareMember

from odradek.broker.handlers.config_resources import GROUP as GROUP_RESOURCE
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.produce import ProduceResponse
from odradek.protocol.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from odradek.records import BatchBuilder
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.wire_client import WireClient
from odradek.testing.sim.world import World

_SETTLING_S_MAX: Final = 180.0
_LOCK_MS: Final = 1_500
_SETTINGS: Final = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": str(_LOCK_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "5000",
}
_LATEST: Final = -1


class ShareScenario:
    """Settled is: the group's start offset is the end of every partition."""

    def __init__(self, world: World, seed: int, plan: FaultPlan) -> None:
        rng = stream(seed, "share plan")
        delivery_count_max = rng.choice((2, 3, 5))
        settings = _SETTINGS | {
            "group.share.delivery.count.limit": str(delivery_count_max),
            "group.share.partition.max.record.locks": str(rng.choice((100, 100, 200))),
            "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice((1, 5, 500))),
        }
        self._plan = GroupPlan.draw(seed)
        self._trial = self._plan.trial(world, seed, settings, plan.faults(seed))
        self._context = self._trial.context
        self._history = ShareHistory(delivery_count_max)
        self._reached: dict[int, int] = {}
        """What the group was done with when it had settled, by partition."""
        self._is_over = False
        self._members = [
            ShareMember(
                self._context,
                self._history,
                stream(seed, f"member {number}"),
                name=f"m{number}",
                topic=TOPIC,
            )
            for number in range(self._plan.member_count)
        ]

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._live_and_settle, self._check_offsets_somewhere)

    async def _live_and_settle(self) -> None:
        any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}  # the broker's clock jumps
        creating = create_topic(self._context, TOPIC, self._plan.partition_count, any_time)
        await self._trial.anyone().spawn(creating)
        await self._trial.anyone().spawn(self._begin_at_the_start())
        running = [
            self._trial.anyone().spawn(member.run(lambda: self._trial.is_calm, lambda: self._is_over))
            for member in self._members
        ]
        running.append(self._trial.anyone().spawn(self._produce()))
        await self._trial.torment_while(running)
        checking = self._trial.hosts[0].spawn(self._check_offsets())
        await self._trial.settle(
            checking.done,
            running,
            seconds_max=_SETTLING_S_MAX,
            seen=lambda: "the group is not done with every record",
        )
        checking.result()
        self._is_over = True
        await asyncio.gather(*running)

    async def _check_offsets_somewhere(self) -> None:
        await self._trial.hosts[0].spawn(self._check_offsets())

    # -- clients that are no members

    async def _begin_at_the_start(self) -> None:
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        while True:
            try:
                with closing(await self._context.connect()) as client:
                    response = await client.call(request, 1, IncrementalAlterConfigsResponse)
                    check_code(response.responses[0].error_code, "the group's setting")
                    return
            except (OSError, RefusedError):
                await self._context.pause()

    async def _produce(self) -> None:
        rng = self._context.rng
        while not self._trial.is_calm:
            try:
                with closing(await self._context.connect()) as client:
                    while not self._trial.is_calm:
                        await self._produce_once(client)
                        await asyncio.sleep(rng.uniform(0.02, 0.4))
            except (OSError, RefusedError):
                await self._context.pause()

    async def _produce_once(self, client: WireClient) -> None:
        rng = self._context.rng
        builder = BatchBuilder()
        for _ in range(rng.randint(1, 6)):
            builder.append(self._context.now_ms(), None, b"v" * rng.randint(1, 30))
        partition = rng.randrange(self._plan.partition_count)
        request = produce_request(TOPIC, bytes(builder.build()), partition=partition)
        response = await client.call(request, 9, ProduceResponse)
        check_code(response.responses[0].partition_responses[0].error_code, "a batch")

    async def _check_offsets(self) -> None:
        """Until the group is done with everything that there is; later, with what it was done with before.

        A producer that gave up may be heard yet, when all the members are gone.
        """
        while True:
            try:
                with closing(await self._context.connect()) as client:
                    await find_coordinator(client)
                    if await self._is_done(client):
                        return
            except (OSError, RefusedError):
                pass
            await asyncio.sleep(0.5)

    async def _is_done(self, client: WireClient) -> bool:
        ends = self._reached or await self._ends(client)
        starts = await self._starts(client)
        if not self._trial.is_calm or any(starts[partition] < ends[partition] for partition in ends):
            return False
        for partition, end_offset in ends.items():
            self._history.done_with(partition, end_offset)
        self._reached = ends
        return True

    async def _ends(self, client: WireClient) -> dict[int, int]:
        asked = [
            ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            for index in range(self._plan.partition_count)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        reply = await client.call(request, 5, ListOffsetsResponse)
        for partition in reply.topics[0].partitions:
            check_code(partition.error_code, "the end of a partition")
        return {response.partition_index: response.offset for response in reply.topics[0].partitions}

    async def _starts(self, client: WireClient) -> dict[int, int]:
        """An empty partition that no one has read yet is done with."""
        topic = DescribeShareGroupOffsetsRequestTopic(
            topic_name=TOPIC, partitions=list(range(self._plan.partition_count))
        )
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])]
        )
        response = await client.call(request, 0, DescribeShareGroupOffsetsResponse)
        group = response.groups[0]
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise RefusedError(group.error_message or "")
        check_code(group.error_code, "the group's offsets")
        for partition in group.topics[0].partitions:
            check_code(partition.error_code, "the group's offset")
        return {
            partition_answer.partition_index: max(partition_answer.start_offset, 0)
            for partition_answer in group.topics[0].partitions
        }


def run_shares(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(ShareScenario(world, seed, plan).run)
