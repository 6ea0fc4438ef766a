"""The record of what was done on this broker: events are queued where they happen, and written by a task of their own.

The queue has a bound. An event that finds it full is lost, and one that no sink takes for `PATIENCE_SECONDS`: a topic that was
just made has no leader yet, and one whose leader has died none for a while. How many were lost is an event itself, as soon as
one can be written again, and a counter of the broker (`lost_count`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.config.audit import AuditConfig
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Runtime
from odradek.security.audit import LOGIN, LOST, REFUSAL, AuditEvent, AuditRules
from odradek.telemetry import events

_log = events.get("broker")
FLUSH_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 600.0
"""From the first write that no sink took. A broker that starts late leads nothing before
`leader.imbalance.check.interval.seconds` (300) have passed.
"""
_AT_ONCE: Final = 1000


class AuditSink(Protocol):
    """Takes events for good, or raises."""

    async def write(self, written: Sequence[AuditEvent]) -> None: ...

    async def close(self) -> None: ...


class AuditTrail:
    """Used on the event loop only. `flush` is called again and again (`FLUSH_SECONDS`), and once when the broker stops."""

    def __init__(
        self, config: Callable[[], AuditConfig], runtime: Runtime, sinks: Sequence[AuditSink], broker_id: int
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._sinks = sinks
        self._broker_id = broker_id
        self._queue: list[AuditEvent] = []
        self._rules_text = ""
        self._sample = 1.0
        self._rules = AuditRules()
        self._unreported = 0
        self._refused_since: float | None = None
        self.lost_count = 0
        self.written_count = 0

    @property
    def rules(self) -> AuditRules:
        """Those of the settings as they are now."""
        config = self._config()
        if (config.rules, config.sample) != (self._rules_text, self._sample):
            self._rules_text, self._sample = config.rules, config.sample
            try:
                self._rules = AuditRules(config.rules, sample=config.sample)
            except OdradekError as error:
                _log.error("audit_rules_not_taken", reason=str(error))
        return self._rules

    def event(self, kind: str, outcome: str, **values: object) -> AuditEvent:
        """Of now, on this broker."""
        time_ms = self._runtime.clock.wall_ms()
        return AuditEvent(time_ms=time_ms, broker=self._broker_id, kind=kind, outcome=outcome, **values)  # type: ignore[arg-type]

    def note(self, event: AuditEvent) -> None:
        """Keep an event, if the rules say so."""
        if not self.rules.keeps(event, self._runtime.entropy.uniform):
            return
        if len(self._queue) >= self._config().queue_max:
            self._lose(1)
        else:
            self._queue.append(event)

    def login(self, outcome: str, *, principal: str, host: str, listener: str, detail: str = "") -> None:
        """Someone logged in, or failed to; `detail` names the mechanism and the cause, and nothing secret."""
        self.note(
            self.event(LOGIN, outcome, principal=principal, host=host, listener=listener, detail=detail)
        )

    def refusal(self, **values: object) -> None:
        """One operation on one resource was refused."""
        self.note(self.event(REFUSAL, "refused", **values))

    async def flush(self) -> None:
        """Write what is queued."""
        while self._queue or self._unreported:
            written, self._queue = self._queue[:_AT_ONCE], self._queue[_AT_ONCE:]
            lost = self._unreported
            if lost:
                self._unreported = 0
                written.append(
                    self.event(LOST, "failed", count=lost, detail="the queue was full, or no sink took them")
                )
            if not await self._write(written):
                self._unreported += lost
                self._keep_or_lose(written[:-1] if lost else written)
                return

    def _keep_or_lose(self, refused: list[AuditEvent]) -> None:
        if self._is_patient():
            self._queue = refused + self._queue
        else:
            self._lose(len(refused))

    def _is_patient(self) -> bool:
        now = self._runtime.clock.monotonic()
        return self._refused_since is not None and now - self._refused_since < PATIENCE_SECONDS

    async def close(self) -> None:
        await self.flush()
        self._lose(len(self._queue))
        for sink in self._sinks:
            await sink.close()

    async def _write(self, written: Sequence[AuditEvent]) -> bool:
        """Whether any sink took them; one that does not is reported in the broker's log, once while all are asked again."""
        taken, is_known = 0, self._is_patient()
        for sink in self._sinks:
            try:
                await sink.write(written)
                taken += 1
            except (OdradekError, OSError) as error:
                if not is_known:
                    _log.error("audit_events_not_written", count=len(written), reason=str(error))
        if taken:
            self.written_count += len(written)
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = self._runtime.clock.monotonic()
        return taken > 0

    def _lose(self, count: int) -> None:
        self._unreported += count
        self.lost_count += count
