"""What a seed decides about a run of the cluster: who works in it, how the brokers are set up, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.broker.clients import PORT
from tests.simulation.cluster.faults import LOSSES, ClusterFaults
from tests.simulation.cluster.logins import secured_settings
from tests.simulation.cluster.plays import profile_of
from tests.simulation.groups.epoch_members import SESSION_MS

from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.entropy import stream

_WORKLOADS: Final = ("transactions", "group", "keyed", "churn", "reassign")
_STREAMS_GROUP: Final = {
    "offsets.topic.num.partitions": "1",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.assignment.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "300",
    "group.streams.num.standby.replicas": "1",
}
"""One partition of `__consumer_offsets`: a strike at the role `group` hits the coordinator of the group."""
_ENDINGS: Final = ("power", "power", "clean")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The size and the clients of a cluster. Producers and consumers of plain records are there beside its `workloads`."""

    profile: str
    """Of its faults: see `cluster_plays`."""
    broker_count: int
    partition_count: int
    replication: int
    min_insync: int
    record_count: int
    padding_bytes: tuple[int, ...]
    workloads: tuple[str, ...]
    session_s: float
    """How long the registry waits for a broker."""
    registry_s: float
    """The longest that it takes to reach the registry."""
    sync_s: float
    """The longest that each step of making a write durable takes."""
    lag_s: float
    fetch_wait_ms: int
    follows_nearest: bool
    """Some consumers read from any broker they like."""
    ending: str
    """`power`: all brokers lose their power at one instant in the end; `clean`: after they stopped; `kill`: they are killed."""

    loses_one: CrashKind | None
    """Before that, how a leader dies and is not back until others have taken over, if one does."""
    is_secured: bool = False
    """Everyone logs in, brokers too, and ACLs say what each may do."""
    flushes: bool = True
    """What is acknowledged is on disk. If not, the power of one broker may fail in a run, and of no other."""

    @classmethod
    def draw(cls, seed: int, broker_count: int) -> ClusterPlan:
        rng = stream(seed, "cluster plan")
        replication = min(broker_count, rng.choice((2, 3, 3, 3)))
        sync_s = rng.choice((0.002, 0.02, 0.1))
        profile = profile_of(seed)
        plan = cls(
            profile=profile,
            broker_count=broker_count,
            partition_count=rng.choice((1, 2)),
            replication=replication,
            min_insync=min(replication, rng.choice((1, 1, 2))),
            record_count=rng.choice((20, 40, 60)),
            padding_bytes=rng.choice(((0, 20), (0, 100, 2000))),
            workloads=tuple(sorted(rng.sample(_WORKLOADS, rng.choice((0, 1, 1, 2))))),
            session_s=rng.choice((1.0, 2.0, 6.0)),
            registry_s=rng.choice((0.003, 0.003, 0.15)),
            sync_s=sync_s,
            lag_s=max(rng.choice((0.5, 2.0)), 40 * sync_s),  # a follower fetches, writes and syncs in less
            fetch_wait_ms=rng.choice((50, 500)),
            follows_nearest=rng.random() < 0.5,
            ending=rng.choice(_ENDINGS),
            loses_one=stream(seed, "lost").choice((None, CrashKind.PROCESS_KILL, CrashKind.POWER_LOSS)),
        )
        if "group" in plan.workloads and stream(seed, "protocol of the group").random() < 0.5:
            workloads = tuple("consumers" if workload == "group" else workload for workload in plan.workloads)
            plan = replace(plan, workloads=workloads)
        return plan if profile == "mix" else plan._for_plays(rng)

    def _for_plays(self, rng: Random) -> ClusterPlan:
        """The ISR follows quickly what happens, and there is a third replica that may be behind."""
        workloads = self.workloads
        if self.profile == "moves" or (self.profile == "in_sync" and rng.random() < 0.5):
            workloads = ("reassign", *(workload for workload in workloads if workload == "keyed"))
        return replace(
            self,
            replication=min(3, self.broker_count),
            min_insync=min(rng.choice((1, 2)), self.broker_count),
            sync_s=rng.choice((0.002, 0.01)),
            lag_s=0.5,
            workloads=workloads,
        )

    def fit_for(self, faults: ClusterFaults) -> ClusterPlan:
        """Returns a plan for these faults: where a disk rots, no record is acknowledged by one broker alone."""
        rots = any(strike.kind in LOSSES for strike in faults.strikes)
        return replace(self, min_insync=min(2, self.replication)) if rots else self

    def without_flushes(self) -> ClusterPlan:
        """Acknowledged means: in the memory of at least two machines."""
        return replace(
            self,
            flushes=False,
            replication=min(3, self.broker_count),
            min_insync=min(2, self.broker_count),
            ending="kill",
            loses_one=None if self.loses_one is None else CrashKind.PROCESS_KILL,
        )

    def secured(self) -> ClusterPlan:
        return replace(self, is_secured=True)

    def with_streams_group(self) -> ClusterPlan:
        """The group is the work; three replicas, so that coordinators can die one after the other."""
        return replace(
            self,
            workloads=("streams",),
            replication=min(3, self.broker_count),
            min_insync=1,
            session_s=min(self.session_s, 2.0),
            lag_s=max(0.5, 40 * self.sync_s),
        )

    def topic(self) -> dict[str, str]:
        """Settings of the topic of plain records."""
        return {"min.insync.replicas": str(self.min_insync)}

    def broker(self, seed: int, broker_id: int) -> dict[str, str]:
        """Settings of one broker."""
        rng = stream(seed, f"broker {broker_id}")
        rots = self.profile == "rot"  # it is found out below the one, and from the other on
        internal = str(min(3, self.broker_count))
        unflushed = {"log.flush.before.ack": "false", "min.insync.replicas": str(self.min_insync)}
        return {
            **({} if self.flushes else unflushed),
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{host_name(broker_id)}:{PORT}",
            "log.dirs": "/data",
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": rng.choice(("700", "5000")),
            "replica.high.watermark.checkpoint.interval.ms": "300" if rots else rng.choice(("300", "5000")),
            "replica.lag.time.max.ms": str(int(self.lag_s * 1000)),
            "replica.fetch.wait.max.ms": str(min(self.fetch_wait_ms, int(self.lag_s * 500))),
            "replica.fetch.backoff.ms": "100",
            "num.replica.fetchers": rng.choice(("1", "2")),
            "log.roll.ms": rng.choice(("1000", "604800000")),
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": internal,
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": internal,
            "transaction.state.log.min.isr": str(min(2, self.broker_count)),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "300",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "300",
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.assignment.interval.ms": "200",
            "log.cleaner.backoff.ms": "500",
            "controlled.shutdown.max.retries": "3",
            "controlled.shutdown.retry.backoff.ms": "200",
            **(
                _STREAMS_GROUP | {"default.replication.factor": internal}
                if "streams" in self.workloads
                else {}
            ),
            **(secured_settings(f"{host_name(broker_id)}:{PORT}") if self.is_secured else {}),
        }


def host_name(broker_id: int) -> str:
    return f"broker-{broker_id}"
