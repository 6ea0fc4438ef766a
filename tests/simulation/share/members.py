"""Simulated members of a share group (KIP-932): they acquire records, and accept, give back, reject or forget them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

from tests.simulation.broker.clients import ClientContext, check_code
from tests.simulation.groups.members import GROUP, find_coordinator
from tests.simulation.share.history import Acknowledgement, ShareHistory

from odradek.model.errors import ErrorCode
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.protocol.messages.share import share_acknowledge as acknowledging
from odradek.protocol.messages.share import share_fetch as fetching
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.testing.sim.wire_client import WireClient

_BEGIN_AGAIN: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
_NEW_SESSION: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_MAY_COME: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
    }
)
"""What a member may hear whose locks are over: it does not know whether its word counts. INVALID_REQUEST: a broker that lost
its memory knows nothing of what it gave."""
_WAIT_MS: Final = 300


class ShareMember:
    """`run` until it is over."""

    def __init__(
        self, context: ClientContext, history: ShareHistory, rng: Random, *, name: str, topic: str
    ) -> None:
        self._context = context
        self._history = history
        self._rng = rng
        self.name = name
        self._topic = topic
        self._version = rng.choice((1, 2))
        self._member_id = base64.urlsafe_b64encode(UUID(int=rng.getrandbits(128)).bytes).decode().rstrip("=")
        self._epoch = 0
        self._session_epoch = 0
        self._assigned: set[int] = set()
        self._last_assigned: set[int] = set()
        self._said: list[Acknowledgement] = []
        """What it will say of records that it has."""

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 3))))

        async def session(client: WireClient) -> None:
            self._end_session()
            await find_coordinator(client)
            while not is_over():
                await self._step(client, is_calm)

        await self._context.stay_connected(session, is_over)

    async def _step(self, client: WireClient, is_calm: Callable[[], bool]) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0.01, 0.2))
        if self._epoch == 0 or rng.random() < 0.3:
            await self._heartbeat(client)
        elif self._said and rng.random() < 0.6:
            await self._acknowledge(client)
        elif not is_calm() and rng.random() < 0.03:
            await asyncio.sleep(rng.uniform(0.5, 6.0))
        elif self._assigned or self._last_assigned:
            await self._fetch(client, is_calm=is_calm())

    def _end_session(self) -> None:
        self._session_epoch = 0
        self._last_assigned = set()
        self._said = []

    async def _heartbeat(self, client: WireClient) -> None:
        joins = self._epoch == 0
        response = await client.call(
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self._member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=[self._topic] if joins else None,
            ),
            1,
            ShareGroupHeartbeatResponse,
        )
        if ErrorCode.of(response.error_code) in _BEGIN_AGAIN:
            self._epoch = 0
            return
        check_code(response.error_code, f"the heartbeat of {self.name}")
        self._epoch = response.member_epoch
        if response.assignment is not None:
            topic_id = self._context.topic_ids[self._topic]
            self._assigned = {
                partition
                for topic_partition in response.assignment.topic_partitions
                if topic_partition.topic_id == topic_id
                for partition in topic_partition.partitions
            }

    # -- records

    async def _fetch(self, client: WireClient, *, is_calm: bool) -> None:
        history = self._history
        opens = self._session_epoch == 0
        said = [] if opens or self._rng.random() < 0.5 else self._taken()
        for reply in said:
            history.says(reply)
        request = self._fetch_request(said)
        asked_at = history.asks()
        history.unanswered += 1
        response = await client.call(request, self._version, fetching.ShareFetchResponse)
        history.unanswered -= 1
        if self._is_refused(response.error_code, "a ShareFetch"):
            return
        self._session_epoch += 1
        self._last_assigned = set(self._assigned)
        for topic in response.responses:
            for data in topic.partitions:
                self._hear(said, data.partition_index, data.acknowledge_error_code)
                self._check_partition(data.error_code)
                for got in data.acquired_records:
                    self._take(data.partition_index, got, asked_at, is_calm=is_calm)

    def _take(self, partition: int, got: fetching.AcquiredRecords, asked_at: int, *, is_calm: bool) -> None:
        for offset in range(got.first_offset, got.last_offset + 1):
            self._history.delivered((partition, offset), got.delivery_count, asked_at)
        first = got.first_offset
        while first <= got.last_offset:
            last = min(first + self._rng.randrange(4), got.last_offset)
            kind = self._decision(is_calm=is_calm)
            if kind is not None:
                self._said.append(Acknowledgement(partition, first, last, kind))
            first = last + 1

    def _decision(self, *, is_calm: bool) -> AcknowledgeType | None:
        """None: it forgets them."""
        if is_calm:
            return AcknowledgeType.ACCEPT
        return self._rng.choices(
            (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, None), (60, 22, 6, 12)
        )[0]

    def _fetch_request(self, said: list[Acknowledgement]) -> fetching.ShareFetchRequest:
        topic_id = self._context.topic_ids[self._topic]
        wanted = sorted(self._assigned | {text.partition for text in said})
        gone = sorted(self._last_assigned - self._assigned)
        return fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self._rng.choice((1, 5, 50)),
            batch_size=10,
            topics=[
                fetching.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        fetching.FetchPartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                fetching.AcknowledgementBatch(
                                    first_offset=text.first_offset,
                                    last_offset=text.last_offset,
                                    acknowledge_types=[text.kind],
                                )
                                for text in said
                                if text.partition == partition
                            ],
                        )
                        for partition in wanted
                    ],
                )
            ],
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id=topic_id, partitions=gone)]
            if gone
            else [],
        )

    async def _acknowledge(self, client: WireClient) -> None:
        said = self._taken()
        for text in said:
            self._history.says(text)
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=self._context.topic_ids[self._topic],
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                acknowledging.AcknowledgementBatch(
                                    first_offset=line.first_offset,
                                    last_offset=line.last_offset,
                                    acknowledge_types=[line.kind],
                                )
                                for line in said
                                if line.partition == partition
                            ],
                        )
                        for partition in sorted({line.partition for line in said})
                    ],
                )
            ],
        )
        response = await client.call(request, self._version, acknowledging.ShareAcknowledgeResponse)
        if self._is_refused(response.error_code, "a ShareAcknowledge"):
            return
        self._session_epoch += 1
        for topic in response.responses:
            for data in topic.partitions:
                self._hear(said, data.partition_index, data.error_code)

    def _taken(self) -> list[Acknowledgement]:
        """What is to be said, ascending and once."""
        said, self._said = sorted(self._said), []
        return said

    def _hear(self, said: list[Acknowledgement], partition: int, code: int) -> None:
        error = ErrorCode.of(code)
        if error is ErrorCode.NONE:
            for text in said:
                if text.partition == partition:
                    self._history.answered(text)
        elif error not in _MAY_COME:
            self._check_retriable(code)

    def _check_partition(self, code: int) -> None:
        if ErrorCode.of(code) not in _MAY_COME:
            self._check_retriable(code)

    def _check_retriable(self, code: int) -> None:
        """What is merely bad luck leaves the session as it is; nothing else may be said of a partition."""
        if not ErrorCode.of(code).retriable:
            check_code(code, f"a partition of {self.name}")

    def _is_refused(self, code: int, what: str) -> bool:
        if ErrorCode.of(code) in _NEW_SESSION:
            self._end_session()
            return True
        check_code(code, f"{what} of {self.name}")
        return False
