"""A task's timers (punctuation) in stream time: which keys have something to do, and when.

Pages hold the times, so that adding a time, and checking whether any is due, reads little of the state even if many keys
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from odradek.streams.processors.ports import Fields, TaskState
from odradek.streams.processors.task import key_text

_PAGE_MS: Final = 60_000
_PAGES: Final[Fields] = {"page": "all"}


class Calendar:
    """A view of the state: make one where it is needed. A time may be noted several times for a key; it is given once."""

    def __init__(self, state: TaskState, name: str = "calendar") -> None:
        self._state = state
        self._name = name

    def note(self, time: int, key: Fields) -> None:
        """Notes that a key is due as soon as stream time is after `time`."""
        number = time // _PAGE_MS
        pages = self._state.get(self._name, _PAGES) or []
        page = self._state.get(self._name, {"page": number})
        if page is None:
            page = {}
            self._state.put(self._name, _PAGES, sorted([*pages, number]))
        text = key_text(key)
        noted = page.get(time)
        if noted is None:
            page[time] = {text: key}
            self._state.undo_by(partial(page.pop, time))
        elif text in noted:
            return
        else:
            noted[text] = key
            self._state.undo_by(partial(noted.pop, text))
        self._state.put(self._name, {"page": number}, page)

    def note_all(self, time: int, keys: Mapping[str, Fields]) -> None:
        """Notes many keys, each by its text, for one time, as `note` does, without a look into the state for each."""
        number = time // _PAGE_MS
        pages = self._state.get(self._name, _PAGES) or []
        page = self._state.get(self._name, {"page": number})
        if page is None:
            page = {}
            self._state.put(self._name, _PAGES, sorted([*pages, number]))
        noted = page.setdefault(time, {})
        added = {text: key for text, key in keys.items() if text not in noted}
        noted.update(added)
        self._state.undo_by(partial(_forget, page, time, list(added)))
        self._state.put(self._name, {"page": number}, page)

    def first(self) -> int | None:
        """Returns the earliest time that is noted."""
        pages = self._state.get(self._name, _PAGES)
        return min(self._state.get(self._name, {"page": pages[0]})) if pages else None

    def due(self, stream_time: int, entries: Iterable[str] = ()) -> Iterator[tuple[int, Fields]]:
        """Yields times that have come, and the keys that were noted for them, by time, and removes both. `entries`: the
        entries that the caller reads of these keys.
        """
        for taken in self._due_by_time(stream_time):
            due = [(time, key) for time, keys in taken.items() for key in keys.values()]
            self._state.prepare(entries, (key for _, key in due))
            yield from due

    def last_due(self, stream_time: int) -> dict[str, int]:
        """Returns the last time that has come for each key, by the key's text, and removes all times that have come."""
        last: dict[str, int] = {}
        for taken in self._due_by_time(stream_time):
            for time, keys in taken.items():
                last.update(dict.fromkeys(keys, time))
        return last

    def _due_by_time(self, stream_time: int) -> Iterator[dict[int, dict[str, Fields]]]:
        """Removes, page by page, the times that have come; yields them in ascending order, with their keys by text."""
        while pages := self._state.get(self._name, _PAGES):
            number = pages[0]
            if number * _PAGE_MS >= stream_time:
                return
            page = self._state.get(self._name, {"page": number})
            ready = sorted(time for time in page if time < stream_time)
            if not ready:
                return
            taken = {time: page.pop(time) for time in ready}
            self._state.undo_by(partial(page.update, taken))
            if not page:
                self._state.put(self._name, _PAGES, pages[1:] or None)
            self._state.put(self._name, {"page": number}, page or None)
            yield taken


def _forget(page: dict[int, dict[str, Fields]], time: int, key_texts: Iterable[str]) -> None:
    """Takes keys off a time again, and the time with the last of them."""
    noted = page[time]
    for text in key_texts:
        del noted[text]
    if not noted:
        del page[time]
