"""Three replicas of one partition under a random schedule: the production `Partition` on the production log, on disks that lose
what was not synced, and nothing around them but a model of a controller and messages that are late, lost or come again.

There is no event loop at work and no time but what the schedule says. Each step is one event: an append, a fetch that is sent,
served or answered, a flush that begins or ends, an image that arrives, a crash, a restart with or without its disk, an
election, a proposal that reaches the controller and an answer that does not come back.

What must hold at any moment: a replica's high watermark never goes back nor beyond its log, what is below it never changes and
is the same everywhere; and in the end, when all is well again: what was acknowledged is there, and the replicas are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from uuid import UUID

from tests.simulation.replicas.controller import ModelController
from tests.simulation.replicas.history import ReplicasHistory, SeenMarks

from odradek.broker.fetch.reading import FetchingBroker, FetchReader
from odradek.broker.sessions.fetch_sessions import RequestedPartition, named
from odradek.config.broker import BrokerConfig
from odradek.config.server import ServerConfig
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.data.fetch import FetchRequest, PartitionData
from odradek.records import BatchBuilder, split_batches
from odradek.replication.in_sync import IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.ports import Runtime
from odradek.storage.log.log import EpochEnd, FlushJob, Log
from odradek.testing.guarded_disk import GuardedDisk, off_loop
from odradek.testing.sim.disk import SimDisk
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.entropy import SimEntropy
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.medium import Medium

NAME: Final = TopicPartition("t", 0)
BROKERS: Final = (BrokerId(1), BrokerId(2), BrokerId(3))
_LAG_S: Final = 10.0
_ROUNDS_MAX: Final = 300


@dataclass(slots=True)
class Fetch:
    """A follower's question on its way, and then its answer."""

    follower: BrokerId
    life: int
    broker_epoch: int
    leader: BrokerId
    leader_epoch: int
    wanted: RequestedPartition
    answer: PartitionData | None = None


@dataclass(slots=True)
class Replica:
    """A broker's replica of the partition. What is None is not there while the broker is down."""

    broker: BrokerId
    medium: Medium = field(default_factory=Medium)
    disk: SimDisk | None = None
    partition: Partition | None = None
    broker_epoch: int = -1
    life: int = 0
    seen: int = -1
    """The newest image that arrived, by its place among the controller's versions."""
    is_cut_off: bool = False
    checkpoint: int | None = None
    flush: FlushJob | None = None
    fetch: Fetch | None = None
    seen_marks: SeenMarks = field(default_factory=SeenMarks)

    def request(self, partition: Partition) -> None:
        """`Flushing`: the schedule flushes."""


class _Proposed(NamedTuple):
    """A proposal on its way to the controller, and the life of the broker that makes it."""

    replica: Replica
    broker_epoch: int
    life: int
    leader: LeaderRole
    proposal: IsrProposal


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


class ReplicasModel:
    """One run. Make it within a running event loop: acknowledgements are futures."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._clock = _Clock()
        self.controller = ModelController(BROKERS)
        self.replicas = {broker: Replica(broker) for broker in BROKERS}
        self._proposals: list[_Proposed] = []
        self._old_fetches: list[Fetch] = []
        self._replaced = self._rng.choice((0.0, 0.3))
        """How likely a broker that comes back has a new disk, if others have everything."""
        self._fetch_bytes = self._rng.choice((150, 600))
        self._values = 0
        self.history = ReplicasHistory()
        for replica in self.replicas.values():
            replica.broker_epoch = self.controller.live[replica.broker]
            self._open(replica)

    # -- one life of a replica

    def _open(self, replica: Replica) -> None:
        replica.life += 1
        replica.disk = SimDisk(replica.medium, rng=Random(self._rng.random()), now_ms=self._clock.wall_ms)
        replica.medium.make_durable_folder("/data")
        runtime = Runtime(
            clock=self._clock,
            entropy=SimEntropy(Random(0)),
            disk=GuardedDisk(replica.disk),
            offload=SimpleNamespace(),
        )
        log = Log.open(
            runtime,
            "/data/t-0",
            LogConfig(segment_bytes=4096),
            topic_partition=NAME,
            clean=False,
            recovery_point=0,
        )
        if replica.checkpoint is not None and replica.checkpoint > log.end_offset:
            raise ViolationError(
                f"broker {replica.broker} lost what was below its high watermark {replica.checkpoint}: {log.end_offset}"
            )
        member = ReplicationContext(
            broker_id=replica.broker, lag_s_max=_LAG_S, proposals=_Proposals(self, replica)
        )
        replica.partition = Partition(
            NAME,
            UUID(int=1),
            log,
            LeaderEpoch(-1),
            replica,
            member=member,
            high_watermark=replica.checkpoint,
        )
        replica.seen_marks = SeenMarks(
            broker=replica.broker, high_watermark=replica.partition.high_watermark, checked=log.start_offset
        )

    def stop(self, replica: Replica, kind: CrashKind) -> None:
        assert replica.disk is not None
        replica.disk.crash(kind)
        replica.disk = replica.partition = replica.flush = replica.fetch = None
        replica.seen = -1

    def restart(self, replica: Replica, *, with_new_disk: bool = False) -> None:
        if with_new_disk:
            replica.medium = Medium()
            replica.checkpoint = None
        replica.broker_epoch = self.controller.register(replica.broker)
        replica.is_cut_off = False
        self._open(replica)
        replica.seen = len(self.controller.versions) - 2  # no image is older than the registration

    def reopen(self, replica: Replica) -> None:
        """Its process is there again before anyone noticed."""
        self._open(replica)

    # -- the schedule

    def run(self, step_count: int) -> None:
        rng = self._rng
        steps: tuple[tuple[float, Callable[[Replica], None]], ...] = (
            (rng.choice((2.0, 8.0)), self.append),
            (30.0, self._advance_fetch),
            (rng.choice((8.0, 20.0)), self._advance_flush),
            (rng.choice((3.0, 10.0)), self._deliver_image),
            (rng.choice((1.0, 6.0)), self._advance_proposal),
            (2.0, self._check_in_sync),
            (2.0, self._checkpoint),
            (rng.choice((0.0, 2.0)), self.repeat_fetch),
            (rng.choice((1.0, 6.0)), self._repeat_image),
            (rng.choice((0.2, 3.0)), self._lose_fetch),
            (rng.choice((0.1, 0.6, 2.0)), self._elect),
            (rng.choice((0.1, 0.4, 1.2)), self._fail),
            (rng.choice((0.0, 0.05)), self._cut_power),
            (rng.choice((0.5, 4.0)), self._recover),
        )
        weights = [weight for weight, _ in steps]
        for _ in range(step_count):
            self._clock.now += rng.choice((0.0, 0.0, 0.01, 0.1, 1.0))
            _, step = rng.choices(steps, weights)[0]
            step(self._pick(step))
            self._check()
        self.calm_down()

    def _pick(self, step: Callable[[Replica], None]) -> Replica:
        """One with which the step may do something, if there is one."""
        replicas = list(self.replicas.values())
        if step == self.append:
            fit = [
                replica
                for replica in replicas
                if replica.partition is not None and replica.partition.is_leader
            ]
        elif step == self._advance_fetch:
            fit = [
                replica
                for replica in replicas
                if replica.partition is not None and not replica.partition.is_leader
            ]
        elif step == self._recover:
            fit = [replica for replica in replicas if replica.partition is None or replica.is_cut_off]
        else:
            fit = replicas
        return self._rng.choice(fit or replicas)

    def append(self, replica: Replica) -> None:
        partition = replica.partition
        if partition is None or not partition.is_leader:
            return
        builder = BatchBuilder()
        values = []
        for _ in range(self._rng.randint(1, 3)):
            self._values += 1
            values.append(b"%d" % self._values)
            builder.append(self._clock.wall_ms(), None, values[-1])
        try:
            leader = partition.leader()
            leader.check_in_sync()
            appended = leader.append(split_batches(builder.build()), now_ms=self._clock.wall_ms())
            future = leader.acknowledgement(appended.last_offset)
        except KafkaError:
            return
        for number, value in enumerate(values):
            self.history.appended(appended.first_offset + number, value, future)

    def _advance_flush(self, replica: Replica) -> None:
        partition = replica.partition
        if partition is None:
            return
        if replica.flush is None:
            replica.flush = partition.log.flush_job()
            if replica.flush is not None:
                with off_loop():
                    replica.flush.run()
        else:
            partition.log.flushed(replica.flush)
            replica.flush = None
            partition.flushed()

    def _deliver_image(self, replica: Replica) -> None:
        newest = len(self.controller.versions) - 1
        if replica.partition is None or replica.is_cut_off or replica.seen >= newest:
            return
        replica.seen = self._rng.randint(replica.seen + 1, newest)
        self._apply_image(replica)

    def _repeat_image(self, replica: Replica) -> None:
        if replica.partition is not None and replica.seen >= 0:
            self._apply_image(replica)

    def _apply_image(self, replica: Replica) -> None:
        assert replica.partition is not None
        state, live = self.controller.versions[replica.seen]
        if state.leader == replica.broker:
            replica.partition.lead(state, live, self._clock.now)
        else:
            replica.partition.follow(state)

    def _check_in_sync(self, replica: Replica) -> None:
        if replica.partition is not None:
            replica.partition.check_in_sync_replicas(self._clock.now)

    def _checkpoint(self, replica: Replica) -> None:
        if replica.partition is not None:
            replica.checkpoint = replica.partition.high_watermark

    def _elect(self, replica: Replica) -> None:
        self.controller.elect(replica.broker)

    def _fail(self, replica: Replica) -> None:
        """It dies, or no one can reach it any more though it lives on."""
        if replica.partition is None:
            return
        if self._rng.random() < 0.4:
            replica.is_cut_off = True
            self.controller.fence(replica.broker)
            return
        self.stop(replica, self._rng.choice((CrashKind.POWER_LOSS, CrashKind.PROCESS_KILL)))
        if self._rng.random() < 0.7:
            self.controller.fence(replica.broker)

    def _cut_power(self, _: Replica) -> None:
        """Everyone's at once."""
        replicas = [text for text in self.replicas.values() if text.partition is not None]
        self._rng.shuffle(replicas)
        for replica in replicas:
            self.stop(replica, CrashKind.POWER_LOSS)
        for replica in replicas:
            self.controller.fence(replica.broker)

    def _recover(self, replica: Replica) -> None:
        if replica.is_cut_off and replica.partition is not None:
            replica.is_cut_off = False
            if replica.broker not in self.controller.live:  # its session had ended: it registers again
                replica.broker_epoch = self.controller.register(replica.broker)
        elif replica.partition is None:
            is_spare = replica.broker not in self.controller.state.isr
            self.restart(replica, with_new_disk=is_spare and self._rng.random() < self._replaced)

    # -- fetching

    def _advance_fetch(self, replica: Replica) -> None:
        fetch = replica.fetch
        if fetch is None:
            replica.fetch = self._question(replica)
        elif fetch.answer is None:
            self._serve(replica, fetch)
        else:
            replica.fetch = None
            self._take(replica, fetch)

    def _question(self, replica: Replica) -> Fetch | None:
        partition = replica.partition
        if partition is None or partition.is_leader or partition.state is None or partition.state.leader < 0:
            return None
        if not partition.is_durable:
            return None
        return Fetch(
            follower=replica.broker,
            life=replica.life,
            broker_epoch=replica.broker_epoch,
            leader=partition.state.leader,
            leader_epoch=partition.leader_epoch,
            wanted=RequestedPartition(
                key=named(NAME.topic, NAME.partition),
                fetch_offset=partition.durable_offset,
                max_bytes=self._fetch_bytes,
                current_leader_epoch=partition.leader_epoch,
                last_fetched_epoch=partition.last_epoch,
                log_start_offset=partition.start_offset,
            ),
        )

    def _serve(self, replica: Replica, fetch: Fetch) -> None:
        leader = self.replicas[fetch.leader]
        if leader.partition is None or leader.is_cut_off or replica.is_cut_off:
            replica.fetch = None
            return
        if self._rng.random() < 0.2:
            self._old_fetches.append(fetch)
        fetch.answer = self._read(leader.partition, fetch)

    def _read(self, partition: Partition, fetch: Fetch) -> PartitionData:
        """What the production handler reads."""

        def lead(*_: object) -> Partition:
            partition.check_leads()
            return partition

        broker: Any = SimpleNamespace(
            config=BrokerConfig(server=ServerConfig(fetch_max_bytes=1 << 20)),
            quotas=SimpleNamespace(active=False),
            replicas=SimpleNamespace(leader=lead, leader_throttle=SimpleNamespace(is_active=False)),
            runtime=SimpleNamespace(clock=self._clock),
            traces=None,
        )
        context: Any = SimpleNamespace(
            api_version=17, access=None, connection=SimpleNamespace(sends_uncopied=False)
        )
        who = FetchingBroker(broker_id=fetch.follower, broker_epoch=fetch.broker_epoch)
        (partition_data,) = FetchReader(broker, context, FetchRequest(), [fetch.wanted], who).read()
        return partition_data.data

    def remember_fetch(self, replica: Replica) -> None:
        """What it would ask now is what comes again."""
        fetch = self._question(replica)
        assert fetch is not None
        self._old_fetches = [fetch]

    def repeat_fetch(self, _: Replica) -> None:
        """The network delivers a question once more, when it should long be gone."""
        fit = [
            (fetch, leader.partition)
            for fetch in self._old_fetches
            if (leader := self.replicas[fetch.leader]).partition is not None
            and not leader.is_cut_off
            and leader.partition.leader_epoch == fetch.leader_epoch
        ]
        earlier = [entry for entry in fit if entry[0].life < self.replicas[entry[0].follower].life]
        if fit:
            fetch, partition = self._rng.choice(earlier or fit)
            self._read(partition, fetch)

    def _lose_fetch(self, replica: Replica) -> None:
        replica.fetch = None

    def _take(self, replica: Replica, fetch: Fetch) -> None:
        """What a follower does with an answer."""
        partition, data = replica.partition, fetch.answer
        if partition is None or data is None or fetch.life != replica.life or replica.is_cut_off:
            return
        if partition.is_leader or partition.leader_epoch != fetch.leader_epoch:
            return
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            leader = self.replicas[fetch.leader].partition
            if leader is not None and leader.is_leader and leader.leader_epoch == fetch.leader_epoch:
                partition.follower().restart_at(leader.start_offset)
        elif data.error_code != ErrorCode.NONE:
            return
        elif data.diverging_epoch.epoch >= 0:
            end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            partition.follower().truncate(end)
        else:
            if data.records:
                batches = split_batches(memoryview(bytearray(data.records)))
                partition.follower().append_fetched(batches, now_ms=self._clock.wall_ms())
            partition.follower().learned(data.high_watermark, data.log_start_offset)

    # -- proposals

    def propose(self, replica: Replica, leader: LeaderRole, proposal: IsrProposal) -> None:
        self._proposals.append(_Proposed(replica, replica.broker_epoch, replica.life, leader, proposal))

    def _advance_proposal(self, _: Replica) -> None:
        """One reaches the controller; its answer may be lost, and then it is asked again."""
        if not self._proposals:
            return
        proposed = self._proposals.pop(self._rng.randrange(len(self._proposals)))
        replica, leader, proposal = proposed.replica, proposed.leader, proposed.proposal
        is_alive = replica.partition is not None and replica.life == proposed.life
        isr_answer = self.controller.alter(replica.broker, proposed.broker_epoch, proposal)
        if not is_alive or not leader.wants(proposal):
            return
        is_lost = replica.is_cut_off or self._rng.random() < 0.3
        if is_lost or (
            isinstance(isr_answer, KafkaError) and isr_answer.code is ErrorCode.STALE_BROKER_EPOCH
        ):
            self.propose(replica, leader, proposal)
        else:
            leader.isr_answered(proposal, isr_answer)

    def _check(self) -> None:
        self.history.poll()
        for replica in self.replicas.values():
            if replica.partition is not None:
                self.history.check(replica.seen_marks, replica.partition)

    # -- the end

    def calm_down(self) -> None:
        """Everyone comes back, nothing is lost any more, and in bounded time the replicas are one."""
        self._fetch_bytes = 1 << 20
        for replica in self.replicas.values():
            if replica.partition is None or replica.is_cut_off:
                self._recover(replica)
        for _ in range(_ROUNDS_MAX):
            self.round(self.replicas.values())
            if self._is_calm():
                break
        else:
            raise ViolationError(f"the replicas do not become one: {self._shown()}")
        partitions = [text.partition for text in self.replicas.values() if text.partition is not None]
        self.history.compare(partitions)

    def round(self, replicas: Iterable[Replica]) -> None:
        """A while in which everything arrives that these ask for and that others send them."""
        self._clock.now += 0.3
        for replica in replicas:
            replica.seen = len(self.controller.versions) - 1
            self._apply_image(replica)
            for _ in range(3):
                self._advance_fetch(replica)
                self._advance_flush(replica)
            self._check_in_sync(replica)
            self._advance_proposal(replica)
            self._check()

    def _is_calm(self) -> bool:
        partitions = [
            replica.partition for replica in self.replicas.values() if replica.partition is not None
        ]
        ends = {partition.log.end_offset for partition in partitions}
        marks = {partition.high_watermark for partition in partitions}
        return ends == marks and len(ends) == 1 and len(self.controller.state.isr) == len(BROKERS)

    def _shown(self) -> str:
        shown = [f"ISR {self.controller.state.isr}"]
        for replica in self.replicas.values():
            partition = replica.partition
            assert partition is not None
            shown.append(
                f"broker {replica.broker}: {'leads' if partition.is_leader else 'follows'} "
                f"in epoch {partition.leader_epoch}, {partition.high_watermark} of {partition.log.end_offset}"
            )
        return "; ".join(shown)


class _Proposals:
    """`IsrProposals` of one life."""

    def __init__(self, model: ReplicasModel, replica: Replica) -> None:
        self._model = model
        self._replica = replica

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        self._model.propose(self._replica, leader, proposal)


async def run_replicas(seed: int, step_count: int) -> int:
    """Raises ViolationError; else how many records were acknowledged."""
    model = ReplicasModel(seed)
    model.run(step_count)
    return len(model.history.acknowledged)
