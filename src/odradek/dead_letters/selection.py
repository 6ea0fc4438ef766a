"""A selection of dead letters by error, origin, place and time. No I/O."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.dead_letters.letter import DeadLetter
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed

_PLACE: Final = re.compile(
    r"(?P<topic>[^:]+)(?::(?P<partition>[0-9]{1,9})(?::(?P<first>[0-9]{1,18})(?P<dash>-(?P<last>[0-9]{1,18})?)?)?)?\Z"
)
PLACE_FORMS: Final = "TOPIC, TOPIC:PARTITION, TOPIC:PARTITION:OFFSET or TOPIC:PARTITION:FIRST-LAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRange:
    """Offsets of a partition, both ends included; None where there is no limit."""

    topic: str
    partition: int | None = None
    first: int | None = None
    last: int | None = None

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        return (
            topic == self.topic
            and (self.partition is None or partition == self.partition)
            and (self.first is None or offset >= self.first)
            and (self.last is None or offset <= self.last)
        )


def parse_place(text: str) -> PlaceRange:
    """Parses a place. Raises ConfigError, which lists the forms."""
    match = _PLACE.match(trimmed(text))
    if match is None:
        raise ConfigError(f"{text!r:.80} is no place in a topic: expected {PLACE_FORMS}")
    first = _number(match["first"])
    last = _number(match["last"]) if match["dash"] else first
    if first is not None and last is not None and last < first:
        raise ConfigError(f"{text!r:.80} is no place in a topic: {last} is before {first}")
    return PlaceRange(topic=match["topic"], partition=_number(match["partition"]), first=first, last=last)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def span_of(places: Iterable[PlaceRange], partition: int) -> tuple[int, int | None] | None:
    """Returns the first offset of a partition that `places` may mean, and the last one, if there is a last one.

    None when they mean nothing of this partition. Without any place all of it is meant.
    """
    listed = list(places)
    mine = [span for span in listed if span.partition in (None, partition)]
    if listed and not mine:
        return None
    lasts = [span.last for span in mine if span.last is not None]
    first = min((span.first or 0 for span in mine), default=0)
    return first, max(lasts) if mine and len(lasts) == len(mine) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of dead letters. A letter must match every field that is set, and one of the values where a field has
    several."""

    errors: tuple[str, ...] = ()
    """Names of classes: full, or their last part, with * and ?."""
    text: str | None = None
    """Part of the message, without regard to case."""
    origins: tuple[PlaceRange, ...] = ()
    places: tuple[PlaceRange, ...] = ()
    """The places of the letters themselves."""
    groups: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    """Letters were given up at or after `since_ms` and before `until_ms`."""
    redrives_below: int | None = None
    """Letters were sent back less often than this before."""

    def matches(self, letter: DeadLetter) -> bool:
        return (
            self._error_matches(letter.failure.exception)
            and (self.text is None or self.text.lower() in letter.failure.message.lower())
            and (not self.origins or self._origin_matches(letter))
            and (not self.places or _in_any(self.places, letter.topic, letter.partition, letter.offset))
            and (not self.groups or letter.by.group in self.groups)
            and (not self.queries or letter.by.query in self.queries)
            and (self.since_ms is None or letter.failed_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.failed_at_ms < self.until_ms)
            and (self.redrives_below is None or letter.redrive_count < self.redrives_below)
        )

    def _error_matches(self, exception: str) -> bool:
        if not self.errors:
            return True
        names = (exception, re.split(r"[.$]", exception)[-1])
        return any(fnmatch.fnmatchcase(name, wanted) for wanted in self.errors for name in names)

    def _origin_matches(self, letter: DeadLetter) -> bool:
        origin = letter.origin
        return origin is not None and _in_any(self.origins, origin.topic, origin.partition, origin.offset)


def _in_any(ranges: Iterable[PlaceRange], topic: str, partition: int, offset: int) -> bool:
    return any(span.holds(topic, partition, offset) for span in ranges)
