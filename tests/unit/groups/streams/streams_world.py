"""A machine with one streams group, whose members are simulated: they use what their answers say, and report it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import GroupDependencies, GroupMachine
from odradek.groups.shard.settings import GroupSettings
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.heartbeats import StreamsHeartbeat
from odradek.groups.streams.kind import StreamsGroups
from odradek.groups.streams.settings import StreamsSettings
from odradek.groups.streams.tasks import TaskId
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord

CALLER = Caller(client_id="client", client_host="/host", api_version=1)
REBALANCE_TIMEOUT_MS = 10_000
AT_ONCE = {"assignment_interval_ms": 0, "initial_rebalance_delay_ms": 0}


class StreamsTopicsStub:
    """Topics whose ids are their names."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.version = 1

    def topic_id(self, name: str) -> UUID | None:
        return UUID(bytes=name.encode().ljust(16, b".")[:16]) if name in self.counts else None

    def topic_name(self, topic_id: UUID) -> str | None:
        name = topic_id.bytes.decode().rstrip(".")
        return name if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def names(self) -> Collection[str]:
        return self.counts

    def create(self, name: str, count: int) -> None:
        self.counts[name] = count
        self.version += 1

    def delete(self, name: str) -> None:
        del self.counts[name]
        self.version += 1


def internal(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def subtopology(subtopology_id: str = "0", **fields: Any) -> Subtopology:
    return Subtopology(subtopology_id=subtopology_id, **fields)


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(parts))


STATELESS = topology(subtopology(source_topics=["in"]))
COUNTING = topology(
    subtopology("0", source_topics=["in"], repartition_sink_topics=["repart"]),
    subtopology(
        "1",
        source_topics=[],
        repartition_source_topics=[internal("repart")],
        state_changelog_topics=[internal("log")],
    ),
)


@dataclass
class SimulatedMember:
    """A member: its epoch, and the tasks that it uses."""

    member_id: str
    process_id: str
    epoch: int = 0
    instance_id: str | None = None
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    status: list[int] = field(default_factory=list)


def task_ids(tasks: Collection[TaskId]) -> list[TaskIds]:
    names = sorted({task.subtopology for task in tasks})
    return [
        TaskIds(
            subtopology_id=name,
            partitions=sorted(task.partition for task in tasks if task.subtopology == name),
        )
        for name in names
    ]


def _tasks(entries: list[TaskIds]) -> set[TaskId]:
    return {TaskId(entry.subtopology_id, partition) for entry in entries for partition in entry.partitions}


class StreamsWorld:
    """The group `g`. Time stands still unless it is moved."""

    def __init__(self, *, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.topics = StreamsTopicsStub(
            **(topics if topics is not None else {"in": 4, "repart": 4, "log": 4})
        )
        self.settings = StreamsSettings(**(AT_ONCE | settings))
        self.streams = StreamsGroups(lambda _: self.settings)
        self.records: list[NewRecord] = []
        self.now_ms = 1_000_000
        self.machine = self._made()

    def _made(self) -> GroupMachine:
        dependencies = GroupDependencies(
            settings=GroupSettings,
            topics=self.topics,
            new_uuid=lambda: UUID(int=1),
            batch_bytes_max=lambda: 1 << 20,
        )
        return GroupMachine(dependencies, [OFFSETS, self.streams.parts()])

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def written(self, outcome: Outcome[Any]) -> Any:
        for record in outcome.records:
            self.machine.replay(StoredRecord(record.key, record.value, len(self.records), self.now_ms))
            self.records.append(record)
        return outcome.reply

    def restart(self) -> None:
        self.machine = self._made()
        for offset, record in enumerate(self.records):
            self.machine.replay(StoredRecord(record.key, record.value, offset, 0))
        self.machine.loaded(self.now)

    def wait(self, ms: int) -> None:
        """Moves time, and lets deadlines that are due happen."""
        self.now_ms += ms
        while True:
            due = self.machine.next_deadline_ms()
            if due is None or due > self.now_ms:
                return
            self.written(self.machine.tick(self.now))

    @property
    def group(self) -> StreamsGroup:
        return self.streams.group(self.machine, "g")

    def send(self, *, caller: Caller = CALLER, **fields: Any) -> StreamsHeartbeat:
        request = StreamsGroupHeartbeatRequest(**({"group_id": "g"} | fields))
        heartbeat: StreamsHeartbeat = self.written(
            self.streams.heartbeat(self.machine, self.now, request=request, caller=caller)
        )
        return heartbeat

    def join(
        self,
        member_id: str,
        process_id: str | None = None,
        sent_topology: Topology = STATELESS,
        **fields: Any,
    ) -> SimulatedMember:
        member = SimulatedMember(member_id, process_id or member_id, instance_id=fields.get("instance_id"))
        response = self.send(
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            topology=sent_topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=member.process_id,
            **fields,
        ).response
        self._follow(member, response)
        return member

    def beat(self, member: SimulatedMember, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A full heartbeat: the member says what it uses, then does what the answer says."""
        response = self.send(
            member_id=member.member_id,
            member_epoch=member.epoch,
            active_tasks=task_ids(member.active),
            standby_tasks=task_ids(member.standby),
            warmup_tasks=[],
            **fields,
        ).response
        self._follow(member, response)
        return response

    def _follow(self, member: SimulatedMember, response: StreamsGroupHeartbeatResponse) -> None:
        member.epoch = response.member_epoch
        member.status = [status.status_code for status in response.status or ()]
        if response.active_tasks is not None:
            member.active = _tasks(response.active_tasks)
            member.standby = _tasks(response.standby_tasks or [])

    def leave(self, member: SimulatedMember, epoch: int = -1) -> None:
        self.send(member_id=member.member_id, member_epoch=epoch, instance_id=member.instance_id)

    def settle(self, *members: SimulatedMember, rounds: int = 8) -> None:
        for _ in range(rounds):
            for member in members:
                self.beat(member)
