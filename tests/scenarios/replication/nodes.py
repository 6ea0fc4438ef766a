"""Two or three nodes that host replicas, with the real network, logs, fetch handler and fetchers between them; the test plays
the controller, and says by images who leads.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from odradek.broker.handlers import Handlers
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.broker.requests.context import BrokerContext
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.sessions.fetch_sessions import FetchSessions
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.cluster import ReplicationConfig
from odradek.config.server import ServerConfig, StorageConfig
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.peer_connection import PeerUnreachable
from odradek.net.peers import Peers
from odradek.net.server import Server
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition, ReplicationContext
from odradek.replication.replica_fetchers import ReplicaFetchers
from odradek.runtime.real import real_runtime
from odradek.runtime.turns import Turns
from odradek.security.quotas import Quotas
from odradek.storage.directories.log_manager import LogManager

NOW_MS = 1_700_000_000_000
TOPIC = "t"
FIRST_ID = UUID(int=1)


class Controller:
    """Grants every proposal, unless a test forbids it; and hands images to those who are up."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicImage] = {}
        self.version = 0
        self._grants = True
        self._withheld: dict[LeaderRole, IsrProposal] = {}
        """The proposals that wait until this controller grants again, as a broker brings its own until they are answered."""

    @property
    def grants(self) -> bool:
        """Tells whether proposals are granted. When it becomes true, those that came before and are still wanted are, too."""
        return self._grants

    @grants.setter
    def grants(self, grants: bool) -> None:
        self._grants = grants
        if grants:
            withheld, self._withheld = self._withheld, {}
            for leader, proposal in withheld.items():
                if leader.wants(proposal):
                    self.propose(leader, proposal)

    def image(self) -> ClusterImage:
        brokers = tuple(
            BrokerImage(broker_id=BrokerId(node.me), host="127.0.0.1", port=node.port, epoch=node.epoch)
            for node in self.nodes.values()
        )
        return ClusterImage(
            version=self.version,
            cluster_id="c",
            controller_id=BrokerId(0),
            brokers=brokers,
            topics=dict(self.topics),
            topics_by_id={topic.topic_id: topic for topic in self.topics.values()},
        )

    async def tell(self, *nodes: int) -> None:
        """Everyone, or those, of what is so now."""
        self.version += 1
        image = self.image()
        for number in nodes or tuple(self.nodes):
            await self.nodes[number].take(image)

    def has(
        self, *states: PartitionImage, topic_id: UUID = FIRST_ID, configs: Mapping[str, str] | None = None
    ) -> None:
        self.topics[TOPIC] = TopicImage(
            name=TOPIC, topic_id=topic_id, partitions=states, configs=configs or {}
        )

    def state(self, index: int = 0) -> PartitionImage:
        return self.topics[TOPIC].partitions[index]

    async def elect(self, leader: int, *response: int, isr: tuple[int, ...] | None = None) -> None:
        """Another leader for partition 0, under the next epoch."""
        old = self.state()
        self.has(
            replace(
                old,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(old.leader_epoch + 1),
                partition_epoch=old.partition_epoch + 1,
                isr=old.isr if isr is None else tuple(map(BrokerId, isr)),
            ),
            topic_id=self.topics[TOPIC].topic_id,
            configs=self.topics[TOPIC].configs,
        )
        await self.tell(*response)

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        if not self._grants:
            self._withheld[leader] = proposal
            return
        topic = self.topics[leader.name.topic]
        states = list(topic.partitions)
        state = states[leader.name.partition]
        changed = replace(
            state, isr=tuple(broker for broker, _ in proposal.isr), partition_epoch=state.partition_epoch + 1
        )
        states[leader.name.partition] = changed
        self.topics[topic.name] = replace(topic, partitions=tuple(states))
        isr_answer = IsrAnswer(
            leader=changed.leader,
            leader_epoch=changed.leader_epoch,
            isr=changed.isr,
            partition_epoch=changed.partition_epoch,
        )
        asyncio.get_running_loop().call_soon(leader.isr_answered, proposal, isr_answer)


class Node:
    """What a broker has, but for its cluster and its coordinators."""

    def __init__(self, me: int, directory: Path, controller: Controller, **settings: Any) -> None:
        self.me = me
        self.controller = controller
        self.config = BrokerConfig(
            server=ServerConfig(node_id=me),
            storage=StorageConfig(log_dirs=(str(directory),)),
            replication=ReplicationConfig(replica_fetch_backoff_ms=50, **settings),
        )
        self.runtime = real_runtime()
        self.epoch = 100 + me
        self.port = 0
        self.led: list[tuple[str, int]] = []
        self.lost: list[str] = []

    async def start(self) -> None:
        self.epoch += 10
        self.directories = LogManager.open(self.runtime, self.config.storage.log_dirs, node_id=self.me)
        member = ReplicationContext(broker_id=BrokerId(self.me), lag_s_max=30.0, proposals=self.controller)
        self.replicas = ReplicaManager(
            self.runtime,
            self.directories,
            me=BrokerId(self.me),
            on_all_failed=lambda: None,
            member=member,
        )
        self.replicas.announce(
            on_led=lambda partition: self.led.append((str(partition.name), partition.leader_epoch)),
            on_lost=lambda partition: self.lost.append(str(partition.name)),
        )
        self.peers = Peers(
            self._address,
            client_id=f"broker-{self.me}",
            now=self.runtime.clock.monotonic,
            request_timeout_s=10.0,
            chance=self.runtime.entropy.uniform,
        )
        self.replicas.expect_following(
            lambda: ReplicaFetchers(
                self.runtime,
                self.peers,
                me=BrokerId(self.me),
                broker_epoch=lambda: self.epoch,
                config=lambda: self.config.replication,
            )
        )
        self.cluster = SimpleNamespace(image=self.controller.image(), leads=True, joining=None)
        self.sessions = FetchSessions(slots=100, eviction_seconds=120.0, chance=self.runtime.entropy.uniform)
        broker = BrokerContext(
            config=self.config,
            runtime=self.runtime,
            cluster=cast(Any, self.cluster),
            replicas=self.replicas,
            fetch_sessions=self.sessions,
            producer_ids=cast(Any, None),
            coordinators=cast(Any, None),
            kinds=cast(Any, None),
            quotas=Quotas(),
            moves=cast(Any, None),
            turns=Turns(self.runtime.clock.monotonic),
        )
        limits = ServerLimits()
        self.server = Server(Dispatcher(broker, Handlers()), limits, now=self.runtime.clock.monotonic)
        self.port = await self.server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", self.port)
        self.controller.nodes[self.me] = self
        await self.replicas.load(self.controller.image(), self.config)

    async def stop(self) -> None:
        self.controller.nodes.pop(self.me, None)
        await self.server.stop(drain_seconds=0.0)
        await self.replicas.close()
        await self.peers.close()
        self.directories.close()

    async def take(self, image: ClusterImage) -> None:
        before, self.cluster.image = self.cluster.image, image
        logs = await self.replicas.apply(before, image, self.config)
        if logs is not None:
            await logs

    def configure(self, config: BrokerConfig) -> None:
        self.config = config
        self.replicas._config = config

    def _address(self, broker: BrokerId) -> tuple[str, int] | None:
        node = self.controller.nodes.get(broker)
        return None if node is None else ("127.0.0.1", node.port)

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.replica(TOPIC, index)

    def append(self, count: int = 1, index: int = 0, **producer: Any) -> int:
        builder = BatchBuilder()
        for number in range(count):
            builder.append(NOW_MS + number, b"k", b"value %d" % number)
        batches = split_batches(builder.build(**producer))
        return self.replicas.leader(TOPIC, index).leader().append(batches, now_ms=NOW_MS).last_offset

    async def append_acknowledged(self, count: int = 1, index: int = 0) -> int:
        last = self.append(count, index)
        waiting = self.replicas.leader(TOPIC, index).leader().acknowledgement(last)
        if waiting is not None:
            await asyncio.wait_for(waiting, 20)
        return last


def led_by(leader: int, *replicas: int, epoch: int = 0) -> PartitionImage:
    every = tuple(map(BrokerId, replicas))
    return PartitionImage(leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch), replicas=every, isr=every)


def content(partition: Partition) -> list[tuple[int, int, bytes]]:
    """(Base offset, epoch, bytes) of every batch."""
    records: list[tuple[int, int, bytes]] = []
    offset = partition.log.start_offset
    while offset < partition.log.end_offset:
        read = partition.log.read(offset, 1 << 20, end_offset=partition.log.end_offset, at_least_one=True)
        batches: list[tuple[BatchHeader, memoryview]] = split_batches(bytes(read.records))
        records += [
            (header.base_offset, header.partition_leader_epoch, bytes(raw)) for header, raw in batches
        ]
        offset = read.next_offset
    return records


async def unreachable(*_: Any, **__: Any) -> Any:
    raise PeerUnreachable("no one answers")


Make = Callable[..., Awaitable[list[Node]]]


@asynccontextmanager
async def nodes(
    controller: Controller, directory: Path, count: int, **settings: Any
) -> AsyncIterator[list[Node]]:
    made = [Node(number, directory / str(number), controller, **settings) for number in range(count)]
    for node in made:
        await node.start()
    try:
        yield made
    finally:
        for node in made:
            if node.me in controller.nodes:
                await node.stop()
