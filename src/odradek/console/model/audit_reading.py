"""Searches the audit topic, the newest events first and within a limit, and reports how far it searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.console.records.reading import ClusterReader, ScanStart
from odradek.security.audit import AUDIT_TOPIC
from odradek.security.audit_search import AuditDocument, audit_document, fits

EVENTS_MAX: Final = 200
LOOKS: Final = (2_000, 20_000, 200_000)
"""The number of newest events of each partition that a search reads, step by step: the user asks for the next step."""
KINDS: Final = ("change", "login", "refusal", "access", "lost")
OUTCOMES: Final = ("done", "refused", "failed", "asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFindings:
    """The events that fit, the newest first, and what was looked at."""

    events: tuple[AuditDocument, ...]
    left_out: int
    """The number of events that fit as well, and are older."""
    looked_at: int
    unreadable: int
    since_ms: int
    """The time of the oldest event that was looked at; -1 if there was none."""
    is_cut: bool
    """Whether reading stopped before the newest event, at its limit of time or bytes."""


class AuditSieve:
    """Keeps the last events that fit. One for each search; `test` has the shape that a scan wants."""

    def __init__(self, wanted: Mapping[str, str | None], since_ms: int = 0) -> None:
        self._wanted = wanted
        self._since_ms = since_ms
        self.looked_at = 0
        self.unreadable = 0
        self.matching = 0
        self.oldest_ms = -1
        self._events: list[tuple[float, AuditDocument]] = []

    def test(self) -> Callable[[ConsumerRecord], bool]:
        """Returns a test that notes what fits, and keeps no record."""
        return self._note

    def _note(self, record: ConsumerRecord) -> bool:
        self.looked_at += 1
        event = audit_document(record.value or b"")
        if event is None:
            self.unreadable += 1
            return False
        at_ms = event.get("time_ms", 0)
        at_ms = at_ms if isinstance(at_ms, int | float) else 0
        self.oldest_ms = int(at_ms) if self.oldest_ms < 0 else min(self.oldest_ms, int(at_ms))
        if at_ms >= self._since_ms and fits(event, self._wanted):
            self.matching += 1
            self._events.append((at_ms, event))
            if len(self._events) >= 2 * EVENTS_MAX:
                self._keep_newest()
        return False

    def _keep_newest(self) -> None:
        self._events.sort(key=lambda pair: pair[0], reverse=True)
        del self._events[EVENTS_MAX:]

    def newest(self) -> tuple[AuditDocument, ...]:
        self._keep_newest()
        return tuple(event for _, event in self._events)


async def search_audit(
    reader: ClusterReader,
    partitions: int,
    wanted: Mapping[str, str | None],
    *,
    since_ms: int = 0,
    looks_at: int = LOOKS[0],
) -> AuditFindings:
    """Looks at the last events of each partition. Runs on the background loop."""
    sieve = AuditSieve(wanted, since_ms)
    step = await reader.scan(
        AUDIT_TOPIC,
        list(range(partitions)),
        ScanStart(kind="last", number=looks_at),
        sieve,
        matches_max=1,
    )
    events = sieve.newest()
    return AuditFindings(
        events=events,
        left_out=sieve.matching - len(events),
        looked_at=sieve.looked_at,
        unreadable=sieve.unreadable,
        since_ms=sieve.oldest_ms,
        is_cut=not step.is_complete,
    )
