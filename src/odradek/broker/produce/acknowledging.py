"""The wait of a Produce request for its disk and its replicas: how long it took, and the answer to a request of one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.net.replies import Chunks
from odradek.replication.partition import Partition
from odradek.runtime.prompt import PromptFuture


class PersistedTimes(Protocol):
    """Keeps how long appends waited for the disk, and for followers, in seconds."""

    def persisted(self, *, fsync_s: float, replicated_s: float | None) -> None: ...


class AppendWaits:
    """How long the appends of one request waited for the disk here, and then for followers."""

    __slots__ = ("_durable_at", "_is_replicated", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._is_replicated = False
        """Whether an append waits for followers, too."""
        self._durable_at = -1.0
        """The time when the last of the replicated appends was durable here; -1 if none was."""

    def watch(self, partition: Partition) -> None:
        """Notes when what was appended is durable here: the rest of its wait is for followers."""
        self._is_replicated = True
        flushed = partition.when_durable()
        if flushed is None:
            self._flushed()
        else:
            flushed.add_done_callback(self._flushed)

    def _flushed(self, future: asyncio.Future[None] | None = None) -> None:
        if future is not None and not future.cancelled():
            future.exception()  # the acknowledgement raises it, too
        self._durable_at = self._now()

    def note(self, figures: PersistedTimes, began: float) -> None:
        """Counts a wait that began then and is over now."""
        ended = self._now()
        durable_at = ended
        if self._is_replicated and self._durable_at >= 0:
            durable_at = min(max(self._durable_at, began), ended)
        figures.persisted(
            fsync_s=durable_at - began, replicated_s=ended - durable_at if self._is_replicated else None
        )


class SingleAcknowledgement:
    """The answer to a request of one batch, made in the turn of the loop in which the batch is acknowledged, or its time is up.

    `chunks` is the answer of success, which was made when the batch was appended; `refused` makes any other."""

    __slots__ = ("_acknowledgement", "_chunks", "_noted", "_refused", "_timer", "reply")

    def __init__(
        self,
        acknowledgement: asyncio.Future[None],
        timeout_ms: int,
        *,
        chunks: Chunks,
        noted: Callable[[], None],
        refused: Callable[[asyncio.Future[None]], Chunks],
    ) -> None:
        """`noted` is called when the wait is over."""
        self._acknowledgement = acknowledgement
        self._chunks = chunks
        self._noted = noted
        self._refused = refused
        self.reply: PromptFuture[Chunks | None] = PromptFuture()
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, acknowledgement.cancel)
        acknowledgement.add_done_callback(self._settle)
        self.reply.add_done_callback(self._give_up)

    def _settle(self, acknowledgement: asyncio.Future[None]) -> None:
        self._timer.cancel()
        if self.reply.done():
            return
        try:
            self._noted()
            is_durable = not acknowledgement.cancelled() and acknowledgement.exception() is None
            chunks = self._chunks if is_durable else self._refused(acknowledgement)
        except Exception as error:  # noqa: BLE001 - the connection waits for this: it must learn of any end
            self.reply.set_exception(error)
        else:
            self.reply.set_result(chunks)

    def _give_up(self, reply: PromptFuture[Chunks | None]) -> None:
        if reply.cancelled():
            self._acknowledgement.cancel()
