"""Committing a group's offsets and asking for them: the right coordinator, retries, and what a refusal means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.client.errors import TimedOutError
from odradek.client.groups.coordinator import Coordinator
from odradek.client.groups.offset_requests import (
    COMMIT_WITH_NAMES,
    FETCH_WITH_NAMES,
    commit_errors,
    commit_request,
    fetch_request,
    read_fetched,
)
from odradek.client.groups.values import (
    NO_GENERATION,
    CommitFailedError,
    CommittedOffsets,
    GroupMetadata,
    OffsetAndMetadata,
)
from odradek.client.network.cluster import ClusterClient
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition

_FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_RETRIED: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})


class _RebalancingError(KafkaError):
    """Refused for as long as the group rebalances."""

    def __init__(self, group_id: str, code: ErrorCode) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r}: {code.meaning}")

    @property
    def retriable(self) -> bool:
        return True


WhoCommits = Callable[[], GroupMetadata]


class OffsetStore:
    """One group's. `who` says, at each attempt, in whose name; `fenced` hears when a member was refused for good."""

    def __init__(
        self,
        cluster: ClusterClient,
        coordinator: Coordinator,
        *,
        who: WhoCommits,
        fenced: Callable[[ErrorCode], None],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._who = who
        self._fenced = fenced
        self._turn = asyncio.Lock()
        """Commits take turns, so that a retried one does not overtake a later one."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_s: float,
        *,
        still_owned: Callable[[Iterable[TopicPartition]], bool] | None = None,
    ) -> None:
        """CommitFailedError when the partitions are, or may be, someone else's by now. `timeout_s` includes the wait for
        commits before it."""
        if not offsets:
            return
        deadline = self._cluster.clock.monotonic() + timeout_s

        async def attempt(left_s: float) -> None:
            if still_owned is not None and not still_owned(offsets):
                raise self._failed(ErrorCode.REBALANCE_IN_PROGRESS, "the partitions were given up meanwhile")
            await self._commit_once(offsets, left_s)

        try:
            async with asyncio.timeout(timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            raise TimedOutError(
                f"committing offsets did not succeed within {timeout_s:g} s: the commit before it has no answer yet",
                self._cluster.metadata.problem,
            ) from None
        try:
            left_s = round(deadline - self._cluster.clock.monotonic(), 3)
            await self._cluster.retrying("committing offsets", left_s, attempt)
        finally:
            self._turn.release()

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None, timeout_s: float, *, require_stable: bool
    ) -> CommittedOffsets:
        """The committed offsets, None where there is none; of all partitions with one if `partitions` is None."""
        wanted = None if partitions is None else list(partitions)
        if wanted == []:
            return {}

        async def attempt(left_s: float) -> CommittedOffsets:
            return await self._fetch_once(wanted, left_s, require_stable)

        metadatas: CommittedOffsets = await self._cluster.retrying(
            "asking for committed offsets", timeout_s, attempt
        )
        return metadatas

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        who = self._who()
        ids = self._ids(offsets)
        response = await self._coordinator.send(
            "OffsetCommit",
            commit_request(who, offsets, ids),
            timeout_s=timeout_s,
            at_most=None if len(ids) == len({tp.topic for tp in offsets}) else COMMIT_WITH_NAMES,
        )
        for tp, code in commit_errors(response, ids).items():
            self._coordinator.note(code)
            if code in _FENCED:
                if self._who().generation == who.generation:
                    self._fenced(code)
                raise self._failed(code)
            if code in _RETRIED and who.generation != NO_GENERATION:
                if code is ErrorCode.STALE_MEMBER_EPOCH:
                    self._fenced(code)
                raise _RebalancingError(who.group_id, code)
            raise KafkaError(code, f"{tp}: {code.meaning}")

    async def _fetch_once(
        self, wanted: list[TopicPartition] | None, timeout_s: float, require_stable: bool
    ) -> CommittedOffsets:
        who = self._who()
        ids = self._ids(wanted) if wanted is not None else {}
        by_names = wanted is None or len(ids) < len({tp.topic for tp in wanted})
        response = await self._coordinator.send(
            "OffsetFetch",
            lambda version: fetch_request(version, who, wanted, ids, require_stable),
            timeout_s=timeout_s,
            at_most=FETCH_WITH_NAMES if by_names else None,
        )
        code, results, errors = read_fetched(response, ids)
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self._fenced(code)
            raise _RebalancingError(who.group_id, code)
        self._coordinator.note(code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"group {who.group_id!r}: {code.meaning}")
        for tp, problem in errors.items():
            raise KafkaError(problem, f"{tp}: {problem.meaning}")
        for tp in wanted or ():
            if tp not in results:  # it is not known that nothing is committed there
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{tp} was not answered for")
        return results

    def _ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        image = self._cluster.image
        uuids = {tp.topic: image.topic_id(tp.topic) for tp in partitions}
        return {name: topic_id for name, topic_id in uuids.items() if topic_id != ZERO_UUID}

    def _failed(self, code: ErrorCode, reason: str | None = None) -> CommitFailedError:
        return CommitFailedError(
            code,
            f"group {self._who().group_id!r} refused the commit ({reason or code.meaning}): the partitions are another"
            " member's now; poll to take part again",
        )
