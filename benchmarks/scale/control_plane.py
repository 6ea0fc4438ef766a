"""`python -m benchmarks.scale.control_plane`: the control plane alone, of a cluster that no machine here could run.

The controller is the production one, its registry the simulated store with sessions, and the brokers are what the controller
sees of brokers: registered, waiting for news, reading every update with the production code. There are no logs and no records.
So CPU seconds are those of the control plane, and simulated seconds are those that the protocol takes: timeouts and round
trips, without the time that the CPU needs.

    python -m benchmarks.scale.control_plane --brokers 50 --partitions 100000
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from odradek.cluster.controller.controller import Controller
from odradek.cluster.documents import ACL_DOCUMENTS, CLIENT_QUOTAS, part_of
from odradek.cluster.image import ClusterImage
from odradek.cluster.isr_changes import ProposedIsr
from odradek.cluster.planning import ClusterDefaults, TopicSpec
from odradek.cluster.registration import Registration, register
from odradek.cluster.sync import BrokerReport, UpdateKind, apply_update, snapshot
from odradek.cluster.sync_pieces import at_once
from odradek.cluster.topic_documents import topic_data
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.registry import Check, Create, Put
from odradek.registry.election import Term
from odradek.security.acls import Acl, AclPattern
from odradek.security.quotas import Limits
from odradek.testing.sim import CrashKind, World
from odradek.testing.sim.registry import RegistryConditions, SimRegistryStore
from odradek.testing.sim.world import Host

POLL_SECONDS: Final = 2.0
"""How long a broker's question waits for news, as in `broker/cluster/membership.py`."""
SESSION_SECONDS: Final = 9.0
REPLICATION: Final = 3
TOPICS_A_REQUEST: Final = 100
ISR_CHANGES: Final = 20
_EPOCH_PATH: Final = "/controller_epoch"


@dataclass(slots=True, kw_only=True)
class Meter:
    """CPU seconds and bytes of the brokers' part of the work, which are the rest's of all that is spent."""

    broker_cpu_seconds: float = 0.0
    own_cpu_seconds: float = 0.0
    """The measurement's own."""
    update_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The cost of one thing that happened to the cluster."""

    what: str
    simulated_seconds: float
    controller_cpu_seconds: float
    """The registry's share included."""
    broker_cpu_seconds: float
    """The mean of the brokers."""
    update_bytes: int
    """The largest amount that the controller sent to one broker on average."""
    commits: int

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "controller_cpu_ms": round(self.controller_cpu_seconds * 1000, 2),
            "broker_cpu_ms": round(self.broker_cpu_seconds * 1000, 2),
            "update_bytes_a_broker": self.update_bytes,
            "registry_commits": self.commits,
        }


class ImageReader:
    """A broker as the controller sees it: it asks for news, and reads what it gets."""

    def __init__(self, cluster: ControlPlane, broker: int, host: Host) -> None:
        self.cluster = cluster
        self.broker_id = BrokerId(broker)
        self.host = host
        self.epoch = -1
        self.image: ClusterImage | None = None
        self.registry: Any = None

    async def start(self) -> None:
        """Begins a life of its host: it registers, and asks from then on."""
        self.host.boot()
        await self.host.spawn(self._register(), name=f"register {self.broker_id}")
        self.host.spawn(self._ask_on(), name=f"ask {self.broker_id}")

    async def _register(self) -> None:
        self.registry = await self.cluster.store.connect(self.host.name)
        host = f"broker-{self.broker_id}.example.net"
        self.epoch = await register(
            self.registry,
            Registration(
                broker_id=self.broker_id,
                directory_id=f"data of {self.broker_id}",
                host=host,
                port=9092,
                endpoints={"PLAINTEXT": (host, 9092)},
                rack=f"rack-{self.broker_id % 3}",
            ),
        )

    async def _ask_on(self) -> None:
        await self.cluster.has_controller.wait()
        while True:
            try:
                await self._ask()
            except KafkaError:
                await asyncio.sleep(0.05)

    async def _ask(self) -> None:
        image = self.image
        report = BrokerReport(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            controller_epoch=-1 if image is None else image.controller_epoch,
            version=-1 if image is None else image.version,
        )
        answer = await self.cluster.controller.sync(report, max_wait_s=POLL_SECONDS)
        if answer.kind is UpdateKind.NOTHING or self.cluster.controller_at is self:
            return
        meter = self.cluster.meter
        before = time.process_time()
        self.image = at_once(apply_update(image, answer.payload))
        meter.broker_cpu_seconds += time.process_time() - before
        meter.update_bytes += len(answer.payload)


class _CountedIds:
    """The entropy of the controller: ids one after another, so that a run repeats itself."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def uuid(self) -> UUID:
        return UUID(int=next(self._count))

    def uniform(self) -> float:
        return 0.0


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """The registry, the brokers, and the controller at one of them."""

    world: World
    store: SimRegistryStore
    brokers: dict[int, ImageReader] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    has_controller: asyncio.Event = field(default_factory=asyncio.Event)
    controllers: list[Controller] = field(default_factory=list)
    controller_at: ImageReader | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def controller(self) -> Controller:
        return self.controllers[-1]

    async def start(self, count: int) -> None:
        for number in range(1, count + 1):
            broker = ImageReader(self, number, self.world.host(f"broker-{number}"))
            self.brokers[number] = broker
            await broker.start()

    async def elect(self, broker: ImageReader) -> None:
        """The broker wins the next term, loads the state, and takes office."""
        await broker.host.spawn(self._take_office(broker), name="elect")

    async def _take_office(self, broker: ImageReader) -> None:
        registry = broker.registry
        await registry.sync()
        node = await registry.get(_EPOCH_PATH)
        if node is None:
            number, version = 1, 0
            await registry.commit([Create(path=_EPOCH_PATH, data=b"1")])
        else:
            number, version = int(node.data) + 1, node.version + 1
            await registry.commit([Put(path=_EPOCH_PATH, data=b"%d" % number, version=node.version)])

        async def apply(before: ClusterImage, after: ClusterImage) -> None:
            broker.image = after

        controller = await Controller.load(
            registry,
            _CountedIds(),
            ClusterDefaults(partition_count=1, replication_factor=1, check_configs=lambda configs: None),
            cluster_id="scale",
            broker_id=broker.broker_id,
            apply=apply,
            term=Term(epoch=number, check=Check(path=_EPOCH_PATH, version=version)),
            clock=broker.host.clock,
            known=broker.image,
        )
        broker.image = controller.image
        self.controllers.append(controller)
        self.controller_at = broker
        await controller.begin()
        loop = asyncio.get_running_loop()
        looking: list[asyncio.Task[None]] = []

        def look() -> None:
            looking.append(loop.create_task(controller.brokers_changed(), name="brokers changed"))

        registry.watch("/brokers/ids", look)
        self.has_controller.set()

    async def settled(self, is_there: Callable[[ClusterImage], bool]) -> None:
        """Waits until every live broker has an image of which this is true. Looks once at each image."""
        seen: dict[int, ClusterImage] = {}
        while True:
            before = time.process_time()
            waiting = False
            for number, broker in self.brokers.items():
                image = broker.image
                if not broker.host.life.is_alive or (image is not None and seen.get(number) is image):
                    continue
                if image is None or not is_there(image):
                    waiting = True
                else:
                    seen[number] = image
            self.meter.own_cpu_seconds += time.process_time() - before
            if not waiting:
                return
            await asyncio.sleep(0.01)

    @contextmanager
    def measured(self, what: str) -> Iterator[None]:
        """Adds the cost of what happens meanwhile to `steps`."""
        self.meter = meter = Meter()
        commits, began, before = self.store.commit_count, self.world.loop.time(), time.process_time()
        yield
        spent = time.process_time() - before
        readers = max(1, len(self.brokers) - 1)
        self.steps.append(
            Step(
                what=what,
                simulated_seconds=self.world.loop.time() - began,
                controller_cpu_seconds=spent - meter.broker_cpu_seconds - meter.own_cpu_seconds,
                broker_cpu_seconds=meter.broker_cpu_seconds / readers,
                update_bytes=meter.update_bytes // readers,
                commits=self.store.commit_count - commits,
            )
        )
        print(json.dumps(self.steps[-1].as_json()), file=sys.stderr, flush=True)


async def run(plane: ControlPlane, options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is measured, in order; returns the sizes."""
    with plane.measured(f"{options.brokers} brokers register"):
        await plane.start(options.brokers)
    with plane.measured("the controller takes office, and all brokers are in service"):
        await plane.elect(plane.brokers[1])
        await plane.settled(lambda image: len(image.brokers) == options.brokers)
    await _create(plane, options)
    with plane.measured("60 seconds in which nothing happens"):
        await asyncio.sleep(60)
    await _change_isr(plane)
    sizes = _sizes(plane)
    with plane.measured("kill -9 of a broker, until all know its partitions' new leaders"):
        await _kill(plane, options.brokers)
    with plane.measured("it comes back, and all know"):
        await plane.brokers[options.brokers].start()
        await plane.settled(lambda image: len(image.brokers) == options.brokers)
    with plane.measured("kill -9 of the controller, until all know the new one and the new leaders"):
        await _kill_controller(plane)
    await _documents(plane, options)
    sizes["peak RSS MB of the simulation"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return sizes


async def _create(plane: ControlPlane, options: argparse.Namespace) -> None:
    topics = max(1, options.partitions // options.partitions_a_topic)
    names = [f"topic-{number:06d}" for number in range(topics)]
    with plane.measured(f"{topics} topics of {options.partitions_a_topic} partitions are created"):
        for start in range(0, topics, TOPICS_A_REQUEST):
            specs = [
                TopicSpec(
                    name=name,
                    partition_count=options.partitions_a_topic,
                    replication_factor=min(REPLICATION, options.brokers),
                )
                for name in names[start : start + TOPICS_A_REQUEST]
            ]
            for outcome in await plane.controller.create_topics(specs):
                if isinstance(outcome, KafkaError):
                    raise outcome
        await plane.settled(lambda image: len(image.topics) == topics)


async def _change_isr(plane: ControlPlane) -> None:
    """Leaders let one follower go, one change after another, each in a topic of its own."""
    with plane.measured(f"{ISR_CHANGES} changes of an ISR, one after another"):
        for topic in list(plane.controller.latest.topics.values())[:ISR_CHANGES]:
            partition = topic.partitions[0]
            leader = plane.brokers[partition.leader]
            epochs = {broker.broker_id: broker.epoch for broker in plane.controller.latest.brokers}
            proposal = ProposedIsr(
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=tuple((member, epochs[member]) for member in partition.isr[:-1]),
            )
            place = (topic.topic_id, 0)
            outcomes = await plane.controller.alter_partitions(
                leader.broker_id, leader.epoch, {place: proposal}
            )
            outcome = outcomes[place]
            if isinstance(outcome, KafkaError):
                raise outcome
        await _all_have(plane, plane.controller.latest.version)


async def _kill(plane: ControlPlane, broker: int) -> None:
    plane.brokers[broker].host.crash(CrashKind.PROCESS_KILL)
    await plane.settled(lambda image: not _is_led_by(image, broker))
    plane.brokers[broker].image = None


async def _kill_controller(plane: ControlPlane) -> None:
    former = plane.controller_at
    assert former is not None
    plane.has_controller.clear()
    former.host.crash(CrashKind.PROCESS_KILL)
    while any(node.owner == former.registry.session_id for node in plane.store.tree.nodes.values()):
        await asyncio.sleep(0.01)
    await plane.elect(plane.brokers[2])
    epoch = plane.controller.epoch
    await plane.settled(
        lambda image: image.controller_epoch == epoch and not _is_led_by(image, former.broker_id)
    )


def _is_led_by(image: ClusterImage, broker: int) -> bool:
    if any(live.broker_id == broker for live in image.brokers):
        return True  # no look at the partitions before the controller knows of the death
    return any(
        partition.leader == broker for topic in image.topics.values() for partition in topic.partitions
    )


def _sizes(plane: ControlPlane) -> dict[str, Any]:
    image = plane.controller.latest
    topics = [topic_data(topic) for topic in image.topics.values()]
    return {
        "brokers": len(image.brokers),
        "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
        "snapshot of the image, bytes": len(at_once(snapshot(image))),
        "topics in the registry, bytes": sum(map(len, topics)),
        "largest topic in the registry, bytes": max(map(len, topics)),
        "nodes in the registry": len(plane.store.tree.nodes),
    }


async def _documents(plane: ControlPlane, options: argparse.Namespace) -> None:
    """One change of a document that holds many entries already."""
    users = options.quotas
    quotas: Limits = {
        (("user", f"user-{number:05d}"),): {"producer_byte_rate": 1e6} for number in range(users)
    }
    with plane.measured(f"quotas of {users} users are set at once"):
        await plane.controller.alter(CLIENT_QUOTAS, lambda before: before.with_changes(quotas))
        await _all_have(plane, plane.controller.latest.version)
    with plane.measured("one user's quota changes"):
        first = (("user", "user-00000"),)
        await plane.controller.alter(
            CLIENT_QUOTAS, lambda before: before.with_changes({first: {"producer_byte_rate": 2e6}})
        )
        await _all_have(plane, plane.controller.latest.version)
    acls = [_acl(number) for number in range(options.acls)]
    with plane.measured(f"{len(acls)} ACLs are created at once"):
        for number, document in enumerate(ACL_DOCUMENTS):
            part = frozenset(acl for acl in acls if part_of(acl.pattern) == number)
            await plane.controller.alter(document, part.union)
        await _all_have(plane, plane.controller.latest.version)
    with plane.measured("one ACL is created"):
        new = _acl(options.acls)
        document = ACL_DOCUMENTS[part_of(new.pattern)]
        await plane.controller.alter(document, lambda part: part | {new})
        await _all_have(plane, plane.controller.latest.version)


async def _all_have(plane: ControlPlane, version: int) -> None:
    await plane.settled(lambda image: image.version >= version)


def _acl(number: int) -> Acl:
    pattern = AclPattern(AclResourceType.TOPIC, f"topic-{number:06d}", PatternType.LITERAL)
    return Acl(pattern, f"User:user-{number:05d}", "*", AclOperation.READ, AclPermission.ALLOW)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.control_plane", description=__doc__)
    parser.add_argument("--brokers", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--partitions-a-topic", type=int, default=50)
    parser.add_argument("--quotas", type=int, default=10_000)
    parser.add_argument("--acls", type=int, default=60_000)
    options = parser.parse_args(arguments)
    with World("scale", seconds_max=100_000, steps_max=1_000_000_000) as world:
        conditions = RegistryConditions(latency_s=(0.0002, 0.001), lag_s=(0.0, 0.005))
        store = SimRegistryStore(world, session_timeout_s=SESSION_SECONDS, conditions=conditions)
        plane = ControlPlane(world=world, store=store)
        sizes = world.run(lambda: run(plane, options))
        print(json.dumps({"sizes": sizes, "steps": [step.as_json() for step in plane.steps]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
