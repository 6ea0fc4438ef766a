"""Simulated members of a streams group (KIP-1071): they bring a topology, stop using tasks before they say so, commit what they
have read, doze off, leave, and come back.

One subtopology reads the topic and writes a repartition topic, the other counts in a store with a changelog. The broker
creates both topics. Several members may be threads of one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.groups.epoch_members import (
    BEGIN_AGAIN,
    LATER,
    OTHER_MEMBER,
    REBALANCE_MS,
    SESSION_MS,
    commit_offset,
)
from tests.simulation.groups.members import GROUP, check_offset, find_coordinator
from tests.simulation.streams.history import StreamsHistory

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

_READING, _COUNTING = "0", "1"


def topology_of(topic: str) -> Topology:
    def internal(name: str) -> TopicInfo:
        return TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[])

    repartition = f"{GROUP}-count-repartition"
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id=_READING, source_topics=[topic], repartition_sink_topics=[repartition]
            ),
            Subtopology(
                subtopology_id=_COUNTING,
                repartition_source_topics=[internal(repartition)],
                state_changelog_topics=[internal(f"{GROUP}-count-changelog")],
            ),
        ],
    )


class StreamsMember:
    """`run` until it is over. `owned` has its active tasks, in `generation`, its epoch; None while it is not a member."""

    def __init__(
        self,
        context: ClientContext,
        history: StreamsHistory,
        rng: Random,
        *,
        name: str,
        process_id: str,
        topic: str,
        partition_count: int,
        is_static: bool,
        retires: bool,
    ) -> None:
        self._context = context
        self._history = history
        self._rng = rng
        self.name = name
        self._process_id = process_id
        self._topic = topic
        self._partition_count = partition_count
        self._instance_id = name if is_static else None
        self._commit_version = rng.choice((9, 10))
        self._retires = retires
        self._member_number = 0
        self._reported: tuple[list[int], list[int]] | None = None
        """The tasks that the coordinator is known to have heard of."""
        self._tenures: dict[int, int] = {}
        """Active task -> tenure, of what it uses, or used when it dozed off."""
        self._standby: list[int] = []
        self.is_gone = False
        self.generation = 0
        self.owned: list[int] | None = None

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 5))))

        def is_done() -> bool:
            return is_over() or self.is_gone

        async def session(client: WireClient) -> None:
            self._reported = None
            await find_coordinator(client)
            while not is_done():
                await self._step(client, is_calm)

        await self._context.stay_connected(session, is_done)

    async def _step(self, client: WireClient, is_calm: Callable[[], bool]) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0.02, 0.4))
        if self.owned is None:
            await self._heartbeat(client)
        elif self._retires and rng.random() < 0.03:
            self._drop()
            self.is_gone = True
        elif not is_calm() and rng.random() < 0.04:
            await self._doze(client)
        elif not is_calm() and rng.random() < 0.03:
            await self._leave(client)
        elif rng.random() < 0.5 and self._read_partitions():
            await self._commit(client)
        else:
            await self._heartbeat(client)

    async def _doze(self, client: WireClient) -> None:
        """It uses nothing while it sleeps, and commits what it had before it hears the outcome."""
        tenures = dict(self._tenures)
        self._stop(list(self._tenures), self._standby)
        await asyncio.sleep(self._rng.uniform(1.0, 10.0))
        self._tenures = tenures
        if self._read_partitions():
            await self._commit(client)
        self._reported = None
        await self._heartbeat(client)

    # -- membership

    @property
    def _member_id(self) -> str:
        return f"{self.name}-{self._member_number}"

    def _listed(self, tasks: Iterable[int]) -> list[TaskIds]:
        partitions: dict[str, list[int]] = {}
        for task in tasks:
            subtopology = _READING if task < self._partition_count else _COUNTING
            partitions.setdefault(subtopology, []).append(task % self._partition_count)
        return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in partitions.items()]

    def _numbers(self, tasks: Iterable[TaskIds] | None) -> list[int]:
        return sorted(
            partition + (self._partition_count if entry.subtopology_id == _COUNTING else 0)
            for entry in tasks or ()
            for partition in entry.partitions
        )

    def _request(self) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._member_id, instance_id=self._instance_id
        )
        if self.owned is None:
            return request.replace(
                member_epoch=0,
                rebalance_timeout_ms=REBALANCE_MS,
                process_id=self._process_id,
                topology=topology_of(self._topic),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            )
        request = request.replace(member_epoch=self.generation)
        if self._reported == (self.owned, self._standby) and self._rng.random() < 0.7:
            return request
        return request.replace(
            active_tasks=self._listed(self.owned), standby_tasks=self._listed(self._standby), warmup_tasks=[]
        )

    async def _heartbeat(self, client: WireClient) -> None:
        sent_s = asyncio.get_running_loop().time()
        request = self._request()
        response = await client.call(request, self._rng.choice((0, 1)), StreamsGroupHeartbeatResponse)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self._refused(error)
            return
        if request.active_tasks is not None:
            self._reported = (self.owned or [], self._standby)
        self.generation = response.member_epoch
        self._history.in_epoch(self._member_id, response.member_epoch)
        self._history.renewed(self.name, sent_s + SESSION_MS / 1000)
        if response.active_tasks is not None:
            await self._follow(client, response)

    async def _follow(self, client: WireClient, response: StreamsGroupHeartbeatResponse) -> None:
        """Stops using what is not in the answer first; then looks where to begin in what is new."""
        now_s = asyncio.get_running_loop().time()
        active, standby = self._numbers(response.active_tasks), self._numbers(response.standby_tasks)
        if set(active) & set(standby):
            raise ViolationError(f"{self.name} has a task both active and as a standby: {active}, {standby}")
        self._stop(
            [task for task in self._tenures if task not in active],
            [task for task in self._standby if task not in standby],
        )
        added = [task for task in active if task not in self._tenures and task < self._partition_count]
        self.owned, self._standby = active, standby
        for task in active:
            self._tenures[task] = self._history.takes(self.name, task, now_s)
        for task in (*active, *standby):
            self._history.holds(self.name, self._process_id, task, now_s)
        for partition in added:
            await check_offset(client, self._history, self._topic, partition)

    def _stop(self, active: list[int], standby: list[int]) -> None:
        for task in active:
            self._history.stops(self.name, task)
            self._tenures.pop(task, None)
        for task in (*active, *standby):
            self._history.gives_back(self.name, self._process_id, task)

    async def _leave(self, client: WireClient) -> None:
        for_a_while = self._instance_id is not None and self._rng.random() < 0.7
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            instance_id=self._instance_id,
            member_epoch=-2 if for_a_while else -1,
        )
        self._drop()
        self._member_number += 1
        response = await client.call(request, 1, StreamsGroupHeartbeatResponse)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self._refused(error)
        await asyncio.sleep(self._rng.uniform(0, 3))

    def _drop(self) -> None:
        self._history.ends(self._member_id)
        self._stop(list(self._tenures), self._standby)
        self._standby = []
        self._reported = None
        self.owned = None
        self.generation = 0

    def _refused(self, error: ErrorCode) -> None:
        if error in LATER:
            raise RefusedError(error.name)
        if error in OTHER_MEMBER:  # its own former self, whose good-bye was lost: until that session ends
            self._drop()
            raise RefusedError(error.name)
        if error not in BEGIN_AGAIN:
            raise ViolationError(f"{self.name} was answered with {error.name}")
        self._drop()

    # -- offsets

    def _read_partitions(self) -> list[int]:
        return sorted(task for task in self._tenures if task < self._partition_count)

    async def _commit(self, client: WireClient) -> None:
        """One of its partitions. No one knows the outcome of a commit that is not answered."""
        partition = self._rng.choice(self._read_partitions())
        sent = self._history.sends(partition, self._tenures[partition])
        error = await commit_offset(
            client,
            self._commit_version,
            topic=self._topic,
            topic_id=self._context.topic_ids[self._topic],
            partition=partition,
            offset=sent.offset,
            member_id=self._member_id,
            instance_id=self._instance_id,
            member_epoch=self.generation,
        )
        if error is ErrorCode.NONE:
            self._history.acknowledged(sent)
        elif error in LATER:
            raise RefusedError(error.name)
        else:
            sent.is_refused = True
            if error is not ErrorCode.STALE_MEMBER_EPOCH:
                self._refused(error)
