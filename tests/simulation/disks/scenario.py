"""Three brokers, and a disk that is full, or slow. Each seed plays one of the stories.

What must hold: with acks=all everything goes on while another broker can write; the broker leads nothing and is in sync with
nothing meanwhile, and comes back by itself. Where all disks are full, each partition keeps a leader. No acknowledged record is
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.simulation.broker.clients import PORT, SimulatedProducer, create_topic
from tests.simulation.cluster.clients import ClusterContext
from tests.simulation.cluster.keeper import ClusterKeeper, gather_all
from tests.simulation.cluster.plan import ClusterPlan, host_name
from tests.simulation.cluster.readers import ClusterConsumer
from tests.simulation.cluster.view import ClusterView
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import RecordSource

from odradek.broker.app import Broker
from odradek.cluster.image import PartitionImage
from odradek.config.broker import BrokerConfig
from odradek.model.ids import BrokerId, TopicPartition
from odradek.registry import Registry
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.registry import SimRegistryStore
from odradek.testing.sim.world import HostLifetime, World

TOPIC = "t"
PARTITIONS = tuple(TopicPartition(TOPIC, index) for index in range(3))
HAND_OVER_S = 2.0
SETTLE_S = 90.0


def promise(kept: bool, said: str) -> None:
    """ViolationError when a promise is not kept."""
    if not kept:
        raise ViolationError(said)


class DiskCluster:
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
            promise(
                self.world.loop.time() < began + seconds_max,
                f"not within {seconds_max} s: {self.partitions()}",
            )
            await asyncio.sleep(0.05)
        return self.world.loop.time() - began

    def partitions(self, topic: str = TOPIC) -> list[PartitionImage]:
        """Returns the partitions of a topic, as the controller has them; none while no one knows the topic."""
        image = self.view.image()
        return [] if image is None or topic not in image.topics else list(image.topics[topic].partitions)

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
        """Writes to all partitions, with acks=all; returns when all is acknowledged."""
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
            SimulatedProducer(self.context, name, source, start_s=0.0, pause_s=0.0, first_alone=True).run()
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

    def is_full(self, broker_id: int) -> bool:
        """Whether the broker knows that its disk is full."""
        broker = self.keepers[broker_id].broker
        return broker is not None and bool(broker.context.replicas.health.full)

    async def create(self, topic: str, replication: int) -> None:
        """Returns when all brokers know the topic."""
        await self.client.spawn(
            create_topic(self.context, topic, 6, {"min.insync.replicas": "2"}, replication=replication)
        )
        await self.until(lambda: bool(self.partitions(topic)), 30)


async def one_is_full(cluster: DiskCluster) -> None:
    """Others lead within two seconds, and the broker stays out until there is space, over a restart as well."""
    await cluster.produce(20)
    victim = cluster.partitions()[0].leader
    cluster.fill(victim)
    writing = asyncio.create_task(cluster.produce_within(20, 40))
    # From the first append that failed on, which is the one that finds the disk full:
    await cluster.until(lambda: cluster.is_full(victim), 10)
    seconds = await cluster.until(lambda: cluster.is_without(victim), 20)
    promise(seconds <= HAND_OVER_S, f"the full broker handed over after {seconds:.1f} s")
    await writing
    for _ in range(5):
        await asyncio.sleep(5)
        await cluster.produce_within(HAND_OVER_S + 1, 10)
        promise(cluster.is_without(victim), "the full broker came back without space")
    cluster.keepers[victim].restart()
    await asyncio.sleep(5)
    await cluster.produce_within(20, 20)
    cluster.give_space(victim)
    await cluster.until(cluster.is_whole, SETTLE_S)
    await cluster.produce(20)
    await cluster.check()


async def all_are_full(cluster: DiskCluster) -> None:
    """What is there can be read meanwhile, and everything goes on once there is space."""
    await cluster.produce(20)
    for broker_id in cluster.keepers:
        cluster.fill(broker_id)
    writing = asyncio.create_task(cluster.produce(60))
    # Where two are out of sync, the third takes nothing with acks=all, so it may have space left.
    await cluster.until(lambda: sum(map(cluster.is_full, cluster.keepers)) >= 2, 30)
    await asyncio.sleep(10)
    led = all(partition.leader > 0 and partition.isr for partition in cluster.partitions())
    promise(led, f"a partition that can be read has no leader: {cluster.partitions()}")
    for broker_id in cluster.keepers:
        cluster.give_space(broker_id)
    await asyncio.wait_for(writing, SETTLE_S)
    await cluster.until(cluster.is_whole, SETTLE_S)
    await cluster.check()


async def one_is_slow(cluster: DiskCluster) -> None:
    """It hands over, stays out while it is slow, and comes back."""
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
    promise(cluster.is_without(victim), "the slow broker came back while it was slow")
    delays.step_s = usual
    await cluster.until(cluster.is_whole, 300)
    over.set()
    await writing
    await cluster.check()


async def a_topic_is_made_beside_a_full_disk(cluster: DiskCluster) -> None:
    """Its replicas go to the others where there are enough, and the full broker leads none of a topic that needs all."""
    await cluster.produce(20)
    victim = cluster.partitions()[0].leader
    cluster.fill(victim)
    await cluster.produce_within(40, 40)
    await cluster.until(lambda: cluster.is_without(victim), 20)
    await cluster.create("two", 2)
    promise(
        all(victim not in partition.replicas for partition in cluster.partitions("two")),
        f"a replica of a new topic is on the full disk: {cluster.partitions('two')}",
    )
    await cluster.create("three", 3)
    promise(
        all(partition.leader not in (-1, victim) for partition in cluster.partitions("three")),
        f"a full broker leads a new partition: {cluster.partitions('three')}",
    )
    cluster.give_space(victim)
    await cluster.until(cluster.is_whole, SETTLE_S)
    await cluster.check()


STORIES = (one_is_full, all_are_full, one_is_slow, a_topic_is_made_beside_a_full_disk)
"""By seed, in turn."""


def run_disks(world: World, seed: int, plan: FaultPlan) -> None:
    """Run one story in a world of its own. The disks fail in no other way."""
    cluster = DiskCluster(world, seed)

    async def body() -> None:
        async with cluster.running():
            await STORIES[seed % len(STORIES)](cluster)

    world.run(body)
