"""Two or three nodes that host replicas, with the real network, logs, fetch handler and fetchers between them; the test plays
the controller, and says by images who leads.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.broker.context import Parts
from odradek.broker.dispatch import Dispatcher
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.handlers import Handlers
from odradek.broker.replica_roles import ReplicaRoles
from odradek.broker.replicas import Replicas
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.net.peer_connection import PeerUnreachable
from odradek.net.peers import Peers
from odradek.net.server import OpenListener, Server, ServerLimits
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.partition import Membership, Partition
from odradek.replication.replica_fetchers import ReplicaFetchers
from odradek.runtime.real import real_runtime
from odradek.security.quotas import Quotas
from odradek.storage.directories import LogDirectories

NOW_MS = 1_700_000_000_000
TOPIC = "t"
FIRST_ID = UUID(int=1)


class Controller:
    """Grants every proposal, unless told not to; and hands images to those who are up."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicImage] = {}
        self.version = 0
        self.grants = True

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

    async def elect(self, leader: int, *told: int, isr: tuple[int, ...] | None = None) -> None:
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
        await self.tell(*told)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        if not self.grants:
            return
        topic = self.topics[partition.name.topic]
        states = list(topic.partitions)
        state = states[partition.name.partition]
        changed = replace(
            state, isr=tuple(broker for broker, _ in proposal.isr), partition_epoch=state.partition_epoch + 1
        )
        states[partition.name.partition] = changed
        self.topics[topic.name] = replace(topic, partitions=tuple(states))
        answer = IsrAnswer(
            leader=changed.leader,
            leader_epoch=changed.leader_epoch,
            isr=changed.isr,
            partition_epoch=changed.partition_epoch,
        )
        asyncio.get_running_loop().call_soon(partition.isr_answered, proposal, answer)


class Node:
    """What a broker has, but for its cluster and its coordinators."""

    def __init__(self, me: int, directory: Path, controller: Controller, **settings: Any) -> None:
        self.me = me
        self.controller = controller
        self.config = BrokerConfig(
            node_id=me, log_dirs=(str(directory),), replica_fetch_backoff_ms=50, **settings
        )
        self.runtime = real_runtime()
        self.epoch = 100 + me
        self.port = 0
        self.led: list[tuple[str, int]] = []
        self.lost: list[str] = []

    async def start(self) -> None:
        self.epoch += 10
        self.directories = LogDirectories.open(self.runtime, self.config.log_dirs, node_id=self.me)
        member = Membership(broker_id=BrokerId(self.me), lag_s_max=30.0, proposals=self.controller)
        self.replicas = Replicas(
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
                config=lambda: self.config,
            )
        )
        self.cluster = SimpleNamespace(image=self.controller.image(), leads=True)
        self.sessions = FetchSessions(slots=100, eviction_seconds=120.0, chance=self.runtime.entropy.uniform)
        parts = Parts(
            config=self.config,
            runtime=self.runtime,
            cluster=cast(Any, self.cluster),
            replicas=self.replicas,
            fetch_sessions=self.sessions,
            producer_ids=cast(Any, None),
            coordinators=cast(Any, None),
            quotas=Quotas(),
            moves=cast(Any, None),
        )
        limits = ServerLimits()
        self.server = Server(Dispatcher(parts, Handlers()), limits, now=self.runtime.clock.monotonic)
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
        await self.replicas.apply(before, image, self.config)

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
        return self.replicas.leader(TOPIC, index).append(batches, now_ms=NOW_MS).last_offset

    async def append_acknowledged(self, count: int = 1, index: int = 0) -> int:
        last = self.append(count, index)
        waiting = self.replicas.leader(TOPIC, index).acknowledgement(last)
        if waiting is not None:
            await asyncio.wait_for(waiting, 20)
        return last


def led_by(leader: int, *replicas: int, epoch: int = 0) -> PartitionImage:
    every = tuple(map(BrokerId, replicas))
    return PartitionImage(leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch), replicas=every, isr=every)


def content(partition: Partition) -> list[tuple[int, int, bytes]]:
    """(Base offset, epoch, bytes) of every batch."""
    found: list[tuple[int, int, bytes]] = []
    offset = partition.log.start_offset
    while offset < partition.log.end_offset:
        read = partition.log.read(offset, 1 << 20, end_offset=partition.log.end_offset, at_least_one=True)
        batches: list[tuple[BatchHeader, memoryview]] = split_batches(bytes(read.records))
        found += [(one.base_offset, one.partition_leader_epoch, bytes(raw)) for one, raw in batches]
        offset = read.next_offset
    return found


async def until(condition: Callable[[], bool], what: str = "") -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it never came to pass: {what}")


async def unreachable(*_: Any, **__: Any) -> Any:
    raise PeerUnreachable("nobody answers")


Make = Callable[..., Awaitable[list[Node]]]


@pytest.fixture
async def controller() -> Controller:
    return Controller()


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


async def test_an_acknowledged_record_is_durable_on_every_replica(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(led_by(0, 0, 1, 2))
        await controller.tell()
        for _ in range(5):
            last = await a.append_acknowledged(3)
            for follower in (b, c):
                assert follower.partition().log.flushed_offset > last
        await until(lambda: b.partition().high_watermark == c.partition().high_watermark == 15, "the mark")
        assert content(a.partition()) == content(b.partition()) == content(c.partition())
        assert (a.led, a.lost, b.led, c.led) == ([("t-0", 0)], [], [], [])


async def test_a_replica_of_others_is_not_opened(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 2) as (_a, b):
        controller.has(led_by(0, 0), led_by(1, 1), led_by(0, 0, 1))
        await controller.tell()
        assert [TopicPartition(TOPIC, 1) in b.replicas._partitions, (tmp_path / "1" / "t-0").exists()] == [
            True,
            False,
        ]
        with pytest.raises(KafkaError) as refused:
            b.replicas.replica(TOPIC, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            b.replicas.leader(TOPIC, 2)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            b.replicas.leader(TOPIC, 3)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_another_leader_is_followed_at_once_and_what_it_lacks_is_cut(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(2)
        controller.grants = False
        await controller.elect(1, 1)  # the old leader does not know yet
        a.append(3)
        b.append(4)
        b.append(4)
        assert a.partition().is_leader
        await controller.tell(0)
        await until(lambda: content(a.partition()) == content(b.partition()), "the logs are equal")
        assert a.partition().log.end_offset == 10
        assert (a.led, a.lost) == ([("t-0", 0)], ["t-0"])
        assert (b.led, b.lost) == ([("t-0", 1)], [])
        await b.append_acknowledged()


async def test_a_leader_elected_again_was_lost_in_between(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        controller.has(led_by(0, 0))
        await controller.tell()
        await controller.tell()
        await controller.elect(0)
        assert (a.led, a.lost) == ([("t-0", 0), ("t-0", 1)], ["t-0"])


async def test_without_a_leader_nobody_is_followed_and_the_replica_stays(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(2)
        await controller.elect(NO_LEADER)
        assert b.partition().log.end_offset == 2
        for node in (a, b):
            with pytest.raises(KafkaError, match="nobody leads it") as refused:
                node.replicas.leader(TOPIC, 0)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await controller.elect(1)
        await b.append_acknowledged(1)
        assert a.partition().log.flushed_offset == 3


async def test_what_is_new_is_followed_at_once_in_the_session_that_there_is(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged()
        connections = {id(one) for one in a.server._connections}
        sessions = dict(a.sessions._sessions)
        assert len(sessions) == 1
        (session,) = sessions.values()

        def waits() -> bool:
            return session.resting is not None and session.resting.waiting is not None

        for count in range(2, 8):
            await until(waits, "it waits")
            await asyncio.sleep(0.05)  # longer than the leader takes to tell of a high watermark
            await until(waits, "it waits again")
            controller.has(*[led_by(0, 0, 1)] * count)
            await controller.tell()
            await a.append_acknowledged(index=count - 1)
        assert {id(one) for one in a.server._connections} == connections
        assert a.sessions._sessions == sessions
        assert b.partition(6).log.end_offset == 1


async def test_a_follower_far_behind_begins_where_the_leader_does(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=1))
        await controller.tell()
        await a.append_acknowledged(5)
        await a.append_acknowledged(5)
        a.partition().delete_records(12)
        await b.start()
        await controller.tell()
        await until(lambda: b.partition().log.end_offset == 15, "it caught up")
        await until(lambda: b.partition().start_offset == 12, "it begins where the leader does")
        await until(lambda: controller.state().isr == (0, 1), "it is in sync")


async def test_a_replica_that_forgot_where_its_log_begins_is_told_before_it_counts(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(15)
        a.partition().delete_records(12)
        await a.append_acknowledged(1)
        await until(lambda: b.partition().start_offset == 12 and b.partition().is_durable, "all is deleted")
        await b.stop()
        rotten = [tmp_path / "1" / "t-0" / "log-start-offset", tmp_path / "1" / "log-start-offset-checkpoint"]
        for path in rotten:
            path.write_bytes(b"")
        await b.start()
        assert b.replicas.damaged == {(FIRST_ID, 0)}, "its first report"
        await controller.elect(0, isr=(0,))
        assert b.replicas.damaged == frozenset(), "it follows"
        await until(lambda: b.partition().start_offset == 12, "it begins where the leader does")
        await until(lambda: controller.state().isr == (0, 1), "it is in sync")
        await until(lambda: not b.partition().log.start_is_doubted, "it knows")
        assert content(b.partition()) == content(a.partition())


async def test_a_leader_that_forgot_where_its_log_begins_says_so(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, _b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(15)
        a.partition().delete_records(12)
        await a.append_acknowledged(1)
        await a.stop()
        (tmp_path / "0" / "t-0" / "log-start-offset").write_bytes(b"")
        (tmp_path / "0" / "log-start-offset-checkpoint").write_bytes(b"")
        await a.start()
        await controller.tell(0)
        assert a.partition().is_leader
        assert a.replicas.damaged == {(FIRST_ID, 0)}
        await controller.elect(1, isr=(1,))
        await until(lambda: a.partition().start_offset == 12, "it follows, and hears of it")
        assert a.replicas.damaged == frozenset()


async def test_a_topic_made_anew_never_shows_what_the_old_one_had(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        controller.has(led_by(1, 0, 1), topic_id=UUID(int=2))
        await controller.tell()
        for node in (a, b):
            assert node.partition().topic_id == UUID(int=2)
            assert node.partition().log.end_offset == 0
        await b.append_acknowledged(1)
        assert content(a.partition()) == content(b.partition())
        assert (a.led, a.lost, b.led) == ([("t-0", 0)], ["t-0"], [("t-0", 0)])


async def test_a_topic_made_anew_while_a_broker_was_away_does_not_show_it_either(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(led_by(0, 0, 1), isr=(BrokerId(0),)), topic_id=UUID(int=2))
        await controller.tell()
        await a.append_acknowledged(2)
        await b.start()
        await controller.tell()
        await until(lambda: b.partition().log.end_offset == 2, "it has the new topic's records")
        assert content(a.partition()) == content(b.partition())


async def test_a_replica_taken_away_is_deleted(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        controller.has(replace(led_by(0, 0), partition_epoch=1))
        await controller.tell()
        with pytest.raises(KafkaError, match="has none"):
            b.partition()
        assert not (tmp_path / "1" / "t-0").exists()
        await a.append_acknowledged(1)


def damage(node: Node, offset: int, index: int = 0) -> None:
    """Flip bits in the batch that begins with the offset."""
    before = sum(len(raw) for base, _, raw in content(node.partition(index)) if base <= offset)
    path = next((Path(node.config.log_dirs[0]) / f"t-{index}").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(before - 3)
        file.write(b"\x00\x01\x02")


async def test_a_damaged_batch_is_not_taken_what_is_before_it_is_and_others_go_on(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        controller.has(out_of_sync, out_of_sync)
        await controller.tell(0)
        for _ in range(3):
            await a.append_acknowledged(5, 0)
        damage(a, 10)
        await controller.tell(1)
        await a.append_acknowledged(7, 1)
        await until(lambda: b.partition(1).log.end_offset == 7, "the sound one is copied")
        await until(lambda: b.partition(0).log.end_offset == 10, "and the other up to the damage")
        await until(lambda: a.replicas.damaged == {(FIRST_ID, 0)}, "the leader knows")
        assert b.partition(0).log.end_offset == 10


async def test_a_damaged_leader_gets_what_it_lost_from_the_next_one(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(replace(led_by(0, 0, 1, 2), isr=(BrokerId(0), BrokerId(1))))
        await controller.tell(0, 1)
        for _ in range(4):
            await a.append_acknowledged(5)
        damage(a, 10)
        reports: list[frozenset[tuple[UUID, int]]] = []
        a.replicas.report_to(lambda: reports.append(a.replicas.damaged))
        await controller.tell(2)
        await until(lambda: bool(reports), "the leader reports")
        assert reports[0] == {(FIRST_ID, 0)}
        await controller.elect(1, isr=(1,))
        await until(lambda: controller.state().isr in ((1, 0, 2), (1, 2, 0)), "all are in sync")
        assert content(a.partition()) == content(b.partition()) == content(c.partition())
        assert a.partition().log.end_offset == 20
        assert a.replicas.damaged == frozenset()


async def test_a_follower_that_met_damage_is_cut_under_another_leader_epoch_and_has_no_hole(
    tmp_path: Path, controller: Controller
) -> None:
    """Under the one in which it fetches, its leader and what is under way would go on from where it ended before."""
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        for _ in range(4):
            await a.append_acknowledged(5)
        damage(b, 10)
        log = b.partition().log
        with pytest.raises(KafkaError):
            log.verify(log.read(10, 1 << 20, end_offset=20, at_least_one=True))
        assert b.replicas.damaged == {(FIRST_ID, 0)}
        controller.grants = False
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=8))
        await controller.tell()
        assert b.replicas.damaged == {(FIRST_ID, 0)}, "it goes on saying so"
        await a.append_acknowledged(5)
        await until(lambda: b.partition().log.flushed_offset == 25, "what is new is copied")
        controller.grants = True
        await controller.elect(0, isr=(0,))
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        assert content(a.partition()) == content(b.partition())
        assert b.replicas.damaged == frozenset()


async def test_a_leader_that_is_gone_holds_up_nobody_else(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(led_by(0, 0, 2), led_by(1, 1, 2))
        await controller.tell()
        await a.append_acknowledged(1, 0)
        await b.append_acknowledged(1, 1)
        await a.stop()
        for _ in range(3):
            await b.append_acknowledged(1, 1)
        assert c.partition(1).log.flushed_offset == 4


async def test_a_follower_that_comes_back_goes_on_where_it_stopped(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=1))
        await controller.tell()
        await a.append_acknowledged(50)
        await b.start()
        await controller.tell()
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        await a.append_acknowledged(1)
        assert b.partition().log.flushed_offset == 56
        assert content(a.partition()) == content(b.partition())


@pytest.mark.parametrize("seed", range(4))
async def test_through_lost_connections_and_changes_of_leader_nothing_acknowledged_is_lost(
    tmp_path: Path, controller: Controller, seed: int
) -> None:
    rng = Random(seed)
    async with nodes(controller, tmp_path, 3) as every:
        controller.has(led_by(0, 0, 1, 2))
        await controller.tell()
        acknowledged: set[int] = set()
        leader = 0
        for _ in range(25):
            what = rng.choice(["append", "append", "append", "cut", "elect"])
            if what == "append":
                waiting = []
                for _ in range(rng.randint(1, 5)):
                    last = every[leader].append(rng.randint(1, 20))
                    waiting.append((last, every[leader].partition().acknowledgement(last)))
                for last, future in waiting:
                    if future is not None:
                        await asyncio.wait_for(future, 20)
                    acknowledged.add(last)
            elif what == "cut":
                every[rng.randrange(3)].peers.forget(BrokerId(rng.randrange(3)))
            else:
                for _ in range(rng.randint(0, 2)):
                    every[leader].append(3)  # nobody waits for it
                await until(lambda: set(controller.state().isr) == {0, 1, 2}, "all are in sync")
                leader = rng.randrange(3)
                first = rng.sample(range(3), rng.randint(0, 2))
                await controller.elect(leader, *first, leader)
                await controller.tell()
        await every[leader].append_acknowledged()
        await until(
            lambda: (
                content(every[0].partition())
                == content(every[1].partition())
                == content(every[2].partition())
            ),
            "the logs are equal",
        )
        batches = [split_batches(raw)[0][0] for _, _, raw in content(every[0].partition())]
        assert acknowledged <= {header.last_offset for header in batches}


async def test_a_high_watermark_that_was_told_under_an_epoch_that_ended_is_told_again(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch ends while what was fetched is being flushed: what came with it of the high watermark counts no more, and
    nothing else happens in the partition. Another partition's flush holds up the next fetch until all that is over."""
    async with nodes(controller, tmp_path, 2) as (a, b):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        controller.has(out_of_sync, out_of_sync)
        controller.grants = False
        await controller.tell(0)
        for index in (0, 1):
            await a.append_acknowledged(6, index)
        flush = b.replicas._flusher.request
        monkeypatch.setattr(b.replicas._flusher, "request", lambda partition: None)
        with (
            monkeypatch.context() as nobody_answers
        ):  # until both are followed: they have to come in one answer
            nobody_answers.setattr(b.peers, "ask", unreachable)
            await controller.tell(1)
        first, second = b.partition(0), b.partition(1)
        await until(lambda: first.log.end_offset == second.log.end_offset == 6, "both are fetched")
        controller.has(out_of_sync, replace(out_of_sync, leader_epoch=LeaderEpoch(1), partition_epoch=1))
        await controller.tell()
        flush(second)
        await until(lambda: second.durable_offset == 6, "the second is durable")
        assert second.high_watermark == 0
        flush(first)
        await until(lambda: first.high_watermark == second.high_watermark == 6, "the marks")


async def test_a_fetch_that_comes_late_does_not_keep_a_replica_out_of_sync(
    tmp_path: Path, controller: Controller
) -> None:
    """It says how far the follower was before, and nothing is appended that would make it say more."""
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=10) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await until(lambda: b.partition().high_watermark == 5, "the follower knows everything")
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=7))
        controller.grants = False
        a.partition().follower_fetched(BrokerId(1), b.epoch, 2, a.runtime.clock.monotonic())
        await controller.tell()
        controller.grants = True
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")


async def test_many_partitions_are_spread_over_the_fetchers_and_all_arrive(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, num_replica_fetchers=3) as (a, b):
        controller.has(*(led_by(number % 2, 0, 1) for number in range(40)))
        await controller.tell()
        await asyncio.gather(*((a, b)[number % 2].append_acknowledged(2, number) for number in range(40)))
        for number in range(40):
            assert content(a.partition(number)) == content(b.partition(number))
        names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("fetching")]
        assert len(names) == 6
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("fetching")]


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_marked_replica_out_of_sync_is_copied_at_the_rate_and_others_at_full_speed(
    tmp_path: Path, controller: Controller, side: str
) -> None:
    async with nodes(
        controller, tmp_path, 2, replica_fetch_max_bytes=10_000, replica_fetch_wait_max_ms=20
    ) as (
        a,
        b,
    ):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        marked = {f"{side}.replication.throttled.replicas": "0:0,0:1"}
        controller.has(out_of_sync, out_of_sync, configs=marked)
        slow = a if side == "leader" else b
        normal = slow.config
        slow.configure(
            replace(
                normal,
                leader_replication_throttled_rate=1000,
                follower_replication_throttled_rate=1000,
                replication_quota_window_num=1,
            )
        )
        controller.grants = False
        await controller.tell(0)
        for index in (0, 1):
            for _ in range(100):
                a.append(100, index)
        await controller.tell(1)
        end = a.partition().log.end_offset
        await until(lambda: b.partition(1).log.end_offset == end, "the other is copied")
        assert b.partition(0).log.end_offset < end  # perhaps 0: an answer that is given up counts, too
        slow.configure(normal)
        await until(lambda: b.partition(0).log.end_offset == end, "so is the marked one, at last")


async def test_a_replica_that_cannot_take_its_role_keeps_no_other_from_its_own(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is offline, and reported as such, so that another broker leads."""
    async with nodes(controller, tmp_path, 1) as (a,):
        controller.has(led_by(0, 0), led_by(-1, 0), led_by(0, 0))
        await controller.tell()

        def refuse(epoch: int) -> None:
            raise OSError(5, "no disk")

        monkeypatch.setattr(a.partition(0).log, "begin_epoch", refuse)
        controller.has(led_by(0, 0, epoch=1), led_by(0, 0, epoch=1), led_by(0, 0, epoch=1))
        await controller.tell()
        assert [a.partition(index).leader_epoch for index in (1, 2)] == [1, 1]
        assert a.replicas.offline == {(FIRST_ID, 0)}
        with pytest.raises(KafkaError) as refused:
            a.partition(0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_new_replica_that_cannot_take_its_role_keeps_no_other_from_being_opened(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        assume = ReplicaRoles.assume

        def refuse(self: ReplicaRoles, partition: Partition, state: PartitionImage) -> None:
            if partition.name.partition < 10:
                raise OSError(5, "no disk")
            assume(self, partition, state)

        monkeypatch.setattr(ReplicaRoles, "assume", refuse)
        controller.has(*(led_by(0, 0) for _ in range(20)))
        await controller.tell()
        assert a.replicas.offline == {(FIRST_ID, index) for index in range(10)}
        assert all(a.partition(index).is_leader for index in range(10, 20))
