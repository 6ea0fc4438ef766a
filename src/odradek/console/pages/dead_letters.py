"""Dead letters: topics that hold them, reasons counted, one letter with its history, and a redrive after a preview."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from starlette.responses import Response

from odradek.client.network.errors import explain
from odradek.console.pages.record_forms import offset_of, partition_of, time_text
from odradek.console.pages.topic import known_topic
from odradek.console.records.view import content_view, short_text
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.dead_letters.grouping import (
    LetterGroup,
    RedriveTarget,
    grouped,
    holds_dead_letters,
    redrive_targets,
)
from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.redrive import RedriveProgress, redrive
from odradek.dead_letters.selection import PlaceRange, Selection
from odradek.dead_letters.sending_back import RedriveRequest
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.runtime.ports import Clock

T = TypeVar("T")
READ_S: Final = 4.0
READ_WAIT_S: Final = 30.0
LETTERS_MAX: Final = 20_000
"""The number of letters that a page counts; it tells if there are more."""
SHOWN_MAX: Final = 50
REDRIVEN_MAX: Final = 5_000
"""The number of letters that one redrive sends: the next one continues."""
_ALLOW: Final = "allow:"


class CountedLetters(NamedTuple):
    """The letters of a topic by reason, and the last ones."""

    groups: list[LetterGroup]
    last: list[tuple[DeadLetter, bool]]
    total: int
    is_complete: bool


async def show_topics(visit: Visit) -> Response:
    """Shows the topics that hold dead letters according to their names."""
    await visit.wait_until_read()
    snapshot = visit.snapshot
    rows = [topic for name, topic in snapshot.topics.items() if holds_dead_letters(name)]
    return visit.render("dead_letter_topics.html", active="dead_letters", rows=rows)


async def show(visit: Visit) -> Response:
    """Shows the reasons of a topic's letters, and the last letters; with `error`, of this reason only."""
    topic = await known_topic(visit)
    selection = _selection(visit.query.get("error", ""))
    counted = await _on_thread(
        visit, topic.name, lambda letters: _counted(letters, selection, visit.console.clock)
    )
    return visit.render(
        "dead_letters.html",
        active="dead_letters",
        topic=topic,
        counted=counted,
        error=visit.query.get("error", ""),
        short=short_text,
        time_text=time_text,
    )


async def show_letter(visit: Visit) -> Response:
    """Shows one letter and its history."""
    topic = await known_topic(visit)
    params = visit.request.path_params
    partition, offset = partition_of(params["partition"], topic), offset_of(params["offset"])
    place = PlaceRange(topic=topic.name, partition=partition, first=offset, last=offset)
    selection = Selection(places=(place,))
    hits = await _on_thread(visit, topic.name, lambda letters: list(letters.letters(selection)))
    if not hits:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic.name}-{partition} has no record at offset {offset}"
        )
    letter, is_redriven = hits[0]
    return visit.render(
        "dead_letter.html",
        active="dead_letters",
        letter=letter,
        is_redriven=is_redriven,
        key=content_view(letter.key),
        value=content_view(letter.value),
        trace=content_view(letter.failure.stacktrace.encode(errors="replace")),
        headers=[(name, short_text(value)) for name, value in letter.own_headers[:100]],
        download_path=f"/topics/{topic.name}/records/{partition}/{offset}",
        time_text=time_text,
    )


async def show_redrive(visit: Visit) -> Response:
    return await _redrive_page(visit)


async def send_back(visit: Visit) -> Response:
    """Shows where letters would go; with `sure`, sends them."""
    topic = await known_topic(visit)
    form = visit.form
    allowed = frozenset(name.removeprefix(_ALLOW) for name in form if name.startswith(_ALLOW))
    try:
        if form.get("to", "").strip() and visit.console.options.masks:
            raise ConfigError(visit.catalogue.text("dead.masked"))
        request = RedriveRequest(
            selection=_selection(form.get("error", "")),
            to=form.get("to", "").strip() or None,
            count_max=REDRIVEN_MAX,
            allowed_topics=allowed,
        )
        if "sure" in form:
            done = await _on_thread(
                visit, topic.name, lambda letters: redrive(letters, request), as_stored=True
            )
            return await _redrive_page(visit, done=done)
        targets = await _on_thread(
            visit, topic.name, lambda letters: _targets(letters, request, visit.console.clock)
        )
    except OdradekError as error:
        return await _redrive_page(visit, explain(error), 400)
    return await _redrive_page(visit, targets=targets)


async def _redrive_page(
    visit: Visit,
    line: str = "",
    status: int = 200,
    *,
    targets: list[RedriveTarget] | None = None,
    done: RedriveProgress | None = None,
) -> Response:
    topic = await known_topic(visit)
    return visit.render(
        "dead_letter_redrive.html",
        status,
        active="dead_letters",
        topic=topic,
        line=line,
        form=visit.form or dict(visit.query),
        targets=targets,
        done=done,
        count_max=REDRIVEN_MAX,
    )


def _selection(error: str) -> Selection:
    """Returns the letters of one error: the name itself, whatever signs it has."""
    escaped = "".join(f"[{sign}]" if sign in "*?[" else sign for sign in error)
    return Selection(errors=(escaped,) if error else ())


def _counted(topic: DeadLetterTopic, selection: Selection, clock: Clock) -> CountedLetters:
    last: deque[tuple[DeadLetter, bool]] = deque(maxlen=SHOWN_MAX)
    seen = _Bounded(clock)

    def letters() -> Iterator[tuple[DeadLetter, bool]]:
        for letter, is_redriven in seen.of(topic.letters(selection)):
            last.append((letter, is_redriven))
            yield letter, is_redriven

    groups = grouped(letters())
    newest_first = sorted(last, key=lambda entry: -entry[0].failed_at_ms)
    return CountedLetters(groups, newest_first, seen.count, seen.is_complete)


def _targets(topic: DeadLetterTopic, request: RedriveRequest, clock: Clock) -> list[RedriveTarget]:
    return redrive_targets(_Bounded(clock).of(topic.letters(request.selection)), topic.name, request)


class _Bounded:
    """Passes on what comes until there is too much, or it took too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.count = 0
        self.is_complete = True

    def of(self, letters: Iterator[T]) -> Iterator[T]:
        deadline_s = self._clock.monotonic() + READ_S
        for letter in letters:
            if self.count >= LETTERS_MAX or self._clock.monotonic() > deadline_s:
                self.is_complete = False
                return
            self.count += 1
            yield letter


async def _on_thread(
    visit: Visit, topic: str, work: Callable[[DeadLetterTopic], T], *, as_stored: bool = False
) -> T:
    try:
        async with asyncio.timeout(READ_WAIT_S):
            return await visit.run(visit.model.reader.with_dead_letters(topic, work, as_stored=as_stored))
    except TimeoutError:
        line = visit.catalogue.text("records.slow", time=visit.catalogue.seconds(READ_WAIT_S))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


PAGES: Final = (
    ConsolePage(path="/dead-letters", show=show_topics),
    ConsolePage(path="/dead-letters/{name}", show=show),
    ConsolePage(path="/dead-letters/{name}/redrive", show=show_redrive, act=send_back),
    ConsolePage(path="/dead-letters/{name}/{partition}/{offset}", show=show_letter),
)
