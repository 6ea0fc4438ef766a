"""A cluster in memory: a registry, controllers that come and go, and brokers that apply what they get."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

import pytest

from odradek.cluster.availability import LogEnd, TopicRules
from odradek.cluster.controller.controller import Controller
from odradek.cluster.controller.maintenance import MaintenancePolicy
from odradek.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.cluster.isr_changes import ProposedIsr
from odradek.cluster.planning import ClusterDefaults, TopicSpec
from odradek.cluster.registration import Registration, register
from odradek.cluster.sync import BrokerReport, ReplicaId, SyncAnswer, UpdateKind, apply_update
from odradek.cluster.sync_pieces import at_once
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import Check, Create, Node, Operation, Put, RegistryError, SessionExpired
from odradek.registry.election import Term
from odradek.registry.tree import Tree


class Session:
    """One session with the store in memory. `fails` makes the next commits end with an error."""

    def __init__(self, tree: Tree, number: int) -> None:
        self._tree = tree
        self.session_id = number
        self.on_expired: Callable[[], None] = lambda: None
        self.is_over = False
        self.fails: list[str] = []
        """For each of the next commits: "before" or "after" it is made."""
        self.commits: list[Sequence[Operation]] = []

    async def get(self, path: str) -> Node | None:
        self._check()
        return self._tree.nodes.get(path)

    async def children(self, path: str) -> list[str]:
        self._check()
        return self._tree.children(path)

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._check()
        failure = self.fails.pop(0) if self.fails else None
        if failure == "before":
            raise RegistryError("no answer")
        self._tree.apply(self._tree.decide(operations, self.session_id))
        self.commits.append(operations)
        if failure == "after":
            raise RegistryError("no answer")

    async def sync(self) -> None:
        self._check()

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def renew(self) -> None:
        self.is_over = False

    async def close(self) -> None:
        self.expire()

    def expire(self) -> None:
        """The session ends, and its nodes go."""
        self.is_over = True
        self._tree.apply([(path, None) for path in self._tree.owned_by(self.session_id)])

    def _check(self) -> None:
        if self.is_over:
            raise SessionExpired("the session is over")


class FakeEntropy:
    def __init__(self) -> None:
        self._count = itertools.count(1)

    def uuid(self) -> UUID:
        return UUID(int=next(self._count))

    def uniform(self) -> float:
        return 0.0


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


class FakeBroker:
    """A broker as the controller sees it: registered, asking for news, applying it."""

    def __init__(self, cluster: FakeCluster, broker: int, rack: str | None) -> None:
        self.cluster = cluster
        self.broker_id = BrokerId(broker)
        self.rack = rack
        self.session = cluster.session()
        self.epoch = -1
        self.image: ClusterImage | None = None
        self.damaged: frozenset[ReplicaId] = frozenset()
        self.offline: frozenset[ReplicaId] = frozenset()
        self.lost: frozenset[ReplicaId] = frozenset()
        self.lacking: frozenset[ReplicaId] = frozenset()
        self.uncertain: dict[ReplicaId, LogEnd] = {}
        self.full: frozenset[ReplicaId] = frozenset()
        self.slow: frozenset[ReplicaId] = frozenset()
        self.is_leaving = False
        self.is_cordoned = False

    async def start(self) -> None:
        """A new life: registered again, with nothing applied."""
        self.session = self.cluster.session()
        self.image = None
        self.is_leaving = False
        await self.register()

    async def register(self) -> None:
        self.epoch = await register(
            self.session,
            Registration(
                broker_id=self.broker_id,
                directory_id=f"data of {self.broker_id}",
                host="localhost",
                port=9092 + self.broker_id,
                endpoints={"PLAINTEXT": ("localhost", 9092 + self.broker_id)},
                rack=self.rack,
                is_cordoned=self.is_cordoned,
            ),
        )

    def die(self) -> None:
        self.session.expire()

    def report(self) -> BrokerReport:
        return BrokerReport(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            controller_epoch=-1 if self.image is None else self.image.controller_epoch,
            version=-1 if self.image is None else self.image.version,
            damaged=self.damaged,
            offline=self.offline,
            lost=self.lost,
            lacking=self.lacking,
            uncertain=dict(self.uncertain),
            full=self.full,
            slow=self.slow,
            is_leaving=self.is_leaving,
        )

    async def ask(self, *, max_wait_s: float = 0.0) -> SyncAnswer:
        """Ask the controller once, and apply what it tells."""
        response = await self.cluster.controller.sync(self.report(), max_wait_s=max_wait_s)
        if response.kind is not UpdateKind.NOTHING and self.cluster.controller_at is not self:
            self.image = at_once(apply_update(self.image, response.payload))
        return response

    async def propose(self, topic: str, index: int, isr: Sequence[int]) -> PartitionImage | KafkaError:
        """As a leader: who is in sync, with the brokers' epochs as this broker's image has them."""
        assert self.image is not None
        known = self.image.topics[topic]
        partition = known.partitions[index]
        epochs = {broker.broker_id: broker.epoch for broker in self.image.brokers}
        proposal = ProposedIsr(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((BrokerId(member), epochs.get(BrokerId(member), -1)) for member in isr),
        )
        place = (known.topic_id, index)
        outcomes = await self.cluster.controller.alter_partitions(
            self.broker_id, self.epoch, {place: proposal}
        )
        return outcomes[place]


class FakeCluster:
    """`await start(3)`: three brokers in service, and a controller at the first of them."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.clock = FakeClock()
        self.entropy = FakeEntropy()
        self.brokers: dict[int, FakeBroker] = {}
        self.rules = TopicRules()
        self.maintenance: Callable[[], MaintenancePolicy] | None = None
        self.deposed: list[int] = []
        self.controller_at: FakeBroker | None = None
        self._sessions = itertools.count(1)
        self._controllers: list[Controller] = []

    def session(self) -> Session:
        return Session(self.tree, next(self._sessions))

    @property
    def controller(self) -> Controller:
        return self._controllers[-1]

    @property
    def controllers(self) -> list[Controller]:
        return self._controllers

    async def start(self, count: int, *, racks: Sequence[str | None] = ()) -> None:
        for number in range(1, count + 1):
            rack = racks[number - 1] if racks else None
            self.brokers[number] = FakeBroker(self, number, rack)
            await self.brokers[number].start()
        await self.elect(self.brokers[1])
        await self.all_ask()

    async def elect(self, broker: FakeBroker, *, knows: ClusterImage | None = None) -> Controller:
        """A controller for the next term, at this broker."""
        session = broker.session
        node = await session.get("/controller_epoch")
        if node is None:
            number, version = 1, 0
            operation: Operation = Create(path="/controller_epoch", data=b"1")
        else:
            number, version = int(node.data) + 1, node.version + 1
            operation = Put(path="/controller_epoch", data=b"%d" % number, version=node.version)
        await session.commit([operation])

        async def apply(before: ClusterImage, after: ClusterImage) -> None:
            broker.image = after

        def check(configs: object) -> None:
            return None

        controller = await Controller.load(
            session,
            self.entropy,
            ClusterDefaults(partition_count=1, replication_factor=1, check_configs=check, rules=self.rules),
            cluster_id="c",
            broker_id=broker.broker_id,
            apply=apply,
            term=Term(epoch=number, check=Check(path="/controller_epoch", version=version)),
            clock=self.clock,
            known=knows,
            maintenance=self.maintenance,
            on_deposed=lambda: self.deposed.append(number),
        )
        self._controllers.append(controller)
        self.controller_at = broker
        broker.image = controller.image if broker.image is not None else None
        await controller.begin()
        return controller

    async def all_ask(self) -> None:
        for broker in self.brokers.values():
            if not broker.session.is_over:
                await broker.ask()

    async def kill(self, *numbers: int) -> None:
        """These brokers die, and the controller learns it."""
        for number in numbers:
            self.brokers[number].die()
        await self.controller.brokers_changed()

    async def revive(self, number: int) -> None:
        await self.brokers[number].start()
        await self.brokers[number].ask()

    async def topic(self, name: str, *, partitions: int = 1, replicas: int = 3, **configs: str) -> TopicImage:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = TopicSpec(
            name=name, partition_count=partitions, replication_factor=replicas, configs=settings
        )
        creating = asyncio.ensure_future(self.controller.create_topics([wanted]))
        while not creating.done():  # it waits for the brokers that hold the topic
            await self.all_ask()
            await asyncio.sleep(0)
        [made] = await creating
        assert isinstance(made, TopicImage), made
        await self.all_ask()
        return made

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        """As the controller has committed it."""
        return self.controller.latest.topics[topic].partitions[index]

    async def close(self) -> None:
        for controller in self._controllers:
            await controller.close()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = FakeCluster()
    yield made
    await made.close()


@pytest.fixture
async def three(cluster: FakeCluster) -> FakeCluster:
    """Three brokers; brokers 2 and 3 follow, the controller is at broker 1."""
    await cluster.start(3)
    return cluster
