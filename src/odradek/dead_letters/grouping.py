"""Letters counted by what went wrong, and by where a redrive would send them. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.redriven import REDRIVES_TOPIC
from odradek.dead_letters.sending_back import Fate, RedriveRequest, is_named_after
from odradek.security.closed_topics import is_internal

_LOOKS_DEAD: Final = re.compile(r"(^|[._-])(dlq|dlt|dead[._-]?letters?|dead)([._-]|$)", re.IGNORECASE)


def holds_dead_letters(topic: str) -> bool:
    """Returns whether the name is one that topics of dead letters have: it has dlq, dlt or dead in it."""
    return _LOOKS_DEAD.search(topic) is not None and topic != REDRIVES_TOPIC


@dataclass(slots=True, kw_only=True)
class LetterGroup:
    """Letters of one topic with one origin and one error."""

    topic: str
    origin: str | None
    error: str
    letter_count: int = 0
    """The number of letters that were not sent back."""
    redriven_count: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def add(self, letter: DeadLetter, is_redriven: bool) -> None:
        if is_redriven:
            self.redriven_count += 1
        else:
            self.letter_count += 1
        at = letter.failed_at_ms
        self.oldest_ms = at if self.oldest_ms is None else min(self.oldest_ms, at)
        self.newest_ms = at if self.newest_ms is None else max(self.newest_ms, at)


def grouped(letters: Iterable[tuple[DeadLetter, bool]]) -> list[LetterGroup]:
    """Groups letters by topic, origin topic and error; the largest group comes first."""
    groups: dict[tuple[str, str | None, str], LetterGroup] = {}
    for letter, is_redriven in letters:
        origin = letter.origin.topic if letter.origin is not None else None
        key = (letter.topic, origin, letter.failure.exception)
        group = groups.get(key)
        if group is None:
            group = groups[key] = LetterGroup(topic=key[0], origin=key[1], error=key[2])
        group.add(letter, is_redriven)
    return sorted(
        groups.values(), key=lambda entry: (-entry.letter_count, -entry.redriven_count, entry.error)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveTarget:
    """Letters that would go to a topic. `refusal`: why they do not, or not yet."""

    topic: str
    letter_count: int
    refusal: Fate | None = None


def redrive_targets(
    letters: Iterable[tuple[DeadLetter, bool]], name: str, request: RedriveRequest
) -> list[RedriveTarget]:
    """Returns the topics that letters of the dead-letter topic `name` would go to, and how many each would get."""
    counts: Counter[str] = Counter()
    for letter, is_redriven in letters:
        target = request.target_of(letter)
        if target is not None and (request.again or not is_redriven):
            counts[target] += 1
        if request.count_max is not None and counts.total() >= request.count_max:
            break
    return [
        RedriveTarget(topic=topic, letter_count=count, refusal=_refusal(request, name, topic))
        for topic, count in counts.items()
    ]


def _refusal(request: RedriveRequest, name: str, topic: str) -> Fate | None:
    if request.to is not None or topic in request.allowed_topics:
        return None
    if is_internal(topic):
        return Fate.INTERNAL
    return None if is_named_after(name, topic) else Fate.NOT_ALLOWED
