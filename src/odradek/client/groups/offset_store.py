"""Committing a group's offsets and asking for them: the right coordinator, retries, and what a refusal means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

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
from odradek.client.network.errors import TimedOutError
from odradek.client.network.metadata_snapshot import TopicSnapshot
from odradek.client.network.metrics import Measure
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.protocol import api_by_name
from odradek.telemetry import events

_log = events.get("client")

_FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_TOPIC_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_MISSES_MIN: Final = 2
"""The number of responses without the topic after which it counts as deleted: a single broker may not know a
new topic yet."""
_CHECK_EVERY_S: Final = 1.0
_COMMIT: Final = api_by_name("OffsetCommit")
_FETCH: Final = api_by_name("OffsetFetch")
_RETRIED: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})


class _RebalancingError(KafkaError):
    """The error of a commit or a fetch of offsets while the group rebalances. It is retriable."""

    def __init__(self, group_id: str, code: ErrorCode) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r}: {code.meaning}")

    @property
    def retriable(self) -> bool:
        return True


WhoCommits = Callable[[], GroupMetadata]


@dataclass(slots=True, kw_only=True)
class _Commit:
    """A commit under way."""

    pending: dict[TopicPartition, OffsetAndMetadata]
    explicit: bool
    """The caller named the offsets: one of a topic that does not exist is an error."""
    missed: dict[TopicPartition, int] = field(default_factory=dict)
    """The number of times that a broker did not have the partition, by partition."""


class OffsetStore:
    """The offsets of one group. `who` returns the committer at each attempt; `fenced` is called when a member is refused for
    good."""

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
        self._checked_at = float("-inf")
        self.commit_latency: Final = Measure(cluster.clock)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_s: float,
        *,
        still_owned: Callable[[Iterable[TopicPartition]], bool] | None = None,
        explicit: bool = True,
    ) -> None:
        """Raises CommitFailedError when the partitions are, or may be, another member's. `timeout_s` includes the wait for
        commits before it.

        An offset whose topic was deleted is left out, with a warning; without a topic's id only if it is not
        `explicit`.
        """
        if not offsets:
            return
        commit = _Commit(pending=dict(offsets), explicit=explicit)
        deadline = self._cluster.clock.monotonic() + timeout_s

        async def attempt(left_s: float) -> None:
            if still_owned is not None and not still_owned(commit.pending):
                raise self._failed(ErrorCode.REBALANCE_IN_PROGRESS, "the partitions were given up meanwhile")
            await self._commit_once(commit, left_s)

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
        """Returns the committed offsets, None where there is none; of all partitions with one if `partitions` is None."""
        wanted = None if partitions is None else list(partitions)
        return await self._fetch(wanted, timeout_s, require_stable=require_stable, by_ids=False)

    async def fetch_by_ids(
        self, partitions: Iterable[TopicPartition] | None, timeout_s: float, *, require_stable: bool
    ) -> CommittedOffsets:
        """Fetches offsets of the topics that have these names now, where the coordinator takes ids.

        A coordinator that is asked by name may answer with what was committed for a topic that was deleted since. An offset
        of a topic whose name no topic has is still in the answer.
        """
        deadline = self._cluster.clock.monotonic() + timeout_s
        wanted = list(
            partitions
            if partitions is not None
            else await self.fetch(None, timeout_s, require_stable=require_stable)
        )
        left_s = deadline - self._cluster.clock.monotonic()
        committed = await self._fetch(wanted, left_s, require_stable=require_stable, by_ids=True)
        if partitions is not None:
            return committed
        return {tp: offset for tp, offset in committed.items() if offset is not None}

    async def _fetch(
        self,
        wanted: list[TopicPartition] | None,
        timeout_s: float,
        *,
        require_stable: bool,
        by_ids: bool,
    ) -> CommittedOffsets:
        committed: CommittedOffsets = {}
        if wanted == []:
            return {}
        missed: dict[TopicPartition, int] = {}

        async def attempt(left_s: float) -> None:
            left = None if wanted is None else [tp for tp in wanted if tp not in committed]
            ids = await self._ids_now(left) if by_ids and left is not None else {}
            problems: dict[TopicPartition, KafkaError] = {}
            for some in _with_and_without(left, ids):
                offsets, refused = await self._fetch_once(some, left_s, require_stable, ids)
                committed.update(offsets)
                problems |= refused
            doubtful = [tp for tp, problem in problems.items() if problem.code in _TOPIC_UNKNOWN]
            if doubtful:
                topics = await self._cluster.metadata.describe({tp.topic for tp in doubtful})
                committed.update({tp: None for tp in doubtful if _is_missing(tp, topics, missed)})
            for tp, problem in problems.items():
                if tp not in committed:
                    raise problem

        await self._cluster.retrying("asking for committed offsets", timeout_s, attempt)
        return committed

    async def _ids_now(self, partitions: Iterable[TopicPartition]) -> Mapping[str, UUID]:
        """Returns the ids of topics, as a broker knows them now; of none where the coordinator takes names alone."""
        connection = await self._coordinator.connection()
        if connection.version_of(_FETCH) <= FETCH_WITH_NAMES:
            return {}
        topics = await self._cluster.metadata.describe({tp.topic for tp in partitions})
        ids = {name: topic.topic_id for name, topic in topics.items() if topic is not None}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    async def fetch_some(
        self, partitions: Iterable[TopicPartition], timeout_s: float, *, require_stable: bool
    ) -> tuple[CommittedOffsets, dict[TopicPartition, KafkaError]]:
        """Returns the committed offsets, and what was refused: a partition that is in trouble keeps no other waiting."""
        wanted = list(partitions)

        async def attempt(left_s: float) -> tuple[CommittedOffsets, dict[TopicPartition, KafkaError]]:
            return await self._fetch_once(wanted, left_s, require_stable, {})

        outcome: tuple[CommittedOffsets, dict[TopicPartition, KafkaError]] = await self._cluster.retrying(
            "asking for committed offsets", timeout_s, attempt
        )
        return outcome

    async def _commit_once(self, commit: _Commit, timeout_s: float) -> None:
        who = self._who()
        ids = self._ids(commit.pending)
        all_ids = all(
            committed.topic_id != ZERO_UUID or tp.topic in ids for tp, committed in commit.pending.items()
        )
        at_most = None if all_ids else COMMIT_WITH_NAMES
        connection = await self._coordinator.connection()
        by_names = connection.version_of(_COMMIT, at_most=at_most) <= COMMIT_WITH_NAMES
        await self._leave_out(commit, self._suspects(commit, ids, by_names=by_names))
        if not commit.pending:
            return
        ids |= {
            tp.topic: known.topic_id for tp, known in commit.pending.items() if known.topic_id != ZERO_UUID
        }
        sent_at = self._cluster.clock.monotonic()
        response = await self._coordinator.send(
            "OffsetCommit",
            commit_request(who, commit.pending, ids),
            timeout_s=timeout_s,
            at_most=at_most,
        )
        self.commit_latency.add(self._cluster.clock.monotonic() - sent_at)
        refused = commit_errors(response, ids)
        commit.pending = {tp: offset for tp, offset in commit.pending.items() if tp in refused}
        for code in refused.values():
            self._check_membership(code, who)
        doubtful = [tp for tp, code in refused.items() if code in _TOPIC_UNKNOWN and tp in commit.pending]
        await self._leave_out(commit, doubtful, ids)
        for tp, code in refused.items():
            if tp in commit.pending:
                raise KafkaError(code, f"{tp}: {code.meaning}")

    def _check_membership(self, code: ErrorCode, who: GroupMetadata) -> None:
        """Raise an error code that is about the member, and not about one partition."""
        self._coordinator.note(code)
        if code in _FENCED:
            if self._who().generation == who.generation:
                self._fenced(code)
            raise self._failed(code)
        if code in _RETRIED and who.generation != NO_GENERATION:
            if code is ErrorCode.STALE_MEMBER_EPOCH:
                self._fenced(code)
            raise _RebalancingError(who.group_id, code)

    def _suspects(self, commit: _Commit, ids: Mapping[str, UUID], *, by_names: bool) -> list[TopicPartition]:
        """Returns the offsets that may belong to a topic whose name another topic has taken.

        A broker that takes names cannot tell the two apart: it is asked, at most once a second, which topic it has.
        """
        known = {tp: offset.topic_id for tp, offset in commit.pending.items() if offset.topic_id != ZERO_UUID}
        now = self._cluster.clock.monotonic()
        if by_names and known and now - self._checked_at >= _CHECK_EVERY_S:
            self._checked_at = now
            return list(known)
        last = {tp.topic: topic_id for tp, topic_id in known.items()}
        return [
            tp
            for tp, topic_id in known.items()
            if topic_id not in (ids.get(tp.topic, topic_id), ZERO_UUID) or topic_id != last[tp.topic]
        ]

    async def _leave_out(
        self, commit: _Commit, doubtful: list[TopicPartition], ids: Mapping[str, UUID] | None = None
    ) -> None:
        """Asks which of these topics still exist, and commits nothing for the others."""
        if not doubtful:
            return
        topics = await self._cluster.metadata.describe({tp.topic for tp in doubtful})
        gone = {}
        for tp in doubtful:
            known = commit.pending[tp].topic_id
            tied_to = known if known != ZERO_UUID else (ids or {}).get(tp.topic, ZERO_UUID)
            topic = topics.get(tp.topic)
            made_again = (
                topic is not None and ZERO_UUID not in (tied_to, topic.topic_id) and topic.topic_id != tied_to
            )
            missing = not made_again and _is_missing(tp, topics, commit.missed)
            if (made_again or missing) and (known != ZERO_UUID or not commit.explicit):
                gone[tp] = commit.pending.pop(tp).offset
        if gone:
            _log.warning(
                "offsets_of_deleted_topics_not_committed",
                group=self._who().group_id,
                offsets={str(tp): offset for tp, offset in gone.items()},
            )

    async def _fetch_once(
        self,
        wanted: list[TopicPartition] | None,
        timeout_s: float,
        require_stable: bool,
        known_ids: Mapping[str, UUID],
    ) -> tuple[CommittedOffsets, dict[TopicPartition, KafkaError]]:
        """Fetches committed offsets in one request. `known_ids` take precedence over the ids of the client's
        metadata."""
        who = self._who()
        ids = {**self._ids(wanted), **known_ids} if wanted is not None else {}
        by_names = wanted is None or len(ids) < len({tp.topic for tp in wanted})
        response = await self._coordinator.send(
            "OffsetFetch",
            lambda version: fetch_request(version, who, wanted, ids, require_stable),
            timeout_s=timeout_s,
            at_most=FETCH_WITH_NAMES if by_names else None,
        )
        code, results, errors = read_fetched(response, ids)
        if code is ErrorCode.STALE_MEMBER_EPOCH or (code in _FENCED and who.generation != NO_GENERATION):
            if self._who().generation == who.generation:
                self._fenced(code)  # the next attempt asks as the member that it is then
            raise _RebalancingError(who.group_id, code)
        self._coordinator.note(code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"group {who.group_id!r}: {code.meaning}")
        problems = {tp: KafkaError(refused, f"{tp}: {refused.meaning}") for tp, refused in errors.items()}
        for tp in wanted or ():
            if tp not in results and tp not in problems:  # it is not known that nothing is committed there
                problems[tp] = KafkaError(
                    ErrorCode.NETWORK_EXCEPTION, f"{tp}: the broker's answer leaves it out"
                )
        return results, problems

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


def _with_and_without(
    partitions: list[TopicPartition] | None, ids: Mapping[str, UUID]
) -> list[list[TopicPartition] | None]:
    """Returns the partitions whose topics have ids, and the others: one request cannot hold both."""
    if partitions is None or not ids:
        return [partitions]
    known = [tp for tp in partitions if tp.topic in ids]
    return [some for some in (known, [tp for tp in partitions if tp.topic not in ids]) if some]


def _is_missing(
    tp: TopicPartition, topics: Mapping[str, TopicSnapshot | None], missed: dict[TopicPartition, int]
) -> bool:
    """Whether brokers reported that there is no such partition; `missed` counts their reports."""
    if tp.topic not in topics:
        return False
    topic = topics[tp.topic]
    if topic is not None and tp.partition < len(topic.partitions):
        return False
    missed[tp] = missed.get(tp, 0) + 1
    return missed[tp] >= _MISSES_MIN
