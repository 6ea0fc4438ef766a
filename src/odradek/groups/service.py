"""Groups and offsets as the broker's handlers ask for them: each request to the shard that keeps its group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.groups.classic import operations as classic
from odradek.groups.consumer.kind import ConsumerGroups
from odradek.groups.consumer.regex import MatchingRequired
from odradek.groups.descriptions import Described, Listed, describe_classic, groups_of, listed
from odradek.groups.offsets import committing, fetching, removing
from odradek.groups.offsets.committing import CommitRecords, CommitRequest, Verdicts
from odradek.groups.offsets.fetching import FetchedOffset, Wanted
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.offset_table import PartitionName
from odradek.groups.share.group import StateTopic
from odradek.groups.share.kind import ShareGroups
from odradek.groups.streams.heartbeats import StreamsHeartbeat
from odradek.groups.streams.kind import StreamsGroups
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_describe import DescribedGroup
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.groups.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from odradek.protocol.messages.groups.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.messages.share.share_group_describe import DescribedGroup as DescribedShareGroup
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.runtime.ports import Offload
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import Turn
from odradek.shards import Shard, Shards, Ticket, WaitingRequest, decided
from odradek.telemetry import events

_log = events.caused_by_peers("groups")

R = TypeVar("R")

_TOO_LARGE: Final = frozenset(
    {ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}
)


def commit_refusal(error: KafkaError) -> KafkaError:
    if error.code in _TOO_LARGE:
        return KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message)
    return error


class GroupService:
    """The group coordinator's operations, which a broker's handlers call. Used on the event loop only.

    Refusals are raised as KafkaError, COORDINATOR_LOAD_IN_PROGRESS and NOT_COORDINATOR among them; refusals of JoinGroup and
    SyncGroup that concern a member come as responses."""

    def __init__(
        self,
        shards: Shards[GroupMachine],
        offload: Offload,
        *,
        consumer: ConsumerGroups,
        share: ShareGroups,
        streams: StreamsGroups,
    ) -> None:
        self.shards: Final = shards
        self._consumer = consumer
        self._share = share
        self._streams = streams
        self._offload = offload

    # -- the classic protocol

    def join(
        self, request: JoinGroupRequest, caller: Caller
    ) -> PromptFuture[JoinGroupResponse] | Awaitable[JoinGroupResponse]:
        """Answers when the generation is formed, which may take the group's rebalance timeout. Refusals are raised at once, or
        when it is awaited."""
        try:
            return self._join(request, caller)
        except MatchingRequired:  # by a group of the consumer protocol that a classic member joins
            return self._with_matches(lambda: self._join(request, caller))

    def _join(self, request: JoinGroupRequest, caller: Caller) -> PromptFuture[JoinGroupResponse]:
        return self._shard(request.group_id).execute_deferred(
            lambda machine, now, ticket: classic.join(
                machine, now, request=request, caller=caller, ticket=ticket
            )
        )

    def try_join(self, request: JoinGroupRequest, caller: Caller, ticket: Ticket[JoinGroupResponse]) -> bool:
        """Does what `join` does, for a ticket of the caller. Returns False, with nothing done, where `join` would match
        expressions first."""
        decide = partial(classic.join, request=request, caller=caller, ticket=ticket)
        try:
            self._shard(request.group_id).begin(decide)
        except MatchingRequired:
            return False
        return True

    def begin_sync(
        self, request: SyncGroupRequest, caller: Caller, ticket: Ticket[SyncGroupResponse]
    ) -> None:
        """Does what `sync` does, for a ticket of the caller."""
        decide = partial(classic.sync, request=request, caller=caller, ticket=ticket)
        self._shard(request.group_id).begin(decide)

    def sync(self, request: SyncGroupRequest, caller: Caller) -> PromptFuture[SyncGroupResponse]:
        """Answers when the leader's assignment is durable."""
        return self._shard(request.group_id).execute_deferred(
            lambda machine, now, ticket: classic.sync(
                machine, now, request=request, caller=caller, ticket=ticket
            )
        )

    def heartbeat(self, request: HeartbeatRequest) -> PromptFuture[HeartbeatResponse]:
        return self._shard(request.group_id).execute(partial(classic.heartbeat, request=request))

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        return await self._shard(request.group_id).execute(partial(classic.leave, request=request))

    # -- the consumer protocol (KIP-848)

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        """Handles a heartbeat of the consumer protocol; see `consumer.heartbeats` for what is refused."""
        decide = partial(self._consumer.heartbeat, request=request, caller=caller)
        return await self._with_matches(lambda: self._shard(request.group_id).execute(decide))

    async def describe_consumer(self, group_id: str) -> DescribedGroup:
        """Describes a group. Raises GROUP_ID_NOT_FOUND for groups of other kinds too."""
        return await self._shard(group_id).execute(partial(self._consumer.describe, group_id=group_id))

    # -- share groups (KIP-932)

    async def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        return await self._shard(request.group_id).execute(
            partial(self._share.heartbeat, request=request, caller=caller)
        )

    async def describe_share(self, group_id: str) -> DescribedShareGroup:
        """Describes a group. Raises GROUP_ID_NOT_FOUND for groups of other kinds too."""
        return await self._shard(group_id).execute(partial(self._share.describe, group_id=group_id))

    async def share_topics(self, group_id: str) -> Mapping[UUID, StateTopic]:
        """Returns the partitions that the group has begun to read; none for what is no share group."""
        return await self._shard(group_id).execute(partial(self._share.state_topics, group_id=group_id))

    async def check_share_unused(self, group_id: str, *, may_be_new: bool = False) -> None:
        """Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        await self._shard(group_id).execute(
            partial(self._share.check_unused, group_id=group_id, may_be_new=may_be_new)
        )

    async def begin_share_topics(self, group_id: str, topics: Mapping[UUID, StateTopic]) -> None:
        await self._shard(group_id).execute(
            partial(self._share.begin_topics, group_id=group_id, topics=topics)
        )

    async def end_share_topics(self, group_id: str, topic_ids: frozenset[UUID]) -> None:
        await self._shard(group_id).execute(
            partial(self._share.end_topics, group_id=group_id, topic_ids=topic_ids)
        )

    # -- streams groups (KIP-1071)

    async def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller
    ) -> StreamsHeartbeat:
        """Handles a heartbeat of the streams protocol; the caller creates the internal topics that are missing."""
        return await self._shard(request.group_id).execute(
            partial(self._streams.heartbeat, request=request, caller=caller)
        )

    async def describe_streams(self, group_id: str) -> DescribedStreamsGroup:
        """Describes a group. Raises GROUP_ID_NOT_FOUND for groups of other kinds too."""
        return await self._shard(group_id).execute(partial(self._streams.describe, group_id=group_id))

    async def note_streams_topics(self, group_id: str, error: str) -> None:
        """Notes why the internal topics of a streams group could not be created; empty when they were."""
        await self._shard(group_id).execute(
            partial(self._streams.note_creation, group_id=group_id, error=error)
        )

    # -- offsets

    def commit(self, request: CommitRequest, prepared: CommitRecords | None = None) -> PromptFuture[Verdicts]:
        """Commits offsets; a transaction's offsets are appended when this returns. Errors for all of them are
        raised, or are in the future: with the code and text of `commit_refusal`, which clients know."""
        try:
            return self._shard(request.group_id).execute(
                partial(committing.commit, request=request, prepared=prepared)
            )
        except KafkaError as error:
            if error.code not in _TOO_LARGE:
                raise  # an error that is its own cause is a cycle, with all frames that it passed
            raise commit_refusal(error) from error

    def commit_for(self, request: CommitRequest, waiting: WaitingRequest[Verdicts]) -> None:
        """Does what `commit` does, for a request that waits; the shard's errors stay as they are."""
        self._shard(request.group_id).execute_for(partial(committing.commit, request=request), waiting)

    async def fetch(
        self,
        group_id: str,
        wanted: Wanted | None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> dict[PartitionName, FetchedOffset]:
        return await self._shard(group_id).execute(
            partial(
                fetching.fetch,
                group_id=group_id,
                member_id=member_id,
                member_epoch=member_epoch,
                wanted=wanted,
                require_stable=require_stable,
            )
        )

    async def delete_offsets(
        self, group_id: str, partition_names: Iterable[PartitionName]
    ) -> dict[PartitionName, ErrorCode]:
        return await self._shard(group_id).execute(
            partial(removing.delete_offsets, group_id=group_id, partition_names=partition_names)
        )

    async def topics_deleted(self, topics: frozenset[str]) -> None:
        """Forgets the offsets of deleted topics. A shard that is not available now does so when it cleans up.

        It waits for no other broker: the caller may be about to learn that one is dead.
        """
        for _, shard in self.shards:
            try:
                group_ids = decided(shard, removing.groups_with_offsets)
                while group_ids:
                    await asyncio.sleep(0)
                    group_ids = decided(
                        shard, partial(removing.delete_topics, topics=topics, group_ids=group_ids)
                    )
            except KafkaError as error:
                _log.info("offsets_of_deleted_topics_kept", topics=len(topics), reason=error.message)

    # -- administration

    async def delete_group(self, group_id: str) -> None:
        shard = self._shard(group_id)
        while not await shard.execute(partial(removing.delete_group, group_id=group_id)):
            pass

    async def describe_classic(self, group_id: str) -> Described:
        """Describes a classic group. Raises GROUP_ID_NOT_FOUND for groups that do not exist, and for groups
        of the newer protocols."""
        return await self._shard(group_id).execute(partial(describe_classic, group_id=group_id))

    async def list_all(self, turn: Turn) -> list[Listed]:
        """Returns the groups of all shards that this broker coordinates. COORDINATOR_LOAD_IN_PROGRESS while one of them is
        loading."""
        groups: list[Listed] = []
        for _, shard in self.shards:
            of_shard = await shard.execute(groups_of)
            groups += await turn.map(listed, of_shard)
        return groups

    async def _with_matches(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Repeats an attempt until the topics are known that it wants to match with expressions."""
        while True:
            try:
                return await attempt()
            except MatchingRequired as required:
                await self._consumer.patterns.learn(self._offload, required)

    def _shard(self, group_id: str) -> Shard[GroupMachine]:
        return self.shards.for_key(group_id)
