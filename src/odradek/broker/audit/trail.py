"""The record of what was done on this broker: events are queued where they happen, and written by a task of their own.

The queue has bounds, in events and in bytes. An event that finds it full is lost, and one that no sink takes
for `PATIENCE_SECONDS`: a topic that was just made has no leader yet, and one whose leader has died none for a
while. A sink that refuses the events themselves, for example because they are too large, is offered each half
of them alone: what it refuses then is lost at once, and does not delay later events. How many were lost is an
event itself, as soon as one can be written again, and a counter of the broker (`lost_count`).

Events stay in the queue until their outcome is known. So one may be written twice, when a write is cut short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, Protocol

from odradek.config.access import AuditConfig
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.runtime.ports import Runtime
from odradek.security.audit import LOGIN, LOST, REFUSAL, AuditEvent, AuditRules
from odradek.telemetry import events

_log = events.get("broker")
FLUSH_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 600.0
"""The time after the first failed write until events are given up. A cluster whose brokers start one by one may need as long
to elect leaders."""
_AT_ONCE: Final = 1000
_AT_ONCE_BYTES: Final = 512 * 1024
"""The size in memory of the events in one write, small enough that topics rarely refuse the batch as too large."""
_OF_EVENTS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Errors that are the fault of the events themselves: a sink will refuse the same events later, too."""


class _Outcome(IntEnum):
    """The outcome of writing one event. Of several sinks' outcomes the greatest counts."""

    UNFIT = 0
    LATER = 1
    TAKEN = 2


class AuditSink(Protocol):
    """A destination of audit events, which stores all events of a call or raises."""

    async def write(self, written: Sequence[AuditEvent]) -> None: ...

    async def close(self) -> None: ...


class AuditTrail:
    """The queue of a broker's audit events, and their way to the sinks. Used on the event loop only. `flush` is called again
    and again (`FLUSH_SECONDS`), and once when the broker stops."""

    def __init__(
        self, config: Callable[[], AuditConfig], runtime: Runtime, sinks: Sequence[AuditSink], broker_id: int
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._sinks = sinks
        self._broker_id = broker_id
        self._queue: deque[AuditEvent] = deque()
        self._queued_bytes = 0
        self._writing = asyncio.Lock()
        self._rules_text = ""
        self._sample = 1.0
        self._rules = AuditRules()
        self._unreported = 0
        self._refused_since: float | None = None
        self._why_unfit = ""
        self.lost_count = 0
        self.written_count = 0

    @property
    def rules(self) -> AuditRules:
        """The rules in the current settings; the previous rules if the new ones are invalid."""
        config = self._config()
        if (config.rules, config.sample) != (self._rules_text, self._sample):
            self._rules_text, self._sample = config.rules, config.sample
            try:
                self._rules = AuditRules(config.rules, sample=config.sample)
            except OdradekError as error:
                _log.error("audit_rules_not_taken", reason=str(error))
        return self._rules

    def event(self, kind: str, outcome: str, **values: object) -> AuditEvent:
        """Returns an event of this broker with the current time, its values clipped."""
        time_ms = self._runtime.clock.wall_ms()
        event = AuditEvent(time_ms=time_ms, broker=self._broker_id, kind=kind, outcome=outcome, **values)  # type: ignore[arg-type]
        return event.clipped()

    def note(self, event: AuditEvent) -> None:
        """Keep an event, if the rules match it."""
        if not self.rules.keeps(event, self._runtime.entropy.uniform):
            return
        config, held_bytes = self._config(), event.held_bytes
        if len(self._queue) >= config.queue_max or self._queued_bytes + held_bytes > config.queue_bytes_max:
            self._lose(1)
        else:
            self._queue.append(event)
            self._queued_bytes += held_bytes

    def login(self, outcome: str, *, principal: str, host: str, listener: str, detail: str = "") -> None:
        """Notes a login, or a failed one; `detail` names the mechanism and the cause, and nothing secret."""
        self.note(
            self.event(LOGIN, outcome, principal=principal, host=host, listener=listener, detail=detail)
        )

    def refusal(self, **values: object) -> None:
        """Notes that one operation on one resource was refused."""
        self.note(self.event(REFUSAL, "refused", **values))

    async def flush(self) -> None:
        """Write what is queued, until no sink takes more. A call waits for the one under way."""
        async with self._writing:
            while self._queue or self._unreported:
                if not await self._write_oldest():
                    return

    async def _write_oldest(self) -> bool:
        """Writes the oldest events; returns False when events must wait, or the loss of others could not be reported."""
        events, lost = self._oldest(), self._unreported
        offered = list(events)
        if lost:
            offered.append(
                self.event(LOST, "failed", count=lost, detail="the queue was full, or no sink took them")
            )
        outcomes = await self._offer(offered)
        is_reported = not lost or outcomes[-1] is _Outcome.TAKEN
        if lost and is_reported:
            self._unreported -= lost
        self._settle(events, outcomes)
        return is_reported and _Outcome.LATER not in outcomes

    def _oldest(self) -> Sequence[AuditEvent]:
        """Returns the oldest events, as many as fit into one write, but at least one. They stay in the queue."""
        oldest: list[AuditEvent] = []
        left_bytes = _AT_ONCE_BYTES
        for event in islice(self._queue, _AT_ONCE):
            left_bytes -= event.held_bytes
            if left_bytes < 0 and oldest:
                break
            oldest.append(event)
        return oldest

    def _settle(self, events: Sequence[AuditEvent], outcomes: Sequence[_Outcome]) -> None:
        """Take the events, the oldest of the queue, from it; except those that wait."""
        for event in events:
            self._queue.popleft()
            self._queued_bytes -= event.held_bytes
        settled = list(
            zip(events, outcomes, strict=False)
        )  # the last outcome may belong to the event of kind lost
        self.written_count += outcomes.count(_Outcome.TAKEN)
        unfit = sum(outcome is _Outcome.UNFIT for _, outcome in settled)
        self._lose(unfit)
        waiting = [event for event, outcome in settled if outcome is _Outcome.LATER]
        if not self._is_patient():
            self._lose(len(waiting))
        else:
            self._queue.extendleft(reversed(waiting))
            self._queued_bytes += sum(event.held_bytes for event in waiting)

    def _is_patient(self) -> bool:
        now = self._runtime.clock.monotonic()
        return self._refused_since is not None and now - self._refused_since < PATIENCE_SECONDS

    async def close(self) -> None:
        await self.flush()
        self._lose(len(self._queue))
        for sink in self._sinks:
            await sink.close()

    async def _offer(self, offered: Sequence[AuditEvent]) -> Sequence[_Outcome]:
        """Returns one outcome for each event. Refusals of sinks are logged, once while all sinks are asked again."""
        is_known = self._is_patient()
        outcomes = [_Outcome.UNFIT] * len(offered)
        for sink in self._sinks:
            of_sink = await self._offer_to(sink, offered, is_known=is_known)
            if unfit := of_sink.count(_Outcome.UNFIT):
                _log.error("audit_events_refused", count=unfit, reason=self._why_unfit)
            outcomes = [max(pair) for pair in zip(outcomes, of_sink, strict=True)]
        if _Outcome.TAKEN in outcomes:
            self._refused_since = None
        if _Outcome.LATER in outcomes and self._refused_since is None:
            self._refused_since = self._runtime.clock.monotonic()
        return outcomes

    async def _offer_to(
        self, sink: AuditSink, offered: Sequence[AuditEvent], *, is_known: bool
    ) -> Sequence[_Outcome]:
        try:
            await sink.write(offered)
        except (OdradekError, OSError) as error:
            if not (isinstance(error, KafkaError) and error.code in _OF_EVENTS):
                if not is_known:
                    _log.error("audit_events_not_written", count=len(offered), reason=str(error))
                return [_Outcome.LATER] * len(offered)
            self._why_unfit = str(error)
        else:
            return [_Outcome.TAKEN] * len(offered)
        if len(offered) == 1:
            return [_Outcome.UNFIT]
        middle = len(offered) // 2
        older = await self._offer_to(sink, offered[:middle], is_known=is_known)
        if _Outcome.LATER in older:  # the others stay in the queue after them
            return [*older, *[_Outcome.LATER] * (len(offered) - middle)]
        return [*older, *await self._offer_to(sink, offered[middle:], is_known=is_known)]

    def _lose(self, count: int) -> None:
        self._unreported += count
        self.lost_count += count
