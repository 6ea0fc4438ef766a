"""Appends of several requests in one go: the plain batches that came in one round of the event loop.

How it works. A request of one batch costs little of itself. What surrounds its append costs more: the checks of the log, the
system call that writes, the indexes, the high watermark, the flush that is requested, and the timer and the callbacks of the
acknowledgement. When many connections send such requests, a round of the loop brings several for each partition. They are
gathered until the round is over, appended to their partition in one go, and acknowledged together. Each has its own answer.

Nothing is refused here. A batch was checked before it came here. A group that the leader refuses, for whatever reason, is
dissolved, as is one with batches that are in the log already: each of its requests is served alone, in order, and meets its own
error, or none.

Order. Requests of a connection are gathered in order. What a connection sends after a gathered request must
not reach the log before it: `flush` comes before any other way to append. So all groups are appended, then
the requests of dissolved ones are served, and only then are replies settled, for a connection may go on with
its next request when it has one. No append of these waits for a descriptor, which would let others pass: a
log file that was closed because descriptors ran out is written at once or in the general way, and an open one
is pinned until the round is over.

Where each partition has one busy producer, gathering brings nothing and costs a callback for each round. So after a round that
brought no two batches for a partition, the next requests are appended at once (`_ALONE_COUNT`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from odradek.broker.produce.acknowledging import AppendWaits, PersistedTimes
from odradek.model.errors import KafkaError
from odradek.net.replies import Chunks, HeldReply, Reply
from odradek.records import BatchHeader
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.runtime.prompt import PromptFuture
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log.results import AppendResult
from odradek.storage.producers.verification import UNVERIFIED

_ALONE_COUNT: Final = 32
"""How many requests are appended at once after a round that brought no two batches for a partition."""
GATHERED_MAX: Final = 64
GATHERED_BYTES_MAX: Final = 256 * 1024
"""A round that brings more is appended in parts: the frames are in memory until then, and the loop serves nothing else."""

SingleReply = PromptFuture[Chunks | None]
Answer = Chunks | None | Awaitable[Chunks | None]


class SingleRequest(Protocol):
    """A Produce request of one plain batch. It lets its frame go when it is appended."""

    partition: Partition
    batch: tuple[BatchHeader, memoryview]
    waits_for_all: bool
    """Whether it is answered when all replicas in sync have the batch (acks=all)."""
    timeout_ms: int
    reply: SingleReply
    """The reply that the connection waits for, if the request was not answered at once."""
    chunks: Chunks
    """The answer of success, once the batch is in the log."""
    last_offset: int

    def appended(self, base_offset: int, appended: AppendResult) -> None:
        """Counts the batch, which is in the log at this offset, and sets `chunks` and `last_offset`."""

    def refused(self, ended: asyncio.Future[None]) -> Chunks:
        """Returns the answer to a request whose batch is in the log, and whose acknowledgement ended without success."""

    def forget_frame(self) -> None:
        """Notes that the connection does not hold the frame while the request waits."""

    def serve_alone(self) -> Reply:
        """Serves the request in the general way."""


_Outcome = tuple[SingleRequest, Answer]


class _Group:
    """The gathered requests of one partition, whose log file is kept open for them."""

    __slots__ = ("requests", "writer")

    def __init__(self, writer: SegmentWriter, request: SingleRequest) -> None:
        self.writer = writer
        self.requests = [request]


class SharedAppends:
    """Appends plain batches to the partitions that this broker leads, in groups where that saves work. Used on the event loop
    only."""

    __slots__ = (
        "_alone_left",
        "_figures",
        "_gathered_bytes",
        "_gathered_count",
        "_groups",
        "_is_scheduled",
        "_is_settling",
        "_monotonic",
        "_outcomes",
        "_wall_ms",
    )

    def __init__(
        self, *, wall_ms: Callable[[], int], monotonic: Callable[[], float], figures: PersistedTimes
    ) -> None:
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._figures = figures
        self._alone_left = 0
        """How many requests are appended at once before the next one is gathered."""
        self._groups: dict[Partition, _Group] = {}
        self._gathered_count = self._gathered_bytes = 0
        self._is_scheduled = False
        self._outcomes: deque[_Outcome] = deque()
        """Requests that were appended, acknowledged or refused, whose replies are not settled yet."""
        self._is_settling = False
        """Replies are settled now, or in the loop's next turn."""

    def append(self, request: SingleRequest, now_ms: int) -> Chunks | SingleReply | None:
        """Appends the batch; returns the answer, now or later. None, with nothing done, if the leader refuses it."""
        if self._gathered_count >= GATHERED_MAX or self._gathered_bytes >= GATHERED_BYTES_MAX:
            self.flush()
        partition = request.partition
        group = self._groups.get(partition)
        if group is not None:
            group.requests.append(request)
        else:
            # While others are gathered, one of the same connection may be among them.
            writer = partition.log.pin() if self._groups or not self._alone_left else None
            if writer is None:
                return self._append_alone(request, now_ms)
            self._groups[partition] = _Group(writer, request)
        request.forget_frame()
        self._gathered_count += 1
        self._gathered_bytes += len(request.batch[1])
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_round)
        request.reply = PromptFuture()
        return request.reply

    def _append_alone(self, request: SingleRequest, now_ms: int) -> Chunks | SingleReply | None:
        self._alone_left = max(self._alone_left - 1, 0)
        partition = request.partition
        try:
            leader = partition.leader()
            if request.waits_for_all:
                leader.check_in_sync()
            appended = leader.append((request.batch,), now_ms=now_ms, guard=UNVERIFIED)
        except KafkaError:
            return None
        request.appended(appended.first_offset, appended)
        if not request.waits_for_all or partition.high_watermark > appended.last_offset:
            return request.chunks
        request.forget_frame()
        request.reply = PromptFuture()
        self._await_acknowledgement(leader, [request])
        return request.reply

    def _end_round(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Appends what was gathered. Comes before any other way to append. The replies are settled before it returns, but in
        the loop's next turn if others are being settled."""
        groups, self._groups = self._groups, {}
        if not groups:
            return
        if self._gathered_count == len(groups):
            self._alone_left = _ALONE_COUNT
        self._gathered_count = self._gathered_bytes = 0
        outcomes: list[_Outcome] = []
        dissolved: list[SingleRequest] = []
        for partition, group in groups.items():
            try:
                if not self._append_group(partition, group.requests, outcomes):
                    dissolved += group.requests
            except Exception as error:  # noqa: BLE001 - connections wait for these: they must learn of any end
                outcomes += [(request, _failed(error)) for request in group.requests]
        if dissolved:
            # Each is appended at once: one that is refused must not refuse the others again.
            self._alone_left = max(self._alone_left, len(dissolved))
            outcomes += [(request, _served_alone(request)) for request in dissolved]
        for partition, group in groups.items():
            partition.log.unpin(group.writer)
        self._settle(outcomes)

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        """Settles the replies, from the last to the first: a connection writes all of its answers when it has its first."""
        self._outcomes += reversed(outcomes)
        if not self._is_settling:
            self._settle_some()

    def _settle_some(self) -> None:
        """Settles the replies of what was appended. A connection that has one may send requests that lead to another flush:
        its replies wait for the next turn of the loop, so that connections whose requests lead to flushes of each other's
        hold the loop no longer than others, and their calls do not pile up."""
        self._is_settling = True
        try:
            for _ in range(min(len(self._outcomes), GATHERED_MAX)):
                request, outcome = self._outcomes.popleft()
                _settle(request.reply, outcome)
        finally:
            self._is_settling = bool(self._outcomes)
            if self._is_settling:
                asyncio.get_running_loop().call_soon(self._settle_some)

    def _append_group(
        self, partition: Partition, requests: list[SingleRequest], outcomes: list[_Outcome]
    ) -> bool:
        """Appends the batches; returns False, with nothing done, if their requests must be served alone. Adds
        the answers that may be written now to `outcomes`."""
        waiting = [request for request in requests if request.waits_for_all]
        try:
            leader = partition.leader()
            if waiting:
                leader.check_in_sync()
            batches = [request.batch for request in requests]
            appended = leader.append(batches, now_ms=self._wall_ms(), guard=UNVERIFIED)
        except KafkaError:
            return False
        if appended.duplicate and len(requests) > 1:
            return False  # each has an offset of its own
        offset = appended.first_offset
        for request in requests:
            request.appended(offset, appended)
            offset = request.last_offset + 1
        if waiting and partition.high_watermark <= waiting[-1].last_offset:
            outcomes += [(request, request.chunks) for request in requests if not request.waits_for_all]
            self._await_acknowledgement(leader, waiting)
        else:
            outcomes += [(request, request.chunks) for request in requests]
        return True

    def _await_acknowledgement(self, leader: LeaderRole, requests: Sequence[SingleRequest]) -> None:
        by_timeout: dict[int, list[SingleRequest]] = {}
        for request in requests:
            by_timeout.setdefault(request.timeout_ms, []).append(request)
        for timeout_ms, same in by_timeout.items():
            acknowledgement = leader.acknowledgement(same[-1].last_offset)
            if acknowledgement is None:
                acknowledgement = asyncio.get_running_loop().create_future()
                acknowledgement.set_result(None)
            waits = AppendWaits(self._monotonic)
            if leader.in_sync_count > 1:
                waits.watch(same[0].partition)
            noted = partial(waits.note, self._figures, self._monotonic())
            _Acknowledgement(acknowledgement, timeout_ms, same, noted, self._settle)


def _served_alone(request: SingleRequest) -> Answer:
    """Returns the outcome of a request of a dissolved group. It is appended now, or refused: its append does
    not wait for a descriptor, because later requests would wait, too."""
    try:
        outcome = request.serve_alone()
    except Exception as error:  # noqa: BLE001 - the connection waits for this: it must learn of any end
        return _failed(error)
    return outcome.chunks if isinstance(outcome, HeldReply) else outcome


def _settle(reply: SingleReply, outcome: Answer) -> None:
    """Settles the reply: now, or together with an outcome that comes later."""
    if outcome is None or isinstance(outcome, list):
        if not reply.done():
            reply.set_result(outcome)
        return
    later = outcome if isinstance(outcome, PromptFuture) else asyncio.ensure_future(outcome)
    reply.add_done_callback(partial(_give_up, later))
    later.add_done_callback(partial(_copy, reply))


def _copy(reply: SingleReply, later: SingleReply | asyncio.Future[Chunks | None]) -> None:
    if reply.done():
        return
    if later.cancelled():
        reply.cancel()
    elif (error := later.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(later.result())


def _give_up(later: SingleReply | asyncio.Future[Chunks | None], reply: SingleReply) -> None:
    if reply.cancelled():
        # After the first step of the work: a task that makes none leaves its coroutine unawaited.
        asyncio.get_running_loop().call_soon(later.cancel)


def _failed(error: Exception) -> SingleReply:
    failed: SingleReply = PromptFuture()
    failed.set_exception(error)
    return failed


class _Acknowledgement:
    """The answers to the requests of a group with one timeout. They are made in the turn of the loop in which their batches are
    acknowledged, or their time is up."""

    __slots__ = ("_acknowledgement", "_noted", "_requests", "_settle", "_timer", "_waiting_count")

    def __init__(
        self,
        acknowledgement: asyncio.Future[None],
        timeout_ms: int,
        requests: Sequence[SingleRequest],
        noted: Callable[[], None],
        settle: Callable[[Sequence[_Outcome]], None],
    ) -> None:
        """`noted` is called for each request whose wait is over, `settle` with the answers."""
        self._acknowledgement = acknowledgement
        self._requests = requests
        self._waiting_count = len(requests)
        self._noted = noted
        self._settle = settle
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, acknowledgement.cancel)
        acknowledgement.add_done_callback(self._answer)
        for request in requests:
            request.reply.add_done_callback(self._end_wait)

    def _answer(self, acknowledgement: asyncio.Future[None]) -> None:
        self._timer.cancel()
        is_durable = not acknowledgement.cancelled() and acknowledgement.exception() is None
        outcomes: list[_Outcome] = []
        for request in self._requests:
            if request.reply.done():
                continue
            try:
                self._noted()
                # If the group failed, records below the high watermark are still acknowledged.
                is_so = is_durable or request.partition.high_watermark > request.last_offset
                outcomes.append((request, request.chunks if is_so else request.refused(acknowledgement)))
            except Exception as error:  # noqa: BLE001 - the connection waits for this: it must learn of any end
                outcomes.append((request, _failed(error)))
        self._settle(outcomes)

    def _end_wait(self, reply: SingleReply) -> None:
        self._waiting_count -= 1
        if not self._waiting_count and reply.cancelled():
            self._acknowledgement.cancel()
