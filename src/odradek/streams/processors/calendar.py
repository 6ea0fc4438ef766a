"""A task's timers (punctuation) in stream time: which keys have something to do, and when.

Pages hold the times, so that adding a time, and checking whether any is due, reads little of the state even if many keys
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from odradek.streams.processors.ports import Fields, TaskState

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
        key_text = repr(tuple(key.values()))
        noted = page.get(time)
        if noted is None:
            page[time] = {key_text: key}
            self._state.undo_by(partial(page.pop, time))
        elif key_text in noted:
            return
        else:
            noted[key_text] = key
            self._state.undo_by(partial(noted.pop, key_text))
        self._state.put(self._name, {"page": number}, page)

    def note_all(self, time: int, keys: Iterable[Fields]) -> None:
        """Notes many keys for one time, as `note` does, without a look into the state for each."""
        number = time // _PAGE_MS
        pages = self._state.get(self._name, _PAGES) or []
        page = self._state.get(self._name, {"page": number})
        if page is None:
            page = {}
            self._state.put(self._name, _PAGES, sorted([*pages, number]))
        noted = page.setdefault(time, {})
        added = {text: key for key in keys if (text := repr(tuple(key.values()))) not in noted}
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
            due = [(time, key) for time, keys in taken.items() for key in keys.values()]
            if not page:
                self._state.put(self._name, _PAGES, pages[1:] or None)
            self._state.put(self._name, {"page": number}, page or None)
            self._state.prepare(entries, (key for _, key in due))
            yield from due


def _forget(page: dict[int, dict[str, Fields]], time: int, key_texts: Iterable[str]) -> None:
    """Takes keys off a time again, and the time with the last of them."""
    noted = page[time]
    for text in key_texts:
        del noted[text]
    if not noted:
        del page[time]
