"""A consumer's part in its group: its membership, its commits, and the user's side of rebalances.

The group's service runs on the loop, the user calls from a thread of their own or from a coroutine. They meet in `poll`:
it commits what earlier polls returned (auto commit), gives up and takes partitions when the group asks for it, and calls
the listener, all before it returns the next records. So what a user has been given has been dealt with when the next
`poll` begins, and nothing is handed to another member before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from enum import Enum, auto
from typing import Final

from odradek.client.consumer.subscription_state import Assignment
from odradek.client.groups.assignors import assignors_of
from odradek.client.groups.choosing import ChoosingMember
from odradek.client.groups.classic import ClassicMember
from odradek.client.groups.coordinator import GROUP, Coordinator
from odradek.client.groups.member import MemberCore, MemberSettings
from odradek.client.groups.membership import GroupMembership
from odradek.client.groups.offset_store import OffsetStore
from odradek.client.groups.reconciling import ReconcilingMember
from odradek.client.groups.values import (
    NO_GENERATION,
    CommittedOffsets,
    GroupMetadata,
    Handover,
    OffsetAndMetadata,
    OffsetsToCommit,
    Partitions,
    RebalanceListener,
    Subscription,
    as_committable,
)
from odradek.client.network.backoff import Backoff
from odradek.client.network.cancellation import has_ended
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import explain
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.exception_text import describe, represent
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

_log = events.get("client")

SHUTDOWN_S: Final = 5.0
"""The seconds for which `close` tries to notify the group."""
_LISTENER = RebalanceListener()


class HandoverStep(Enum):
    """The steps of the user's side in a handover, in this order."""

    COMMIT = auto()
    REVOKED = auto()
    LOST = auto()
    ASSIGNED = auto()


_handing_over: ContextVar[HandoverTask | None] = ContextVar("odradek_handing_over", default=None)
"""The handover that runs the present code: its listener, and what that calls."""


class HandoverTask:
    """A handover under way, on the loop of an asynchronous client: it continues if the `poll` that began it
    is cancelled.

    Otherwise the group would wait without end for the listener. The next `poll` waits for it first, and
    raises the listener's error.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def run(self, work: Coroutine[object, None, None]) -> None:
        """Raises what `work` raises; continues without the caller if the caller is cancelled."""

        async def noted() -> None:
            _handing_over.set(self)
            await work

        self._task = asyncio.get_running_loop().create_task(noted(), name="odradek-handover")
        await self.wait()

    async def wait(self) -> None:
        """Wait for the one under way, if there is one and the caller is no part of it."""
        task = self._task
        if task is None or _handing_over.get() is self:
            return
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                self._task = None
            raise
        except BaseException:
            self._task = None
            raise
        self._task = None

    async def end(self, timeout_s: float) -> None:
        """Wait so long for the one under way, then cancel it. What its listener raised is logged."""
        task = self._task
        if task is None or _handing_over.get() is self:
            return
        self._task = None
        if not await has_ended(task, timeout_s):
            task.cancel()
            await has_ended(task, SHUTDOWN_S)
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            _log.warning("rebalance_listener_failed", reason=describe(error))


class Participation:
    """A consumer's membership in its group as `poll` sees it. `positions` returns, for each partition, the offset to commit
    for what the user has received."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: ClusterClient,
        assignment: Assignment,
        *,
        clock: Clock,
        entropy: Entropy,
        positions: Callable[[], dict[TopicPartition, OffsetAndMetadata]],
        give_up: Callable[[Iterable[TopicPartition]], None],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._assignment = assignment
        self._clock = clock
        self._positions = positions
        self._give_up = give_up
        self._wake = wake
        self.member: Final[MemberCore] = _make_member(settings, entropy)
        self.coordinator: Final = Coordinator(cluster, settings.group_id, GROUP)
        self.membership: Final = GroupMembership(
            self.member, cluster, self.coordinator, on_change=self._changed
        )
        self.store: Final = OffsetStore(
            cluster, self.coordinator, who=lambda: self.member.metadata, fenced=self._fenced
        )
        self.listener: RebalanceListener = _LISTENER
        self.handing_over: Final = HandoverTask()
        self.subscribed = False
        self.subscription = Subscription()
        """The last one."""
        self._api_timeout_s = settings.default_api_timeout_ms / 1000
        self._auto_commit_s = settings.auto_commit_interval_ms / 1000 if settings.enable_auto_commit else None
        self._commit_at = clock.monotonic() + (self._auto_commit_s or 0.0)
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._polled_as: GroupMetadata | None = None
        """The member's identity at the end of the last poll at which it was in its group."""
        self._done_number = 0
        """The last handover that the user's side has done; the service may not know it yet."""

    @property
    def metadata(self) -> GroupMetadata:
        """The identity for commits of polled records.

        A member that has left, because its user was slow, has no generation any more, and a commit without one is no one's
        to refuse. So it is who it was when it polled: then its coordinator refuses a commit for partitions of others.
        """
        member = self.member
        has_left = self.subscribed and member.generation == NO_GENERATION
        return self._polled_as if has_left and self._polled_as is not None else member.metadata

    # -- polling, on the user's side

    def next_handover(self) -> Handover | None:
        """*locked.* Returns what must be done before more can be read. Raises what keeps this member out of
        the group."""
        if not self.subscribed:
            return None
        if self.membership.failure is not None:
            raise self.membership.failure
        handover = self.member.handover
        if handover is None and self.member.problem is not None:
            problem = self.member.problem
            if problem.code is not ErrorCode.FENCED_INSTANCE_ID:
                self.member.problem = None  # raised once; the next poll tries again
            raise problem
        return handover if self.has_handover else None

    @property
    def has_handover(self) -> bool:
        handover = self.member.handover
        return handover is not None and handover.number > self._done_number

    def poll_began(self) -> bool:
        """Returns whether the service must be notified (`membership.polled`)."""
        self.member.user.in_poll = True
        self.member.user.polled_at = self._clock.monotonic()
        return self.subscribed and self.member.awaits_poll

    def poll_ended(self) -> None:
        member = self.member
        member.user.polled_at = self._clock.monotonic()
        member.user.in_poll = False
        known = self._polled_as
        if member.generation != NO_GENERATION and (
            known is None or (known.generation, known.member_id) != (member.generation, member.member_id)
        ):
            self._polled_as = member.metadata

    def due_for_auto_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit now, without waiting; none if the auto commit is not due."""
        if self._auto_commit_s is None:
            return {}
        now = self._clock.monotonic()
        if now < self._commit_at:
            return {}
        self._commit_at = now + self._auto_commit_s
        return self._uncommitted()

    def steps(self, handover: Handover) -> Iterator[tuple[HandoverStep, Partitions]]:
        """Yields the remaining steps of a handover; between them it changes the assignment."""
        self._done_number = handover.number
        before = tuple(self._assignment.states)
        revoked = tuple(tp for tp in handover.revoked if tp in self._assignment.states)
        if revoked and not handover.lost:
            yield HandoverStep.COMMIT, revoked
        if revoked:
            yield HandoverStep.LOST if handover.lost else HandoverStep.REVOKED, revoked
            self._give_up(revoked)
            for tp in revoked:
                self._auto_committed.pop(tp, None)
            self._assignment.assign([tp for tp in before if tp not in revoked])
        if handover.taken is not None:
            added = handover.added(before)
            self._assignment.assign(handover.taken, committed=True)
            self._wake()  # so that the listener may ask for positions
            yield HandoverStep.ASSIGNED, added

    def call_listener(self, step: HandoverStep, partitions: Partitions) -> Awaitable[None] | None:
        """Calls the rebalance listener."""
        if step is HandoverStep.REVOKED:
            return self.listener.partitions_revoked(partitions)
        if step is HandoverStep.LOST:
            return self.listener.partitions_lost(partitions)
        return self.listener.partitions_assigned(partitions)

    def _changed(self) -> None:
        with self._assignment.lock:
            self._assignment.notify()

    # -- commits, on the loop

    async def commit(
        self,
        offsets: OffsetsToCommit | None = None,
        timeout_s: float | None = None,
        *,
        explicit: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commits `offsets` (by default: of all returned records); the group's coordinator acknowledges it.

        Offsets of deleted topics are left out. `explicit`: the user named the offsets.
        """
        wanted = as_committable(offsets) if offsets is not None else self._positions()
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        still_owned = self._still_owned if self.subscribed else None
        await self.store.commit(
            wanted, limit_s, still_owned=still_owned, explicit=explicit and offsets is not None
        )
        return wanted

    async def commit_and_tell(
        self,
        offsets: OffsetsToCommit,
        callback: Callable[[OffsetsToCommit, Exception | None], object] | None,
        *,
        tied: OffsetsToCommit,
        explicit: bool,
    ) -> None:
        """Commits offsets without waiting for the outcome. `tied`: the offsets, with the topics that they are of."""
        problem: Exception | None = None
        try:
            await self.commit(tied, explicit=explicit)
        except OdradekError as error:
            problem = error
            if callback is None:
                _log.warning("commit_failed", group=self._settings.group_id, reason=explain(error))
        if callback is not None:
            try:
                callback(offsets, problem)
            except Exception:  # noqa: BLE001 - the user's code: it must not stop the client
                _log.exception("commit_callback_failed", callback=represent(callback))

    def spawn(self, work: Coroutine[object, None, None]) -> None:
        """Runs the work without waiting for it. Called on the loop."""
        task = asyncio.get_running_loop().create_task(work, name="odradek-commit")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def commit_quietly(self, offsets: OffsetsToCommit, timeout_s: float | None = None) -> None:
        """Commits automatically: a failure is logged, and made good by the next commit, or by reading again."""
        try:
            await self.commit(offsets, timeout_s, explicit=False)
        except asyncio.CancelledError:
            self._auto_committed = {}
            raise
        except OdradekError as error:
            self._auto_committed = {}
            _log.warning("auto_commit_failed", group=self._settings.group_id, reason=explain(error))

    async def commit_before_giving_up(self, partitions: Partitions) -> None:
        """Commits once more before the member gives partitions up, if it commits by itself."""
        if self._auto_commit_s is not None:
            positions = self._positions()
            offsets = {tp: positions[tp] for tp in partitions if tp in positions}
            await self.commit_quietly(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> CommittedOffsets:
        wanted = [TopicPartition(*tp) for tp in partitions]
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        metadatas = await self.store.fetch(wanted, limit_s, require_stable=self._stable)
        return {tp: metadatas.get(tp) for tp in wanted}

    async def find_committed(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, KafkaError]]:
        """Returns the group's committed offsets, to start from, and the error of each partition whose offset is not known.

        At any isolation level it waits for the offsets of a transaction that is being committed (KIP-447): otherwise records
        that the partitions' last owner has handled would be handled again.
        """
        limit_s = self._settings.request_timeout_ms / 1000
        metadatas, problems = await self.store.fetch_some(partitions, limit_s, require_stable=True)
        offsets = {tp: None if known is None else known.offset for tp, known in metadatas.items()}
        return offsets, problems

    async def leave(self, *, commit: bool) -> None:
        """Commit if that is automatic and asked for, and leave the group. Errors are logged: it is over anyhow."""
        await self.handing_over.end(SHUTDOWN_S)
        if commit and self._auto_commit_s is not None and self._assignment.failure is None:
            await self.commit_quietly(self._uncommitted(), SHUTDOWN_S)
        try:
            async with asyncio.timeout(SHUTDOWN_S):
                await asyncio.gather(*self._tasks, return_exceptions=True)
        except TimeoutError:
            _log.info("commits_not_awaited", group=self._settings.group_id)
        await self.membership.leave(SHUTDOWN_S)

    async def stop(self) -> None:
        """Stops everything."""
        await self.handing_over.end(0.0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.membership.stop()

    # -- inside

    @property
    def _stable(self) -> bool:
        return self._settings.isolation_level == "read_committed"

    def _uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        positions = self._positions()
        last, self._auto_committed = self._auto_committed, positions
        return {tp: offset for tp, offset in positions.items() if not _same(last.get(tp), offset)}

    def _still_owned(self, partitions: Iterable[TopicPartition]) -> bool:
        """Partitions that were ours when the commit was asked for, and are no more, are not committed in a new name."""
        return all(tp in self._assignment.states for tp in partitions)

    def _fenced(self, code: ErrorCode) -> None:
        self.member.fenced(code, self._clock.monotonic())
        self.membership.turn()


def _same(committed: OffsetAndMetadata | None, offset: OffsetAndMetadata) -> bool:
    if committed is None or committed.offset != offset.offset:
        return False
    return committed.topic_id == offset.topic_id or ZERO_UUID in (committed.topic_id, offset.topic_id)


def no_group() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_GROUP_ID, "this needs a group: set group_id")


def _make_member(settings: ConsumerSettings, entropy: Entropy) -> MemberCore:
    own = MemberSettings(
        group_id=settings.group_id,
        group_instance_id=settings.group_instance_id or None,
        session_timeout_s=settings.session_timeout_ms / 1000,
        heartbeat_interval_s=settings.heartbeat_interval_ms / 1000,
        max_poll_interval_s=settings.max_poll_interval_ms / 1000,
        request_timeout_s=settings.request_timeout_ms / 1000,
        assignors=assignors_of(settings.partition_assignment_strategy),
        remote_assignor=settings.group_remote_assignor or None,
        rack_id=settings.client_rack or None,
    )
    backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, entropy)
    if settings.group_protocol == "classic":
        return ClassicMember(own, backoff)
    member_id = str(entropy.uuid())
    if settings.group_protocol == "consumer":
        return ReconcilingMember(own, backoff, member_id=member_id)
    return ChoosingMember(own, backoff, member_id=member_id)
