"""Simulated members of a classic group: they join, assign when they lead, commit, doze off, leave, and come back.

A member that dozes longer than its session is a zombie when it wakes: it commits in its old generation first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Final
from uuid import UUID

from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.groups.history import GroupHistory, SentCommit

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.protocol.messages.groups.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

GROUP: Final = "group"
_SESSION_MS: Final = 3_000
_STATIC_SESSION_MS: Final = 12_000
"""Static members outlast a rebalance that they miss."""
_REBALANCE_MS: Final = 4_000
_BY_ID_SINCE: Final = 10
_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NEW_ID: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_JOIN_AGAIN: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}
)


class GroupMember:
    """`run` until it is over. `owned` is what it was assigned in `generation`; None while it has to join."""

    def __init__(
        self,
        context: ClientContext,
        history: GroupHistory,
        rng: Random,
        *,
        name: str,
        topic: str,
        partition_count: int,
        is_static: bool,
        retires: bool,
    ) -> None:
        self._context = context
        self._history = history
        self._rng = rng
        self.name = name
        self._topic = topic
        self._partition_count = partition_count
        self._instance_id = name if is_static else None
        self._join_version = rng.choice((5, 7, 9) if is_static else (0, 2, 3, 4, 5, 9))
        self._commit_version = rng.choice((7, 9, 10) if is_static else (2, 5, 8, 10))
        self._retires = retires
        self._member_id = ""
        self.is_gone = False
        """It retired without a word."""
        self.generation = -1
        self.owned: list[int] | None = None

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 5))))

        def is_done() -> bool:
            return is_over() or self.is_gone

        async def session(client: WireClient) -> None:
            await find_coordinator(client)
            while not is_done():
                await self._step(client, is_calm)

        await self._context.stay_connected(session, is_done)

    async def _step(self, client: WireClient, is_calm: Callable[[], bool]) -> None:
        rng = self._rng
        if self.owned is None:
            await self._join(client, dozes=not is_calm() and rng.random() < 0.1)
            return
        await asyncio.sleep(rng.uniform(0.02, 0.4))
        if self._retires and rng.random() < 0.03:
            self.is_gone = True
            self.owned = None
        elif not is_calm() and rng.random() < 0.04:
            await asyncio.sleep(rng.uniform(1.0, 10.0))
            await self._commit(client)
        elif not is_calm() and rng.random() < 0.03:
            await self._leave(client)
        elif rng.random() < 0.7:
            await self._commit(client)
        else:
            await self._heartbeat(client)

    # -- membership

    async def _join(self, client: WireClient, *, dozes: bool) -> None:
        """`dozes`: it takes so long to ask for its assignment that the others may go on without it."""
        newest = self._history.newest_generation
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=_STATIC_SESSION_MS if self._instance_id else _SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS if self._join_version else -1,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="simulated", metadata=self.name.encode())],
        )
        response = await client.call(request, self._join_version, JoinGroupResponse)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        if not self._accepts(response.error_code, "JoinGroup"):
            return
        self._member_id, self.generation = response.member_id, response.generation_id
        leads = response.leader == response.member_id and not response.skip_assignment
        if dozes:
            await asyncio.sleep(self._rng.uniform(2.0, 8.0))
        await self._sync(client, self._assignments(response.members) if leads else [], newest)

    def _assignments(self, members: list[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignment]:
        """Every partition to someone; who gets which moves with the generation."""
        ids = [
            member.member_id for member in sorted(members, key=lambda partition_data: partition_data.metadata)
        ]
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=bytes(
                    partition
                    for partition in range(self._partition_count)
                    if (partition + self.generation) % len(ids) == place
                ),
            )
            for place, member_id in enumerate(ids)
        ]

    async def _sync(
        self, client: WireClient, assignments: list[SyncGroupRequestAssignment], newest: int
    ) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            assignments=assignments,
        )
        response = await client.call(request, 3, SyncGroupResponse)
        if self._accepts(response.error_code, "SyncGroup"):
            partitions = list(response.assignment)
            self._history.assigned(self.name, self.generation, partitions, newest)
            for partition in partitions:
                await check_offset(client, self._history, self._topic, partition)
            self.owned = partitions

    async def _heartbeat(self, client: WireClient) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        response = await client.call(request, 3, HeartbeatResponse)
        self._accepts(response.error_code, "Heartbeat")

    async def _leave(self, client: WireClient) -> None:
        members = [MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)]
        self.owned = None
        response = await client.call(
            LeaveGroupRequest(group_id=GROUP, members=members), 3, LeaveGroupResponse
        )
        if self._accepts(response.error_code, "LeaveGroup"):
            self._accepts(response.members[0].error_code, "LeaveGroup")
        self._member_id = ""
        await asyncio.sleep(self._rng.uniform(0, 3))

    def _accepts(self, code: int, what: str) -> bool:
        """True for success; else what the error means for this member."""
        error = ErrorCode.of(code)
        if error is ErrorCode.NONE:
            return True
        if error in _LATER:
            raise RefusedError(error.name)
        if error not in _NEW_ID and error not in _JOIN_AGAIN:
            raise ViolationError(f"{what} of {self.name} was answered with {error.name}")
        self.owned = None
        if error in _NEW_ID:
            self._member_id = ""
        return False

    # -- offsets

    async def _commit(self, client: WireClient) -> None:
        """One of its partitions. No one knows the outcome of a commit that is not answered."""
        if not self.owned:
            await self._heartbeat(client)
            return
        sent = self._history.sends(self._rng.choice(self.owned), self.generation)
        by_id = self._commit_version >= _BY_ID_SINCE
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[_what(sent, self._topic, self._context.topic_ids[self._topic] if by_id else None)],
        )
        response = await client.call(request, self._commit_version, OffsetCommitResponse)
        code = response.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self._history.acknowledged(sent)
        elif ErrorCode.of(code) not in _LATER:
            sent.is_refused = True
        self._accepts(code, "OffsetCommit")


def _what(sent: SentCommit, topic: str, topic_id: UUID | None) -> OffsetCommitRequestTopic:
    """Returns a commit's topic, with its id if it has one, else with its name."""
    partition = OffsetCommitRequestPartition(
        partition_index=sent.partition, committed_offset=sent.offset, committed_metadata=""
    )
    return OffsetCommitRequestTopic(
        name="" if topic_id else topic, topic_id=topic_id or UUID(int=0), partitions=[partition]
    )


async def commit_alone(context: ClientContext, history: GroupHistory, topic: str) -> None:
    """Commits without being a member, until it is acknowledged: a group with offsets is never deleted here.

    One without may be, whenever it is empty, and then its generations begin again.
    """
    while history.latest(0) is None:
        try:
            with closing(await context.connect()) as client:
                await find_coordinator(client)
                sent = history.sends(0, -1)
                request = OffsetCommitRequest(group_id=GROUP, topics=[_what(sent, topic, None)])
                response = await client.call(request, 2, OffsetCommitResponse)
                if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    history.acknowledged(sent)
        except (OSError, RefusedError):
            await context.pause()


async def find_coordinator(client: WireClient) -> None:
    response = await client.call(FindCoordinatorRequest(key=GROUP), 2, FindCoordinatorResponse)
    if response.error_code != ErrorCode.NONE:
        raise RefusedError(ErrorCode.of(response.error_code).name)


async def check_offset(client: WireClient, history: GroupHistory, topic: str, partition: int) -> None:
    """Fetch the committed offset, and have the history judge it."""
    latest = history.latest(partition)
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])
    response = await client.call(request, 9, OffsetFetchResponse)
    (group,) = response.groups
    if group.error_code != ErrorCode.NONE:
        raise RefusedError(ErrorCode.of(group.error_code).name)
    history.found(partition, group.topics[0].partitions[0].committed_offset, latest)
