"""The part of a replica that is the same in both roles: its log, its high watermark, and the waiters for records or for its
disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.cluster.image import INTERNAL_TOPICS, NO_LEADER
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId, Offset, TopicPartition
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.readers import Readers
from odradek.runtime.prompt import PromptFuture
from odradek.storage.log.log import Log

_APART_S: Final = 1.0
_KEPT_S: Final = 300.0


class Replica:
    """The state that both roles of a partition share; `Partition` makes it, and hands it to one role after another."""

    __slots__ = (
        "_durable",
        "_request_flush",
        "_truncated",
        "arrivals",
        "high_watermark",
        "log",
        "name",
        "readers",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        readers: Readers[Any],
        request_flush: Callable[[], None],
    ) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.log: Final = log
        self.readers: Final = readers
        self.high_watermark = Offset(log.start_offset)
        self.arrivals: Final = Arrivals() if name.topic in INTERNAL_TOPICS else None
        """Arrival times of records; None except for the internal topics, whose coordinators ask for the age of their
        records."""
        self._request_flush = request_flush
        self._durable = Acknowledgements()
        self._truncated: list[asyncio.Future[None]] = []
        """Waiters until the files have followed a truncation."""

    # -- what is durable

    @property
    def durable_offset(self) -> int:
        return self.log.flushed_offset if self.log.config.flush_before_ack else self.log.end_offset

    def flush(self) -> None:
        self._request_flush()

    def flush_if_due(self) -> None:
        if self.log.flush_due:
            self._request_flush()

    def make_durable(self) -> int:
        """Requests a flush where one is due, and answers waiters for durable records; returns the durable offset."""
        log = self.log
        if log.config.flush_before_ack:
            durable_offset = log.flushed_offset
            if log.end_offset > durable_offset:
                self._request_flush()
        else:
            durable_offset = log.end_offset
            if log.flush_due:
                self._request_flush()
        if self._durable:
            self._durable.reached(durable_offset)
        return durable_offset

    def when_durable(self) -> asyncio.Future[None] | None:
        end_offset = self.log.end_offset
        return None if self.durable_offset >= end_offset else self._durable.wait(end_offset - 1)

    def when_durable_promptly(self) -> PromptFuture[None] | None:
        """Returns what `when_durable` does; the future calls back at once, in the middle of the move of the high watermark."""
        end_offset = self.log.end_offset
        return None if self.durable_offset >= end_offset else self._durable.wait_promptly(end_offset - 1)

    def when_truncated(self) -> asyncio.Future[None] | None:
        if not self.log.awaits_truncation:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._truncated.append(future)
        return future

    def files_followed(self) -> None:
        """Notes that the files of the log have followed its truncations."""
        waiting, self._truncated = self._truncated, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- what readers may see

    @property
    def last_stable_offset(self) -> Offset:
        return Offset(self.log.last_stable_offset(self.high_watermark))

    def ongoing_transaction(self, producer_id: int) -> int | None:
        state = self.log.producers.get(producer_id)
        return None if state is None or state.transaction_first_offset < 0 else state.transaction_first_offset

    def note_transaction(self, producer_id: int, first_offset: int) -> None:
        """Notes an appended transactional batch, before `Readers.appended` counts it."""
        if self.ongoing_transaction(producer_id) == first_offset:
            self.readers.transaction_began(first_offset)

    def end_role(self, refusal: ErrorContent) -> None:
        """Ends the role: later events, in another leader epoch or none, answer no waiter."""
        self._durable.refuse(refusal)
        waiting, self._truncated = self._truncated, []
        for future in waiting:
            if not future.done():
                future.set_exception(refusal.error())
        self.readers.end()

    def not_leader(self, leader: BrokerId) -> KafkaError:
        where = "no broker leads it now" if leader == NO_LEADER else f"broker {leader} leads it"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.name}: {where}")


class _Mark(NamedTuple):
    end_offset: int
    began_s: float
    ended_s: float
    """Records between the previous mark and `end_offset` arrived from `began_s` to `ended_s`."""


class Arrivals:
    """Marks of when records arrived, by this process's own clock: one for each second in which any came, of some minutes."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def __len__(self) -> int:
        """Returns how many marks are kept."""
        return len(self._marks)

    def note(self, end_offset: int, now_s: float) -> None:
        """Notes that the log ends at `end_offset` now."""
        marks = self._marks
        began_s = now_s
        if marks and now_s - marks[-1].began_s < _APART_S:
            began_s = marks.pop().began_s
        marks.append(_Mark(end_offset, began_s, now_s))
        while now_s - marks[0].ended_s > _KEPT_S:
            marks.popleft()

    def age_s(self, offset: int, now_s: float) -> float | None:
        """Returns the least time that the record has been here; None when that is unknown."""
        for mark in self._marks:
            if offset < mark.end_offset:
                return now_s - mark.ended_s
        return None

    def forget(self) -> None:
        """Forgets marks after the log was cut."""
        self._marks.clear()
