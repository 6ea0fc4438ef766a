"""The production client and the production broker in a simulated world with a bad network and crashes.

What must hold: every record that was acknowledged is there once, at its offset; nothing is there twice; the records of a
producer are in its order. A failure is one seed, replayed exactly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from odradek.broker.app import Broker
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.types import NewTopic
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.producer.aio import AsyncProducer
from odradek.client.producer.delivery import RecordMetadata
from odradek.config.loading import load_broker_config
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.network import Conditions
from odradek.testing.sim.world import Host, HostLifetime, World

pytestmark = pytest.mark.sim

PORT = 9092
SERVERS = f"broker:{PORT}"
TOPIC = "t"
PARTITIONS = 2
PRODUCERS = 3
RECORDS = 200
CALM_AFTER_S = 12.0
DRAIN_S_MAX = 300.0
IMPATIENT = {
    "request_timeout_ms": 2_000,
    "socket_connection_setup_timeout_ms": 2_000,
    "reconnect_backoff_max_ms": 500,
}


@dataclass
class Run:
    """One seed's run."""

    world: World
    rng: Random
    host: Host
    client: Host
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: dict[bytes, RecordMetadata] = field(default_factory=dict)

    async def everything(self) -> None:
        self.host.medium.make_durable_folder("/data")
        self.client.boot()
        keeper = asyncio.create_task(self.keep_broker())
        async with asyncio.timeout(CALM_AFTER_S + DRAIN_S_MAX):
            await self.client.spawn(self.create_topic())
            nemesis = asyncio.create_task(self.torment())
            await asyncio.gather(*(self.client.spawn(self.produce(number)) for number in range(PRODUCERS)))
            await nemesis
            consumed = await self.client.spawn(self.consume())
        self.check(consumed)
        self.stop.set()
        await keeper

    async def keep_broker(self) -> None:
        """Boot it again whenever it was killed."""
        while not self.stop.is_set():
            life = self.host.boot()
            await asyncio.gather(self.host.spawn(self.serve(life)), return_exceptions=True)
            while life.tasks:
                await asyncio.sleep(0)
            await asyncio.sleep(self.rng.uniform(0.01, 0.5))

    async def serve(self, life: HostLifetime) -> None:
        values = {"listeners": f"PLAINTEXT://0.0.0.0:{PORT}", "log.dirs": "/data"}
        broker = Broker(load_broker_config(values)[0], life.runtime)
        await broker.start()
        await self.stop.wait()
        await broker.stop()

    async def torment(self) -> None:
        network = self.world.network
        while self.world.loop.time() < CALM_AFTER_S:
            await asyncio.sleep(self.rng.uniform(0.05, 1.0))
            life = self.host.life
            match self.rng.randrange(6):
                case 0:
                    network.block("broker", "client")
                case 1:
                    network.block("client", "broker")
                case 2 | 3:
                    network.heal()
                case 4:
                    if life.is_alive:
                        network.reset_connections(life.interface)
                case _:
                    if life.is_alive and self.rng.random() < 0.4:
                        life.crash(self.rng.choice(list(CrashKind)))
        network.heal()

    # -- the client's side

    async def create_topic(self) -> None:
        runtime = self.client.life.runtime
        async with AsyncAdmin(SERVERS, clock=runtime.clock, entropy=runtime.entropy, **IMPATIENT) as admin:
            try:
                await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # the first answer may have been lost
                    raise

    async def produce(self, number: int) -> None:
        runtime = self.client.life.runtime
        async with AsyncProducer(
            SERVERS,
            clock=runtime.clock,
            entropy=runtime.entropy,
            batch_size=self.rng.choice((60, 300, 16_384)),
            linger_ms=self.rng.choice((0, 5)),
            delivery_timeout_ms=1_000_000,
            **IMPATIENT,
        ) as producer:
            deliveries = {}
            for count in range(RECORDS):
                value = b"%d:%04d" % (number, count)
                deliveries[value] = await producer.send(TOPIC, value, partition=number % PARTITIONS)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(self.rng.uniform(0.0, 0.4))
            for value, delivery in deliveries.items():
                self.acknowledged[value] = await delivery

    async def consume(self) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        runtime = self.client.life.runtime
        results: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        async with AsyncConsumer(
            SERVERS, clock=runtime.clock, entropy=runtime.entropy, auto_offset_reset="earliest", **IMPATIENT
        ) as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            await consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            results = {tp: [] for tp in partitions}
            while sum(map(len, results.values())) < sum(ends.values()):
                for record in await consumer.poll():
                    results[TopicPartition(record.topic, record.partition)].append(
                        (record.offset, record.value)
                    )
        return results

    def check(self, results: dict[TopicPartition, list[tuple[int, bytes]]]) -> None:
        for tp, records in results.items():
            assert [offset for offset, _ in records] == list(range(len(records)))
            values = [value for _, value in records]
            assert len(set(values)) == len(values), "a record is there twice"
            for number in range(PRODUCERS):
                own = [value for value in values if value.startswith(b"%d:" % number)]
                assert own == sorted(own), "a producer's records are out of order"
            for offset, value in records:
                metadata = self.acknowledged[value]
                assert metadata.offset in (offset, -1)
                assert metadata.partition == tp.partition
        assert {value for records in results.values() for _, value in records} == set(self.acknowledged)
        assert len(self.acknowledged) == PRODUCERS * RECORDS


def run(seed: int) -> None:
    conditions = Conditions(reset_rate=0.003, spike_rate=0.02)
    with World(f"client {seed}", conditions=conditions) as world:
        rng = stream(seed, "client scenario")
        made = Run(world=world, rng=rng, host=world.host("broker"), client=world.host("client"))
        world.run(made.everything)


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_records_are_there_once_and_in_order_whatever_breaks(seed: int) -> None:
    run(seed)
