"""Simulated members of a consumer group (KIP-848): they send heartbeats, give back before they say so, commit, doze off, leave.

A member that dozes longer than its session is a zombie when it wakes: it commits in its old epoch first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.groups.consumer_group_history import ConsumerGroupHistory
from tests.simulation.groups.epoch_members import (
    BEGIN_AGAIN,
    LATER,
    OTHER_MEMBER,
    REBALANCE_MS,
    SESSION_MS,
    commit_offset,
)
from tests.simulation.groups.members import GROUP, check_offset, find_coordinator

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient


class ConsumerGroupMember:
    """`run` until it is over. `owned` is what it uses, in `generation`, its epoch; None while it is not a member."""

    def __init__(
        self,
        context: ClientContext,
        history: ConsumerGroupHistory,
        rng: Random,
        *,
        name: str,
        topic: str,
        is_static: bool,
        retires: bool,
    ) -> None:
        self._context = context
        self._history = history
        self._rng = rng
        self.name = name
        self._topic = topic
        self._instance_id = name if is_static else None
        self._by_regex = rng.random() < 0.3
        self._commit_version = rng.choice((9, 10))
        self._retires = retires
        self._member_number = 0
        self._says_all = True
        self._tenures: dict[int, int] = {}
        """Partition -> tenure, of what it uses, or used when it dozed off."""
        self.is_gone = False
        self.generation = 0
        self.owned: list[int] | None = None

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 5))))

        def is_done() -> bool:
            return is_over() or self.is_gone

        async def session(client: WireClient) -> None:
            self._says_all = True
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
        elif rng.random() < 0.5 and self.owned:
            await self._commit(client)
        else:
            await self._heartbeat(client)

    async def _doze(self, client: WireClient) -> None:
        """It uses nothing while it sleeps, and commits what it had before it hears the outcome."""
        tenures = dict(self._tenures)
        for partition in list(self._tenures):
            self._history.stops(self.name, partition)
        await asyncio.sleep(self._rng.uniform(1.0, 10.0))
        self._tenures = tenures
        if self.owned:
            await self._commit(client)
        self._says_all = True
        await self._heartbeat(client)

    # -- membership

    @property
    def _member_id(self) -> str:
        return f"{self.name}-{self._member_number}"

    def _topic_id(self) -> UUID:
        return self._context.topic_ids[self._topic]

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        is_joining = self.owned is None
        owned = [] if not self.owned else [TopicPartitions(topic_id=self._topic_id(), partitions=self.owned)]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=0 if is_joining else self.generation,
            instance_id=self._instance_id,
            topic_partitions=owned,
        )
        if is_joining or self._says_all:
            names = [] if self._by_regex else [self._topic]
            request = request.replace(
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=names,
                subscribed_topic_regex=self._topic[:-1] + "." if self._by_regex else "",
            )
        return request

    async def _heartbeat(self, client: WireClient) -> None:
        sent_s = asyncio.get_running_loop().time()
        response = await client.call(self._request(), 1, ConsumerGroupHeartbeatResponse)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self._refused(error)
            return
        self._says_all = False
        self.generation = response.member_epoch
        self._history.renewed(self.name, sent_s + SESSION_MS / 1000)
        if response.assignment is not None:
            await self._take(
                client,
                sorted(n for partition in response.assignment.topic_partitions for n in partition.partitions),
            )

    async def _take(self, client: WireClient, answers: list[int]) -> None:
        """Stop using what is not in it first; then look where to begin in what is new."""
        now_s = asyncio.get_running_loop().time()
        for partition in [tenure for tenure in self._tenures if tenure not in answers]:
            self._history.stops(self.name, partition)
            del self._tenures[partition]
        added = [partition for partition in answers if partition not in self._tenures]
        self.owned = answers
        for partition in answers:
            self._tenures[partition] = self._history.takes(self.name, partition, now_s)
        for partition in added:
            await check_offset(client, self._history, self._topic, partition)

    async def _leave(self, client: WireClient) -> None:
        for_a_while = self._instance_id is not None and self._rng.random() < 0.7
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            instance_id=self._instance_id,
            member_epoch=-2 if for_a_while else -1,
        )
        self._drop()
        self._member_number += 1
        response = await client.call(request, 1, ConsumerGroupHeartbeatResponse)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self._refused(error)
        await asyncio.sleep(self._rng.uniform(0, 3))

    def _drop(self) -> None:
        for partition in self._tenures:
            self._history.stops(self.name, partition)
        self._tenures = {}
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

    async def _commit(self, client: WireClient) -> None:
        """One of its partitions. No one knows the outcome of a commit that is not answered."""
        partition = self._rng.choice(sorted(self._tenures) or [0])
        sent = self._history.sends(partition, self._tenures.get(partition, -1))
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
