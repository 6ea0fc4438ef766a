"""Fetches that wait for records: a consumer's for what becomes readable, a follower's for what is appended.

They watch from the moment they are made, so nothing that happens in between can be missed, and stop when their `response` is
settled or cancelled. `make_answer` reads again and makes the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, TypeVar

from odradek.broker.sessions.unchanged_partitions import UnchangedPartitions
from odradek.model.ids import Offset
from odradek.protocol.messages.data.fetch import FetchResponse
from odradek.replication.partition import Partition
from odradek.runtime.prompt import PromptFuture

AnswerT = TypeVar("AnswerT")

MARK_DELAY_S: Final = 0.005
"""A follower learns of a high watermark that moved after this delay, unless records carry it earlier."""


MakeAnswer = Callable[[], AnswerT | Coroutine[object, None, AnswerT]]
"""Returns the response, or a coroutine if a read must wait for the disk: another thread does that."""


class _DelayedFetch(Generic[AnswerT]):
    """A response to come, at the latest when time is up. It is a message, or the bytes of one."""

    def __init__(
        self,
        partitions: Iterable[Partition],
        make_answer: MakeAnswer[AnswerT],
        response: asyncio.Future[AnswerT] | PromptFuture[AnswerT],
        *,
        wait_s: float,
    ) -> None:
        self._bringing: asyncio.Task[AnswerT] | None = None
        """The answer, while another thread reads from the disk for it."""
        self._make_answer = make_answer
        self._partitions = list(partitions)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._time_is_up)
        self.response = response
        response.add_done_callback(self._stop)

    def _time_is_up(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.response.done() or self._bringing is not None:
            return
        # First: a disk error met in reading ends partitions, and they would call again.
        self._stop(self.response)
        try:
            response = self._make_answer()
        except Exception as error:  # noqa: BLE001 - the caller (a writer, a timer) has no part in it; the asker has
            self.response.set_exception(error)
            return
        if isinstance(response, Coroutine):
            self._bringing = asyncio.get_running_loop().create_task(response, name="fetch from disk")
            self._bringing.add_done_callback(self._brought)
        else:
            self.response.set_result(response)

    def _brought(self, bringing: asyncio.Task[AnswerT]) -> None:
        error = None if bringing.cancelled() else bringing.exception()
        if self.response.done():
            return
        if bringing.cancelled():
            self.response.cancel()
        elif error is not None:
            self.response.set_exception(error)
        else:
            self.response.set_result(bringing.result())

    def _stop(self, _: object) -> None:
        self._timer.cancel()
        if self._bringing is not None and self.response.cancelled():
            self._bringing.cancel()
        for partition in self._partitions:
            partition.unwatch(self)  # type: ignore[arg-type]


class ConsumerWaiting(_DelayedFetch[FetchResponse]):
    """Answers when enough bytes became readable, when a partition ended, or when time is up. Its future is asyncio's: what it
    calls must not run in the middle of what made records readable."""

    def __init__(
        self,
        partitions: Iterable[Partition],
        make_answer: MakeAnswer[FetchResponse],
        *,
        wait_s: float,
        missing_bytes: int,
        committed_only: bool,
    ) -> None:
        response: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        super().__init__(partitions, make_answer, response, wait_s=wait_s)
        self._missing_bytes = missing_bytes
        for partition in self._partitions:
            partition.watch(self, committed_only=committed_only)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self._missing_bytes -= added_bytes
        if self._missing_bytes <= 0:
            self._answer()

    def ended(self, partition: Partition) -> None:
        self._answer()


class FollowerWaiting(_DelayedFetch[AnswerT]):
    """Answers when enough bytes were appended, when a partition's role ended, or when time is up; and soon after a high
    watermark moved beyond the one that the follower knows (KIP-1166).

    It does so in the loop's next round, not in the middle of an append: what else is appended in this one goes with it. So its
    future may call back at once: the answer is on its way before the next follower's is made.

    A follower that sends another request on the same connection has something new, and is answered in the next round, too.
    """

    def __init__(
        self,
        known: dict[Partition, Offset],
        make_answer: MakeAnswer[AnswerT],
        *,
        nothing: Callable[[], AnswerT],
        wait_s: float,
        missing_bytes: int,
        resting: UnchangedPartitions[Any] | None = None,
        has_news: bool = False,
    ) -> None:
        """`known`: the high watermarks that the follower knows; `nothing`: the response when nothing happened; `has_news`:
        there is news already, no more urgent than a high watermark."""
        self._nothing = nothing
        self._all_bytes = missing_bytes
        super().__init__(known, make_answer, PromptFuture(), wait_s=wait_s)
        self._known = known
        self._missing_bytes = missing_bytes
        self._marks: asyncio.TimerHandle | None = None
        self._is_due = False
        self._resting = resting
        if resting is not None:
            resting.waiting = self
        for partition in self._partitions:
            partition.watch_end(self)
            self._check_high_watermark(partition)
        if has_news:
            self._answer_with_marks()

    def hurry(self) -> None:
        """Answers in the loop's next round, because the follower does not want to wait any longer. Within this call, the next
        request would be served inside of the answer, and the one after it inside of the next answer."""
        asyncio.get_running_loop().call_soon(self._time_is_up)

    def _time_is_up(self) -> None:
        """Thousands of partitions in which nothing happened are not read once more."""
        if self._missing_bytes == self._all_bytes and self._marks is None and not self._is_due:
            self._make_answer = self._nothing
        self._answer()

    def watch_again(self, partition: Partition, offset: Offset) -> None:
        """Watch one that rested, whose high watermark the follower knows to be `offset`: more may happen before the answer."""
        self._known[partition] = offset
        self._partitions.append(partition)
        partition.watch_end(self)

    def appended(self, partition: Partition, added_bytes: int) -> None:
        self._missing_bytes -= added_bytes
        if self._missing_bytes <= 0:
            self._answer_soon()

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self._check_high_watermark(partition)

    def ended(self, partition: Partition) -> None:
        self._answer_soon()

    def _check_high_watermark(self, partition: Partition) -> None:
        if partition.high_watermark > self._known[partition]:
            self._answer_with_marks()

    def _answer_with_marks(self) -> None:
        if self._marks is None:
            self._marks = asyncio.get_running_loop().call_later(MARK_DELAY_S, self._answer)

    def _answer_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._answer)

    def _stop(self, response: object) -> None:
        if self._marks is not None:
            self._marks.cancel()
        if self._resting is not None and self._resting.waiting is self:
            self._resting.waiting = None
        super()._stop(response)
