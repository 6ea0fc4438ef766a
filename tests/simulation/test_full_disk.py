"""A broker whose disk is full, in a cluster of three: the others lead what it led, and it comes back when there is space."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.simulation.broker.clients import PORT, ProducerClient, create_topic
from tests.simulation.cluster.clients import ClusterContext
from tests.simulation.cluster.keeper import ClusterKeeper, gather_all
from tests.simulation.cluster.plan import ClusterPlan, host_name
from tests.simulation.cluster.readers import ClusterConsumer
from tests.simulation.cluster.view import ClusterView
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import RecordSource

from odradek.broker.app import Broker
from odradek.cluster.image import PartitionImage
from odradek.config.broker import BrokerConfig
from odradek.model.ids import BrokerId, TopicPartition
from odradek.registry import Registry
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.registry import SimRegistryStore
from odradek.testing.sim.world import HostLifetime, World

pytestmark = pytest.mark.sim
TOPIC = "t"
PARTITIONS = tuple(TopicPartition(TOPIC, index) for index in range(3))
HAND_OVER_S = 2.0
SETTLE_S = 90.0


class Cluster:
    """Three brokers on disks of their own, a topic on all of them, and a client."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self._registry = SimRegistryStore(world)
        plan = ClusterPlan.draw(seed, 3)
        self.keepers = {
            broker_id: ClusterKeeper(
                world.host(host_name(broker_id)),
                broker_id,
                stream(seed, f"keeper {broker_id}"),
                {**plan.broker(seed, broker_id), "replica.lag.time.max.ms": "30000"},
                self._open_broker,
            )
            for broker_id in (1, 2, 3)
        }
        self.view = ClusterView(list(self.keepers.values()))
        self.client = world.host("client")
        self.context = ClusterContext(
            broker="",
            brokers=tuple((host_name(broker_id), PORT) for broker_id in self.keepers),
            rng=stream(seed, "clients"),
            now_ms=self.client.clock.wall_ms,
            leaders_change=True,
        )
        self.ledgers = {
            name: Ledger(str(name), keeps_late_requests=True, is_committed=lambda _: True)
            for name in PARTITIONS
        }
        self._source_count = 0

    def _open_broker(self, config: BrokerConfig, life: HostLifetime) -> Broker:
        async def open_registry(*_ignored: object) -> Registry:
            return await self._registry.connect(life.host.name)

        return Broker(config, life.runtime, open_registry=open_registry)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.client.boot()
        keeping = [asyncio.create_task(keeper.keep()) for keeper in self.keepers.values()]
        await self.until(lambda: len(self.view.up()) == 3, 30)
        await self.client.spawn(
            create_topic(self.context, TOPIC, 3, {"min.insync.replicas": "2"}, replication=3)
        )
        await self.until(self.is_whole, SETTLE_S)
        yield
        for keeper in self.keepers.values():
            keeper.stop.set()
        await gather_all(*keeping)

    async def until(self, condition: Callable[[], bool], seconds_max: float) -> float:
        """Returns after how many seconds it was so."""
        began = self.world.loop.time()
        while not condition():
            assert self.world.loop.time() < began + seconds_max, self.partitions()
            await asyncio.sleep(0.05)
        return self.world.loop.time() - began

    def partitions(self) -> list[PartitionImage]:
        image = self.view.image()
        return [] if image is None or TOPIC not in image.topics else list(image.topics[TOPIC].partitions)

    def is_whole(self) -> bool:
        partitions = self.partitions()
        return bool(partitions) and all(len(partition.isr) == 3 for partition in partitions)

    def is_without(self, broker_id: int) -> bool:
        """The broker leads nothing, and is in sync with nothing."""
        return all(
            partition.leader not in (-1, broker_id) and BrokerId(broker_id) not in partition.isr
            for partition in self.partitions()
        )

    async def produce(self, count: int) -> None:
        """To all partitions, with acks=all; returns when all is acknowledged."""
        self._source_count += 1
        await gather_all(*(self._produce_to(name, count) for name in PARTITIONS))

    async def _produce_to(self, name: TopicPartition, count: int) -> None:
        source = RecordSource(
            name=f"p{self._source_count}-{name.partition}",
            is_idempotent=True,
            ledger=self.ledgers[name],
            rng=stream(self.seed, f"producer {self._source_count} {name}"),
            record_count=count,
            padding_bytes=(500, 2000),
        )
        await self.client.spawn(
            ProducerClient(self.context, name, source, start_s=0.0, pause_s=0.0, first_alone=True).run()
        )

    async def produce_within(self, seconds_max: float, count: int) -> None:
        async with asyncio.timeout(seconds_max):
            await self.produce(count)

    async def check(self) -> None:
        """All that was acknowledged is there, once."""
        for name, ledger in self.ledgers.items():
            await self.client.spawn(ClusterConsumer(self.context, name, ledger).read_all())

    def fill(self, broker_id: int) -> None:
        medium = self.keepers[broker_id].host.medium
        medium.capacity_bytes = medium.used_bytes() + stream(self.seed, "space").randint(0, 200)

    def give_space(self, broker_id: int) -> None:
        self.keepers[broker_id].host.medium.capacity_bytes = None


def play(seed: int, story: Callable[[Cluster], Awaitable[None]]) -> None:
    with World(seed) as world:
        cluster = Cluster(world, seed)

        async def body() -> None:
            async with cluster.running():
                await story(cluster)

        world.run(body)


@pytest.mark.parametrize("seed", range(4))
def test_acks_all_goes_on_while_the_disk_of_one_broker_is_full(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.produce(20)
        victim = cluster.partitions()[0].leader
        cluster.fill(victim)
        writing = asyncio.create_task(cluster.produce_within(20, 40))
        # From the first append that failed on, which is the one that finds the disk full:
        await cluster.until(lambda: _is_full(cluster, victim), 10)
        assert await cluster.until(lambda: cluster.is_without(victim), 20) <= HAND_OVER_S
        await writing
        for _ in range(5):
            await asyncio.sleep(5)
            await cluster.produce_within(HAND_OVER_S + 1, 10)
            assert cluster.is_without(victim)
        cluster.keepers[victim].restart()
        await asyncio.sleep(5)
        await cluster.produce_within(20, 20)
        cluster.give_space(victim)
        await cluster.until(cluster.is_whole, SETTLE_S)
        await cluster.produce(20)
        await cluster.check()

    play(seed, story)


def _is_full(cluster: Cluster, broker_id: int) -> bool:
    broker = cluster.keepers[broker_id].broker
    return broker is not None and bool(broker.context.replicas.health.full)


@pytest.mark.parametrize("seed", range(2))
def test_where_all_disks_are_full_everything_goes_on_once_there_is_space(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.produce(20)
        for broker_id in cluster.keepers:
            cluster.fill(broker_id)
        writing = asyncio.create_task(cluster.produce(60))
        # Where two are out of sync, the third takes nothing with acks=all, so it may have space left.
        await cluster.until(
            lambda: sum(_is_full(cluster, broker_id) for broker_id in cluster.keepers) >= 2, 30
        )
        await asyncio.sleep(10)
        assert all(partition.leader > 0 and partition.isr for partition in cluster.partitions())
        for broker_id in cluster.keepers:
            cluster.give_space(broker_id)
        await asyncio.wait_for(writing, SETTLE_S)
        await cluster.until(cluster.is_whole, SETTLE_S)
        await cluster.check()

    play(seed, story)


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_on_a_slow_disk_hands_over_and_comes_back(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.produce(20)
        victim = cluster.partitions()[0].leader
        delays = cluster.keepers[victim].host.offload_delays
        usual, delays.step_s = delays.step_s, (1.5, 3.0)
        over = asyncio.Event()

        async def keep_writing() -> None:
            while not over.is_set():
                await cluster.produce(3)
                await asyncio.sleep(0.5)

        writing = asyncio.create_task(keep_writing())
        await cluster.until(lambda: cluster.is_without(victim), 120)
        await asyncio.sleep(60)
        assert cluster.is_without(victim)
        delays.step_s = usual
        await cluster.until(cluster.is_whole, 300)
        over.set()
        await writing
        await cluster.check()

    play(seed, story)
